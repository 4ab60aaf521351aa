# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a window's update is made of: an optimizer, what stays here of a parameter, and runs of elements that it takes together."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from castor.torch._model import Param
from castor.torch._optimizers._bare import Bare, copied, fixed, globals_in, same
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
        self.moved = False  # its numbers may not be those from before the step

    def placeholders(self, place: int) -> list[nn.Parameter]:
        """What a group of its has where a window has none of the group's parameters."""
        return [nn.Parameter(torch.zeros((1,) * self.dims[place]))] if self.facts.placeholders else []


class Before:
    """What a group had beside parameters when a step began."""

    __slots__ = ("_changeable", "values")

    def __init__(self, group: dict[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self._changeable: list[str] = []
        for name, value in group.items():
            if name == "params":
                continue
            if fixed(value):
                self.values[name] = value
            else:
                self.values[name] = copied(value)
                self._changeable.append(name)

    def fresh(self) -> dict[str, Any]:
        """A group for one window."""
        made = self.values.copy()
        for name in self._changeable:
            made[name] = copied(made[name])
        return made

    def changed_in(self, group: dict[str, Any]) -> dict[str, Any]:
        """What a step made other than it was."""
        was = self.values
        return {name: value for name, value in group.items() if name != "params" and not (name in was and same(value, was[name]))}


class Kept:
    """What stays here of one parameter's state."""

    __slots__ = ("after", "attributes", "group", "member", "owns", "p", "present", "rest", "updates")

    def __init__(self, p: Param, member: Member) -> None:
        self.p, self.member, self.group = p, member, int(p.group[1:])
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
        if (run.values != self.values + 4 * size or run.grad != self.grad + grad_bytes * size or kept.group != first.group
                or kept.present != first.present or not same(kept.rest, first.rest)):
            return False
        if any(mine is not None and its != mine + 4 * size for mine, its in zip(self.states, run.states)):
            return False
        self.elements += run.elements
        self.shape = torch.Size((self.elements,))
        self.members.append(kept)
        return True

    def taken(self, view: Any, dtype: torch.dtype, factor: float) -> Taken:
        """`view` makes tensors of addresses. The gradient is of `dtype`, and to be multiplied by `factor`."""
        shape, names = self.shape, self.kept.member.facts.states
        values, grad = view(self.values, shape, torch.float32), view(self.grad, shape, dtype)
        states = {name: view(address, shape, torch.float32) for name, address in zip(names, self.states)}
        memory = [self.values, self.grad, *self.states[: len(names)]]
        if dtype is not torch.float32 or factor != 1:
            grad = grad.float() if factor == 1 else grad.float() * factor
            memory.append(grad.untyped_storage().data_ptr())
        return Taken(self.kept, self.members, values, grad, states, memory)


class Taken:
    """A piece as tensors, and the parameter that an optimizer takes it for."""

    __slots__ = ("kept", "members", "memory", "p", "states", "values")

    def __init__(self, kept: Kept, members: list[Kept], values: Tensor, grad: Tensor, states: dict[str, Tensor], memory: Sequence[int]) -> None:
        self.kept, self.members, self.values, self.states, self.memory = kept, members, values, states, memory
        self.p = nn.Parameter(values)
        if kept.attributes:
            vars(self.p).update(kept.attributes)
        self.p.grad = grad


def tensor_at(address: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A tensor over memory on the host."""
    return torch.frombuffer((ctypes.c_char * (shape.numel() * dtype.itemsize)).from_address(address), dtype=dtype).view(shape)


def apart(value: Any, memory: set[int]) -> Any:
    """A value without tensors over windows, whose memory is used for others."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.untyped_storage().data_ptr() in memory else value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(apart(one, memory) for one in value)
    if isinstance(value, dict):
        return {name: apart(one, memory) for name, one in value.items()}
    return value


def stand_in(kept: Kept) -> Taken:
    """One element in place of those that other ranks have."""
    return Taken(kept, [kept], torch.zeros(1), torch.zeros(1), {name: torch.zeros(1) for name in kept.member.facts.states}, ())
