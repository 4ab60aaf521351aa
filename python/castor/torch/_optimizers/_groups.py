# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Which of a script's groups each parameter is in, however the script edits ``param_groups``."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from castor.errors import FailedPrecondition
from castor.torch._model import Param
from castor.torch._optimizers._bare import same
from castor.torch._optimizers._rule import Groups


def params_of(group: dict[str, Any]) -> list[torch.Tensor]:
    """Of a list, an iterator or a single tensor, as torch takes them."""
    params = group["params"]
    return [params] if isinstance(params, torch.Tensor) else list(params)


def _numbers_of(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


class Grouping:
    """The engine has each parameter in the group that it was in at wrap. All parameters of such a group take their numbers from one group of the script's."""

    def __init__(self, groups: Groups, by_tensor: Mapping[int, Param]) -> None:
        """`by_tensor`: by ids."""
        self._by_tensor = by_tensor
        self._own: list[list[Param]] = [[] for _ in groups]  # trained ones, by the engine's group
        for p in by_tensor.values():
            if not p.frozen:
                self._own[int(p.group[1:])].append(p)
        self._known = [(group, params_of(group)) for group in groups]
        self.ordered: Groups = list(groups)  # for each of the engine's groups, the script's with its numbers
        self.without: Sequence[Param] = ()  # trained parameters that are in no group any more

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
        ordered = [self._one_group(own, placed) or before for own, before in zip(self._own, self.ordered)]
        self.without = [p for own in self._own for p in own if p.number not in placed]
        self.ordered, self._known = ordered, [(group, params_of(group)) for group in groups]

    def known(self, tensor: torch.Tensor) -> Param:
        """FailedPrecondition where the engine has no states of a parameter, which a script has put into a group."""
        p = self._by_tensor.get(id(tensor))
        if p is None or not p.group:
            what = f"a parameter of shape {tuple(tensor.shape)}" if p is None else f"parameter {p.name}"
            raise FailedPrecondition(f"{what} was put into param_groups after castor.wrap, and Castor has no states for it: put it into the optimizer before "
                                     "castor.wrap, or train it by an optimizer of its own, in a module that castor.wrap is told to ignore")
        return p

    def _is_known(self, groups: Groups) -> bool:
        return len(groups) == len(self._known) and all(
            group is known and len(group["params"]) == len(params) and all(map(operator.is_, group["params"], params))
            for group, (known, params) in zip(groups, self._known)
        )

    @staticmethod
    def _one_group(own: list[Param], placed: dict[int, dict[str, Any]]) -> dict[str, Any]:
        there = [(p, placed[p.number]) for p in own if p.number in placed]
        if not there:
            return {}
        first, group = there[0]
        for p, other in there:
            if other is not group and not same(_numbers_of(other), _numbers_of(group)):
                raise FailedPrecondition(f"parameters {first.name} and {p.name} were in one group at castor.wrap, and are in two with other numbers now: "
                                         "give each its group before castor.wrap")
        return group
