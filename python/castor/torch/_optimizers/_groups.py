# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Which of a script's groups each parameter is in, however the script edits ``param_groups``."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch

from castor.errors import FailedPrecondition
from castor.torch._model import Param
from castor.torch._optimizers._bare import same
from castor.torch._optimizers._rule import Groups
from castor.torch._torch_internals import plain_functions


def params_of(group: dict[str, Any]) -> list[torch.Tensor]:
    """Of a list, an iterator or a single tensor, as torch takes them; with names, as torch takes them too."""
    params = group["params"]
    listed = [params] if isinstance(params, torch.Tensor) else list(params)
    return [one[1] if isinstance(one, tuple) else one for one in listed]


def _numbers_of(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


class Grouping:
    """The engine has each parameter in a group. All parameters of such a group take their numbers from one group of the script's."""

    def __init__(self, groups: Groups, by_tensor: Mapping[int, Param]) -> None:
        """`groups`: as the engine has them, ``g0`` first. `by_tensor`: by ids."""
        self._by_tensor = by_tensor
        self._own: list[list[Param]] = [[] for _ in groups]  # trained ones, by the engine's group
        for p in by_tensor.values():
            if not p.frozen:
                self._own[int(p.group[1:])].append(p)
        self._known: list[tuple[dict[str, Any], list[torch.Tensor]]] = []
        self.ordered: Groups = list(groups)  # for each of the engine's groups, the script's with its numbers
        self.without: Sequence[Param] = ()  # trained parameters that are in no group any more
        self.thawed: Sequence[Param] = ()  # parameters in a group that are to be trained, and that the engine has as frozen
        self._parted: Optional[tuple[Param, dict[str, Any], Param, dict[str, Any]]] = None  # two of one engine's group, and their groups
        self.due = False  # the engine has to be made anew for the script's groups

    def look(self, groups: Groups) -> None:
        """Follows what a script has changed. FailedPrecondition, by name, where parameters cannot be updated so: nothing has changed then."""
        if self._is_known(groups):
            return
        placed: dict[int, dict[str, Any]] = {}
        for group in groups:
            for tensor in params_of(group):
                p = self.known(tensor)
                if p.number in placed:
                    raise FailedPrecondition(f"parameter {p.name} is in param_groups twice, and would be updated twice: take it out of one group")
                placed[p.number] = group
        self._parted = None
        self.ordered = [self._one_group(own, placed) or before for own, before in zip(self._own, self.ordered)]
        self.without = [p for own in self._own for p in own if p.number not in placed]
        with plain_functions():
            self.thawed = [p for p in self._by_tensor.values() if p.frozen and p.number in placed and p.tensor.requires_grad]
        self.due = bool(self.thawed) or self._parted is not None
        self._known = [(group, params_of(group)) for group in groups]

    def look_again(self) -> None:
        """Whether a parameter is trained has changed, which no group shows."""
        self._known = []

    def check_within_step(self) -> None:
        """FailedPrecondition where the engine cannot end a step that has begun with other groups as the script expects."""
        if self._parted is not None and not same(_numbers_of(self._parted[1]), _numbers_of(self._parted[3])):
            raise FailedPrecondition(f"parameters {self._parted[0].name} and {self._parted[2].name} were in one group when the step began, and are in two with other numbers "
                                     "now: change groups behind optimizer.step()")
        for p in self.thawed:
            with plain_functions():
                if p.tensor.grad is not None:
                    raise FailedPrecondition(f"parameter {p.name} has a gradient, and was put into param_groups when the step had begun: change groups behind "
                                             "optimizer.step()")

    def known(self, tensor: torch.Tensor) -> Param:
        """FailedPrecondition where a tensor that a script has put into a group is none of the model's parameters."""
        p = self._by_tensor.get(id(tensor))
        if p is None:
            raise FailedPrecondition(f"a parameter of shape {tuple(tensor.shape)} was put into param_groups after castor.wrap, and is none of the model's "
                                     "in chunks: give it to castor.wrap with the model, or train it by an optimizer of its own, in a module that castor.wrap is "
                                     "told to ignore")
        return p

    def for_engine(self, groups: Groups) -> Groups:
        """The groups of an engine that follows the script's: behind these, what parameters in no group any more had last."""
        made, kept = list(groups), {}
        for p in self.without:
            last = self.ordered[int(p.group[1:])]
            kept.setdefault(id(last), {**_numbers_of(last), "params": []})["params"].append(p.tensor)
        return made + list(kept.values())

    def _is_known(self, groups: Groups) -> bool:
        if len(groups) != len(self._known):
            return False
        for group, (known, params) in zip(groups, self._known):
            if group is not known or len(group["params"]) != len(params) or not all(map(operator.is_, group["params"], params)):
                return False
        return True

    def _one_group(self, own: list[Param], placed: dict[int, dict[str, Any]]) -> dict[str, Any]:
        there = [(p, placed[p.number]) for p in own if p.number in placed]
        if not there:
            return {}
        first, group = there[0]
        for p, other in there:
            if other is not group:
                self._parted = first, group, p, other  # with the same numbers now, perhaps
                break
        return group
