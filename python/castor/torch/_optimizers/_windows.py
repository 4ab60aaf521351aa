# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a window's update is made of: an optimizer, what stays here of a parameter, and runs of elements that it takes together."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from castor import _abi
from castor.torch._model import Param
from castor.torch._optimizers._bare import Bare, globals_in, same
from castor.torch._optimizers._facts import Facts, facts_of

MOST_STATES = 8


class Member:
    """One of the optimizers, which has a run of the groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, first_group: int) -> None:
        self.bare = Bare(optimizer)
        self.facts: Facts = facts_of(optimizer)
        self.groups = range(first_group, first_group + len(optimizer.param_groups))
        self.dims = [max((p.dim() for p in group["params"]), default=1) for group in optimizer.param_groups]
        self.of_all: dict[Any, Any] = globals_in(optimizer.state)  # what its state has under names
        self.first = (self.bare.numbers(), self.of_all)  # both before any step
        self.counted: set[str] = set()  # its numbers that steps change
        self.before: dict[str, Any] = {}  # its numbers when the step began
        self.after: Optional[tuple[dict[str, Any], dict[Any, Any]]] = None  # both, once a window has been


class Kept:
    """What stays here of one parameter's state."""

    __slots__ = ("after", "attributes", "member", "owns", "p", "present", "rest", "updates")

    def __init__(self, p: Param, member: Member) -> None:
        self.p, self.member = p, member
        self.present: frozenset[str] = frozenset()  # names of its states in chunks
        self.rest: Optional[dict[str, Any]] = None  # None: no step yet
        # A script's own, which steps may look at.
        self.attributes = {name: value for name, value in vars(p.tensor).items() if not name.startswith("_castor")}
        self.owns = True  # what is here is true; another rank updates it else
        self.updates = 0  # the engine's count of them when the step began, where several ranks have parts
        self.after: Optional[tuple[frozenset[str], Optional[dict[str, Any]]]] = None  # both, once a window of this step has been


class Piece:
    """What an optimizer takes for one parameter: runs of the same kind that lie behind each other."""

    __slots__ = ("elements", "grad", "kept", "members", "shape", "states", "values")

    def __init__(self, kept: Kept, run: Any) -> None:
        self.kept, self.members = kept, [kept]
        self.shape = kept.p.shape if run.elements == kept.p.elements else torch.Size((run.elements,))
        self.elements, self.values, self.grad = run.elements, run.values, run.grad
        self.states = run.states[: MOST_STATES]

    def take(self, kept: Kept, run: Any, grad_bytes: int) -> bool:
        """Whether the run lies behind this one, with the same numbers."""
        size = self.elements
        first = self.kept
        if run.elements == kept.p.elements == 1 or first.p.elements == 1 or not same(kept.attributes, first.attributes):
            return False
        if (run.values != self.values + 4 * size or run.grad != self.grad + grad_bytes * size or kept.p.group != first.p.group
                or kept.present != first.present or not same(kept.rest, first.rest)):
            return False
        if any(mine is not None and its != mine + 4 * size for mine, its in zip(self.states, run.states)):
            return False
        self.elements += run.elements
        self.shape = torch.Size((self.elements,))
        self.members.append(kept)
        return True


def floats_at(address: int, count: int, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer((_abi.c_float * count).from_address(address), dtype=dtype)


def apart(value: Any, memory: set[int]) -> Any:
    """A value without tensors over windows, whose memory is used for others."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.untyped_storage().data_ptr() in memory else value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(apart(one, memory) for one in value)
    if isinstance(value, dict):
        return {name: apart(one, memory) for name, one in value.items()}
    return value


def stand_in(kept: Kept) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """One element in place of those that other ranks have."""
    return torch.zeros(1), torch.zeros(1), {name: torch.zeros(1) for name in kept.member.facts.states}
