# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A user's optimizer at work on tensors that are not its own."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from castor.errors import FailedPrecondition
from castor.torch._parameters._params import OF_METADATA
from castor.torch._torch_internals import plain_functions

State = defaultdict[Any, Any]  # by parameter; by a name, what an optimizer keeps of all together
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks",
          "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")
_NUMBERS = (bool, int, float, complex, str, type(None))
_SMALL = 1 << 16  # elements of a tensor that an optimizer keeps for itself


class Bare:
    """An optimizer of the same class with the same numbers, without hooks: it steps whatever parameters it is given."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        kind = type(optimizer)
        self.name = kind.__name__
        self.optimizer: Any = object.__new__(kind)
        left_out = {"param_groups", "state", "step", *HOOKS}
        vars(self.optimizer).update({name: _own(value) for name, value in vars(optimizer).items() if name not in left_out})
        for name in HOOKS:
            setattr(self.optimizer, name, OrderedDict())
        # Torch's wrapper calls hooks, which belong to a whole step.
        step: Any = kind.step
        self._step = step.__wrapped__ if getattr(step, "hooked", False) else step

    def numbers(self) -> dict[str, Any]:
        """Of the optimizer itself, which a step may count on."""
        return {name: copied(value) for name, value in vars(self.optimizer).items() if _is_number(value)}

    def set_numbers(self, numbers: dict[str, Any]) -> None:
        vars(self.optimizer).update({name: copied(value) for name, value in numbers.items()})

    def restore(self, numbers: dict[str, Any]) -> None:
        """As they were when `numbers` said so: what a step has added goes."""
        mine = vars(self.optimizer)
        for name in [name for name, value in mine.items() if name not in numbers and _is_number(value)]:
            del mine[name]
        self.set_numbers(numbers)

    def kept_beside(self) -> dict[str, Any]:
        """What the optimizer keeps for itself that is no number, so that it can be seen whether a step changes it."""
        seen: dict[str, Any] = {}
        for name, value in vars(self.optimizer).items():
            if name in ("param_groups", "state", "defaults") or name in HOOKS or _is_number(value):
                continue
            if isinstance(value, torch.Tensor):
                seen[name] = value.clone() if value.numel() <= _SMALL else value._version
            elif isinstance(value, dict):
                seen[name] = [(id(key), id(one)) for key, one in value.items()]
            elif isinstance(value, (list, tuple, set, frozenset, deque)):
                seen[name] = [id(one) for one in value]
            else:
                inside = vars(value).items() if hasattr(value, "__dict__") else ()
                seen[name] = (id(value), {word: copied(one) for word, one in inside if _is_number(one)})
        return seen

    def put(self, groups: list[dict[str, Any]], state: State) -> None:
        self.optimizer.param_groups = groups
        self.optimizer.state = state

    @property
    def has_own_form(self) -> bool:
        """Whether what it saves is not what torch saves."""
        kind, plain = type(self.optimizer), torch.optim.Optimizer
        return kind.state_dict is not plain.state_dict or kind.load_state_dict is not plain.load_state_dict

    def to_own_form(self, state_dict: dict[str, Any], params: Mapping[int, Tensor]) -> dict[str, Any]:
        """`params`: what `stand_in` gave, by the numbers that the groups have."""
        state: State = defaultdict(dict, {params.get(key, key): value for key, value in state_dict["state"].items()})
        self.put([{**group, "params": [params[number] for number in group["params"]]} for group in state_dict["param_groups"]], state)
        try:
            return self.optimizer.state_dict()
        finally:
            self.put([], defaultdict(dict))  # a second copy of the states else

    def from_own_form(self, state_dict: dict[str, Any], groups: list[dict[str, Any]], params: Mapping[int, Tensor]) -> dict[str, Any]:
        self.put([{**group, "params": [params[number] for number in group["params"]]} for group in groups], defaultdict(dict))
        try:
            self.optimizer.load_state_dict(state_dict)
            numbers = {id(p): number for number, p in params.items()}
            state = {numbers.get(id(key), key): value for key, value in self.optimizer.state.items()}
            left = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.optimizer.param_groups]
            return {"state": state, "param_groups": left}
        finally:
            self.put([], defaultdict(dict))

    def stand_in(self, shape: torch.Size, attributes: dict[str, Any]) -> Tensor:
        """In a parameter's place where nothing asks for values: one element in memory."""
        p = torch.Tensor._make_subclass(_stand_in_of(self.name), torch.zeros((), device="cpu").expand(shape), True)
        vars(p).update(attributes)
        return p

    def step(self, groups: list[dict[str, Any]], state: State) -> bool:
        """Updates the parameters of the groups by their gradients. `state` is taken, and is what the step leaves.

        Returns whether `numbers` may be others now.
        """
        self.put(groups, state)
        before = tuple(vars(self.optimizer).values())
        self._step(self.optimizer)
        after = tuple(vars(self.optimizer).values())
        return len(before) != len(after) or not all(map(operator.is_, before, after)) or any(map(isinstance, after, itertools.repeat(Tensor)))


_VALUES_OF_MEMORY = {Tensor.untyped_storage, Tensor.storage, Tensor.data_ptr}
_ALIASES = {Tensor.detach, Tensor.data.__get__}  # type: ignore[attr-defined]


class _StandIn(torch.nn.Parameter):
    """It has a parameter's shape and no values, which would be saved as zeros, or written to be lost."""

    of = ""  # the optimizer's name

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        with plain_functions():
            if function in OF_METADATA and function not in _VALUES_OF_MEMORY:
                return function(*arguments, **(keywords or {}))
            if function in _ALIASES:
                return function(*arguments).as_subclass(cls)
        raise FailedPrecondition(f"{cls.of} saves or loads values of parameters in its own state_dict, and these are in chunks: "
                                 "leave them to model.state_dict()")


@functools.cache
def _stand_in_of(optimizer: str) -> type[_StandIn]:
    return type("StandIn", (_StandIn,), {"of": optimizer})


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) or (isinstance(value, torch.Tensor) and value.numel() <= 1)


def _own(value: Any) -> Any:
    """So that steps of the copy leave the user's optimizer alone. What a container has stays what it is."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.numel() <= _SMALL and not isinstance(value, torch.nn.Parameter) else value
    return copy.copy(value) if isinstance(value, (dict, list, set, deque)) else value


def copied(value: Any) -> Any:
    """A state's or a group's value that no step changes in its place."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(copied(one) for one in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    # numpy's arrays are known by what they offer.
    return copy.copy(value) if isinstance(value, (set, deque)) or hasattr(value, "__array_interface__") else value


def fixed(value: Any) -> bool:
    """Whether no step can change it in its place."""
    return isinstance(value, _NUMBERS) or (type(value) is tuple and all(map(fixed, value)))


def globals_in(state: State) -> dict[Any, Any]:
    """What an optimizer keeps in its state under names, not under parameters."""
    return {name: value for name, value in state.items() if not isinstance(name, torch.Tensor)}


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal. What could change in its place is looked at even where it is one object."""
    if one is other and fixed(one):
        return True
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape and one.dtype == other.dtype
                and torch.equal(one, other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # what has no such answer is not known to be equal
        return False
