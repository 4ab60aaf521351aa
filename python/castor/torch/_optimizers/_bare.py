# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A user's optimizer at work on tensors that are not its own."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import torch

State = defaultdict[torch.Tensor, dict[str, Any]]
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks",
          "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")
_NUMBERS = (bool, int, float, str, type(None))


class Bare:
    """An optimizer of the same class with the same numbers, without hooks: it steps whatever parameters it is given."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        kind = type(optimizer)
        self.name = kind.__name__
        self.optimizer: Any = object.__new__(kind)
        left_out = {"param_groups", "state", "step", *_HOOKS}
        vars(self.optimizer).update({name: value for name, value in vars(optimizer).items() if name not in left_out})
        for name in _HOOKS:
            setattr(self.optimizer, name, OrderedDict())
        # Torch's wrapper calls hooks, which belong to a whole step.
        step: Any = kind.step
        self._step = step.__wrapped__ if getattr(step, "hooked", False) else step

    def numbers(self) -> dict[str, Any]:
        """Of the optimizer itself, which a step may count on."""
        return {name: value for name, value in vars(self.optimizer).items() if isinstance(value, _NUMBERS)}

    def set_numbers(self, numbers: dict[str, Any]) -> None:
        vars(self.optimizer).update(numbers)

    def put(self, groups: list[dict[str, Any]], state: State) -> None:
        self.optimizer.param_groups = groups
        self.optimizer.state = state

    def step(self, groups: list[dict[str, Any]], state: State) -> None:
        """Updates the parameters of the groups by their gradients. `state` is taken, and is what the step leaves."""
        self.put(groups, state)
        self._step(self.optimizer)


def copied(value: Any) -> Any:
    """A state's or a group's value that no step changes in its place."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [copied(one) for one in value]
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, tensors in all their bits."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape and one.dtype == other.dtype
                and torch.equal(one, other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and bool(one == other)
