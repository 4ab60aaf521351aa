# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Steps of optimizers over windows of chunks.

The engine brings a window of values, gradients and states to where the update runs, and calls here. The optimizer sees tensors over that memory as
its parameters. Every window of a step begins with the numbers from before the step, and all windows have to leave the same ones.
"""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from castor.errors import FailedPrecondition
from castor.torch._model import Owner
from castor.torch._optimizers._bare import State, copied, globals_in, same
from castor.torch._optimizers._rule import Groups
from castor.torch._optimizers._windows import Before, Kept, Member, Piece, Taken, apart, stand_in, tensor_at

_MOST_TENSORS = 4096  # over windows, which stay from step to step: about 5 MB
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class Updates:
    """One step after another, which the members take turns in."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.error: Optional[BaseException] = None  # that ended the last step
        self.counted: set[tuple[int, str]] = set()  # groups, and their numbers that steps change
        self._members = members
        self._runtime: Any = None
        self._kept: dict[int, Kept] = {}  # by the parameter's number
        self._groups: Optional[list[Before]] = None  # within a step
        self._groups_after: dict[int, dict[str, Any]] = {}  # of those that a window of this step had parameters of
        self._groups_idle: dict[int, dict[str, Any]] = {}  # of the others
        self._sent: dict[int, dict[str, float]] = {}
        # Windows come to the same addresses step after step.
        self._tensor_at = functools.lru_cache(maxsize=_MOST_TENSORS)(tensor_at)

    @property
    def within_step(self) -> bool:
        return self._groups is not None

    def bind(self, runtime: Owner, kept: dict[int, Kept]) -> None:
        self._runtime, self._kept = runtime, kept
        runtime.engine.set_update(self._update)

    def begin(self, groups: Groups) -> None:
        if self._groups is not None:
            return
        self.error = None
        before = [Before(group) for group in groups]
        for index, group in enumerate(before):
            # The engine compares what ranks tell it.
            said = zlib.crc32(repr(sorted(group.values.items(), key=str)).encode()) / 2**32
            numbers = {"lr": max(float(group.values.get("lr") or 0.0), 0.0), "weight_decay": said}
            if self._sent.get(index) != numbers:
                self._runtime.engine.set_hyper_parameters(f"g{index}", **numbers)
                self._sent[index] = numbers
        for member in self._members:
            member.before, member.moved = member.bare.numbers(), False
        if self._runtime.engine.several:
            for number, kept in self._kept.items():
                kept.updates = self._runtime.engine.param(number).updates
        self._groups = before

    def end(self, groups: Groups, applied: bool) -> None:
        if self._groups is None:
            return
        try:
            if applied:
                if self._runtime.engine.several:
                    self._count_others()
                for member in self._members:
                    if member.after is None:
                        self._step(member, [])  # its groups count, though no gradient has come
                self._commit(groups)
            else:
                for member in self._members:
                    member.bare.restore(member.before)
        finally:
            self._groups = None
            self._groups_after.clear()
            self._groups_idle.clear()
            for member in self._members:
                member.after = None
            for kept in self._kept.values():
                kept.after = None

    def _commit(self, groups: Groups) -> None:
        for index, numbers in (self._groups_idle | self._groups_after).items():
            groups[index].update(numbers)
            self.counted.update((index, name) for name in numbers)
        for member in self._members:
            if member.after is not None:
                numbers, member.of_all = member.after
                member.counted.update(name for name, value in numbers.items() if not same(value, member.before.get(name)))
                if member.moved:
                    member.bare.set_numbers(numbers)
        for kept in self._kept.values():
            if kept.after is not None:
                kept.present, kept.rest = kept.after

    def _count_others(self) -> None:
        """Parameters whose elements other ranks have updated: their counts go on here, too."""
        others: dict[Member, list[Taken]] = defaultdict(list)
        for number, kept in self._kept.items():
            if kept.after is None and kept.p.elements and self._runtime.engine.param(number).updates > kept.updates:
                if kept.member.facts.whole:
                    kept.owns, kept.rest = False, None
                else:
                    others[kept.member].append(stand_in(kept))
        for member, pieces in others.items():
            self._step(member, pieces)

    def _update(self, update: Any) -> None:
        """One call of the engine's, on a thread of its own, which inherits no mode of torch's."""
        try:
            with torch.enable_grad():
                if not update.on_device:
                    self._take(update, self._host_view)
                    return
                device = self._runtime.device
                with device.on_own_stream(update.stream or 0):
                    self._take(update, device.view_at)
        except BaseException as error:
            self.error = error
            raise

    def _host_view(self, address: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return self._tensor_at(address, shape, dtype).detach()

    def _take(self, update: Any, view: Any) -> None:
        dtype = _DTYPES[update.grad_dtype.decode()]
        pieces: dict[Member, list[Piece]] = {}
        for run in update.runs[: update.run_count]:
            kept = self._kept[run.param]
            found = pieces.setdefault(kept.member, [])
            if kept.member.facts.whole or not found or not found[-1].take(kept, run, dtype.itemsize):
                found.append(Piece(kept, run))
        for member, found in pieces.items():
            self._step(member, [piece.taken(view, dtype, update.grad_factor) for piece in found])

    def _step(self, member: Member, pieces: list[Taken]) -> None:
        assert self._groups is not None
        of_group: dict[int, list[nn.Parameter]] = {}
        state: State = defaultdict(dict)
        if member.of_all:
            state.update((name, copied(value)) for name, value in member.of_all.items())
        for piece in pieces:
            of_group.setdefault(piece.kept.group, []).append(piece.p)
            if piece.kept.rest is not None:
                mine = state[piece.p] = {name: piece.states[name] for name in piece.kept.present}
                for name, value in piece.kept.rest.items():
                    mine[name] = copied(value)
        # All of its groups, as the optimizer knows them.
        groups = []
        for place, index in enumerate(member.groups):
            group = self._groups[index].fresh()
            group["params"] = of_group.get(index) or member.placeholders(place)
            groups.append(group)
        if member.moved:
            member.bare.restore(member.before)
        member.moved = True  # should the step fail
        member.moved = member.bare.step(groups, state)
        self._note(member, groups, of_group, state)
        memory = {address for piece in pieces for address in piece.memory}
        for piece in pieces:
            self._take_back(piece, state.get(piece.p), memory)

    def _note(self, member: Member, groups: Groups, of_group: dict[int, list[nn.Parameter]], state: State) -> None:
        """What the step left of numbers, which is the same for every window."""
        assert self._groups is not None
        alike = True
        for index, group in zip(member.groups, groups):
            after = self._groups[index].changed_in(group)
            noted = self._groups_after if index in of_group else self._groups_idle
            alike &= same(noted.setdefault(index, after), after)
        numbers = member.bare.numbers() if member.moved else member.before
        of_all = globals_in(state)
        if member.after is None:
            member.after = (numbers, of_all)
        numbers_then, of_all_then = member.after
        alike &= (numbers is numbers_then or same(numbers, numbers_then)) and same(of_all, of_all_then)
        if not alike:
            raise FailedPrecondition(f"{member.bare.name} changes its own or its groups' numbers by the values of some parameters, and Castor brings them in windows: "
                                     "give castor.wrap an optimizer whose numbers do not depend on values")

    def _take_back(self, piece: Taken, left: Optional[dict[str, Any]], memory: set[int]) -> None:
        """What the optimizer left elsewhere goes to its place, all at once: some of it may lie in another's place."""
        p, kept = piece.p, piece.kept
        moved: list[tuple[Tensor, Tensor]] = []
        present, rest = set(), {}
        if p.data_ptr() != piece.values.data_ptr():
            moved.append((piece.values, apart(p.detach(), memory)))
        for name, value in ({} if left is None else left).items():
            place = piece.states.get(name)
            if place is not None and isinstance(value, Tensor) and value.shape == p.shape:
                present.add(name)
                if value.data_ptr() != place.data_ptr():
                    moved.append((place, apart(value, memory)))
                continue
            if place is None and isinstance(value, Tensor) and value.shape == p.shape and value.numel() > 1 and not kept.member.facts.whole:
                raise FailedPrecondition(f"{kept.member.bare.name} has begun to keep a state {name}, which it did not in its first steps: "
                                         "give castor.wrap an optimizer that keeps the same states from the start")
            rest[name] = apart(value, memory)
        for place, value in moved:
            place.copy_(value)
        after = (frozenset(present), None if left is None else rest)
        for one in piece.members:
            if one.after is None:
                one.after = after
            elif one.after[0] != after[0] or not same(one.after[1], after[1]):
                raise FailedPrecondition(f"{kept.member.bare.name} leaves parts of {one.p.name} with different numbers: "
                                         "give castor.wrap an optimizer whose counts do not depend on values")
