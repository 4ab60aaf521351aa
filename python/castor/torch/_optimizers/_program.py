# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Any optimizer of torch's kind, whose own code updates parameters window by window.

The engine brings a window of values, gradients and states to where the update runs, and calls here. The optimizer sees tensors over that memory as
its parameters. Every window of a step begins with the numbers from before the step, and all windows have to leave the same ones. What a state holds
beside tensors of the parameter's shape, a count of steps, say, stays here.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castor import _abi
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._model import Owner, Param, read
from castor.torch._optimizers._bare import Bare, State, copied, same
from castor.torch._optimizers._facts import Facts, facts_of
from castor.torch._optimizers._rule import Groups

_MOST_STATES = 8
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class _Member:
    """One of the optimizers, which has a run of the groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, first_group: int) -> None:
        self.bare = Bare(optimizer)
        self.facts: Facts = facts_of(optimizer)
        self.first_group = first_group
        self.before: dict[str, Any] = {}  # its numbers when the step began
        self.after: Optional[dict[str, Any]] = None  # once a window has been


class _Kept:
    """What stays here of one parameter's state."""

    __slots__ = ("after", "member", "owns", "p", "present", "rest", "updates")

    def __init__(self, p: Param, member: _Member) -> None:
        self.p, self.member = p, member
        self.present: frozenset[str] = frozenset()  # names of its states in chunks
        self.rest: Optional[dict[str, Any]] = None  # None: no step yet
        self.owns = True  # what is here is true; another rank updates it else
        self.updates = 0  # the engine's count of them, where several ranks have parts
        self.after: Optional[tuple[frozenset[str], dict[str, Any]]] = None  # both, once a window of this step has been


class _Piece:
    """What an optimizer takes for one parameter: runs of the same kind that lie behind each other."""

    __slots__ = ("elements", "grad", "kept", "members", "states", "values")

    def __init__(self, kept: _Kept, run: Any) -> None:
        self.kept, self.members = kept, [kept]
        self.elements, self.values, self.grad = run.elements, run.values, run.grad
        self.states = run.states[: _MOST_STATES]

    def take(self, kept: _Kept, run: Any, grad_bytes: int) -> bool:
        """Whether the run lies behind this one, with the same numbers."""
        size = self.elements
        first = self.kept
        if (run.values != self.values + 4 * size or run.grad != self.grad + grad_bytes * size or kept.p.group != first.p.group
                or kept.present != first.present or not same(kept.rest, first.rest)):
            return False
        if any(mine is not None and its != mine + 4 * size for mine, its in zip(self.states, run.states)):
            return False
        self.elements += run.elements
        self.members.append(kept)
        return True


class Program:
    """The update is the optimizers' own code."""

    kind = "custom"

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._members: list[_Member] = []
        self._of_group: list[_Member] = []
        for optimizer in optimizers:
            member = _Member(optimizer, len(self._of_group))
            self._members.append(member)
            self._of_group += [member] * len(optimizer.param_groups)
        self.states = self._names()
        self.other_bytes = sum(member.facts.other_bytes for member in self._members)
        self.error: Optional[BaseException] = None
        self._rates = [float(group["lr"]) if "lr" in group else 0.0 for optimizer in optimizers for group in optimizer.param_groups]
        self._runtime: Any = None
        self._kept: dict[int, _Kept] = {}  # by the parameter's number
        self._groups: Optional[Groups] = None  # as they were when the step began
        self._groups_after: dict[int, dict[str, Any]] = {}  # once a window has been
        self._sent: dict[int, dict[str, float]] = {}

    def _names(self) -> tuple[str, ...]:
        """Of places for states: the first of each optimizer has the first place, and so on."""
        names: list[str] = []
        for place in range(max(len(member.facts.states) for member in self._members)):
            words = {member.facts.states[place]: None for member in self._members if place < len(member.facts.states)}
            names.append("_or_".join(words))
        if len(names) > _MOST_STATES:
            raise InvalidArgument(f"{self._members[0].bare.name} keeps {len(names)} states of a parameter's shape, and there may be {_MOST_STATES}: "
                                  "give castor.wrap an optimizer with fewer")
        return tuple(names)

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "states": [{"name": name} for name in self.states]}

    def groups(self) -> Groups:
        spans = ["parameter" if member.facts.whole else "elements" for member in self._of_group]
        return [{"name": f"g{index}", "lr": max(rate, 0.0), "span": span} for index, (rate, span) in enumerate(zip(self._rates, spans))]

    def bind(self, runtime: Owner) -> None:
        self._runtime = runtime
        for p in runtime.params:
            if not p.frozen:
                self._kept[p.number] = _Kept(p, self._of_group[int(p.group[1:])])
        runtime.engine.set_update(self._update)

    # Steps.

    def begin(self, groups: Groups) -> None:
        if self._groups is not None:
            return
        self.error = None
        snapshot = [{name: copied(value) for name, value in group.items() if name != "params"} for group in groups]
        for index, group in enumerate(snapshot):
            # The engine compares what ranks tell it.
            numbers = {"lr": max(float(group.get("lr", 0.0)), 0.0), "weight_decay": zlib.crc32(repr(sorted(group.items(), key=str)).encode()) / 2**32}
            if self._sent.get(index) != numbers:
                self._runtime.engine.set_hyper_parameters(f"g{index}", **numbers)
                self._sent[index] = numbers
        for member in self._members:
            member.before = member.bare.numbers()
        self._groups = snapshot

    def end(self, groups: Groups, applied: bool) -> None:
        try:
            if applied and self._groups is not None:
                if self._runtime.several:
                    self._count_others()
                self._commit(groups)
            else:
                for member in self._members:
                    member.bare.set_numbers(member.before)
        finally:
            self._groups = None
            self._groups_after.clear()
            for member in self._members:
                member.after = None
            for kept in self._kept.values():
                kept.after = None

    def _commit(self, groups: Groups) -> None:
        for index, numbers in self._groups_after.items():
            groups[index].update(numbers)
        for member in self._members:
            member.bare.set_numbers(member.before if member.after is None else member.after)
        for kept in self._kept.values():
            if kept.after is not None:
                kept.present, kept.rest = kept.after

    def _count_others(self) -> None:
        """Parameters whose elements other ranks have updated: their counts go on here, too."""
        others: dict[_Member, list[Any]] = defaultdict(list)
        for number, kept in self._kept.items():
            updates = self._runtime.engine.param(number).updates
            if kept.after is None and kept.p.elements and updates > kept.updates:
                if kept.member.facts.whole:
                    kept.owns, kept.rest = False, None
                else:
                    others[kept.member].append((_stand_in(kept), kept, [kept]))
            kept.updates = updates
        for member, pieces in others.items():
            self._step(member, pieces)

    def _update(self, update: Any) -> None:
        """One call of the engine's, on a thread of its own."""
        try:
            with self._where(update), torch.enable_grad():
                self._update_runs(update)
        except BaseException as error:
            self.error = error
            raise

    @contextlib.contextmanager
    def _where(self, update: Any) -> Iterator[None]:
        if not update.on_device:
            yield
            return
        with self._runtime.device.on_stream(update.stream or 0):
            yield

    def _update_runs(self, update: Any) -> None:
        dtype = _DTYPES[update.grad_dtype.decode()]
        pieces: dict[_Member, list[_Piece]] = defaultdict(list)
        for run in update.runs[: update.run_count]:
            kept = self._kept[run.param]
            found = pieces[kept.member]
            if kept.member.facts.whole or not found or not found[-1].take(kept, run, dtype.itemsize):
                found.append(_Piece(kept, run))
        view = self._runtime.device.view_at if update.on_device else _floats_at
        for member, found in pieces.items():
            self._step(member, [(self._tensors(piece, view, dtype, update.grad_factor), piece.kept, piece.members) for piece in found])

    def _tensors(self, piece: _Piece, view: Any, dtype: torch.dtype, factor: float) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        shape = piece.kept.p.shape if piece.kept.member.facts.whole else (piece.elements,)
        values = view(piece.values, piece.elements, torch.float32).view(shape)
        grad = view(piece.grad, piece.elements, dtype).view(shape)
        if dtype is not torch.float32:
            grad = grad.float()
        if factor != 1:
            grad = grad * factor
        names = piece.kept.member.facts.states
        return values, grad, {name: view(piece.states[place], piece.elements, torch.float32).view(shape) for place, name in enumerate(names)}

    def _step(self, member: _Member, pieces: list[tuple[tuple[Tensor, Tensor, dict[str, Tensor]], _Kept, list[_Kept]]]) -> None:
        assert self._groups is not None
        params: list[nn.Parameter] = []
        of_group: dict[int, list[nn.Parameter]] = defaultdict(list)
        state: State = defaultdict(dict)
        for (values, grad, states), kept, _ in pieces:
            p = nn.Parameter(values)
            p.grad = grad
            params.append(p)
            of_group[int(kept.p.group[1:])].append(p)
            if kept.rest is not None:
                state[p] = {**{name: states[name] for name in kept.present}, **{name: copied(value) for name, value in kept.rest.items()}}
        groups = []
        for index in range(member.first_group, member.first_group + self._of_group.count(member)):
            if index in of_group:
                groups.append({**{name: copied(value) for name, value in self._groups[index].items()}, "params": of_group[index]})
        member.bare.set_numbers(member.before)
        member.bare.step(groups, state)
        self._note(member, groups, sorted(of_group))
        for p, ((values, _, states), kept, members) in zip(params, pieces):
            self._take_back(p, values, states, state[p], kept, members)

    def _note(self, member: _Member, groups: Groups, numbers: list[int]) -> None:
        """What the step left of numbers, which is the same for every window."""
        assert self._groups is not None
        for index, group in zip(numbers, groups):
            before = self._groups[index]
            after = {name: value for name, value in group.items() if name != "params" and not (name in before and same(value, before[name]))}
            if not same(self._groups_after.setdefault(index, after), after):
                raise FailedPrecondition(f"{member.bare.name} changes its group {index} by the values of some parameters, and Castor brings them in windows: "
                                         "give castor.wrap an optimizer whose groups' numbers do not depend on values")
        left = member.bare.numbers()
        if member.after is None:
            member.after = left

    def _take_back(self, p: nn.Parameter, values: Tensor, states: dict[str, Tensor], left: dict[str, Any], kept: _Kept, members: list[_Kept]) -> None:
        with torch.no_grad():
            if p.data_ptr() != values.data_ptr():
                values.copy_(p)
            present, rest = set(), {}
            for name, value in left.items():
                place = states.get(name)
                if place is None:
                    if isinstance(value, Tensor) and value.shape == p.shape and value.numel() > 1 and not kept.member.facts.whole:
                        raise FailedPrecondition(f"{kept.member.bare.name} has begun to keep a state {name}, which it did not in its first steps: "
                                                 "give castor.wrap an optimizer that keeps the same states from the start")
                    rest[name] = value
                elif isinstance(value, Tensor):
                    present.add(name)
                    if value.data_ptr() != place.data_ptr():
                        place.copy_(value)
                else:
                    rest[name] = value  # None, as a rule: there is no such state
        after = (frozenset(present), rest)
        for one in members:
            if one.after is None:
                one.after = after
            elif one.after[0] != after[0] or not same(one.after[1], after[1]):
                raise FailedPrecondition(f"{kept.member.bare.name} leaves parts of {one.p.name} with different numbers: "
                                         "give castor.wrap an optimizer whose counts do not depend on values")

    # States.

    def _told(self, wanted: Iterable[_Kept]) -> dict[int, tuple[frozenset[str], Optional[dict[str, Any]]]]:
        """By the parameter's number, what its owner has of it. All ranks call it."""
        mine = {kept.p.number: (kept.present, kept.rest) for kept in wanted if kept.owns}
        if not self._runtime.several or not any(member.facts.whole for member in self._members):
            return mine
        told: list[Any] = [None] * self._runtime.engine.world.size
        dist.all_gather_object(told, {number: said for number, said in mine.items() if self._kept[number].member.facts.whole})
        for of_rank in told:
            mine.update(of_rank)
        return mine

    def state_of(self, p: Param, groups: Groups) -> dict[str, Any]:
        kept = self._kept[p.number]
        present, rest = self._told([kept])[p.number]
        if rest is None:
            return {}
        state: dict[str, Any] = {name: copied(value) for name, value in rest.items()}
        for place, name in enumerate(kept.member.facts.states):
            if name in present:
                state[name] = torch.empty(p.shape, device="cpu")
                self._runtime.engine.read(p.number, _abi.OPTIMIZER_STATE + place, state[name].data_ptr(), p.elements)
        return state

    def take_state(self, p: Param, state: dict[str, Any]) -> None:
        kept = self._kept[p.number]
        present, rest = set(), {}
        for name, value in state.items():
            if name in kept.member.facts.states and isinstance(value, Tensor):
                values = value.detach().to("cpu", torch.float32).contiguous()
                place = kept.member.facts.states.index(name)
                self._runtime.engine.write(p.number, _abi.OPTIMIZER_STATE + place, values.data_ptr(), p.elements)
                present.add(name)
            else:
                rest[name] = copied(value)
        kept.present, kept.rest, kept.owns = frozenset(present), rest, True
        self._runtime.engine.set_updates(p.number, max(int(state.get("step", 1)), 0))

    def has(self, word: str) -> bool:
        return any(callable(getattr(member.bare.optimizer, word, None)) for member in self._members)

    def call(self, word: str, groups: Groups) -> None:
        after: dict[int, dict[str, Any]] = {}
        for kept in self._kept.values():
            method = getattr(kept.member.bare.optimizer, word, None)
            if not callable(method):
                continue
            index = int(kept.p.group[1:])
            values, state = read(kept.p), self.state_of(kept.p, groups)
            p = nn.Parameter(values.clone())
            group = {name: copied(value) for name, value in groups[index].items() if name != "params"}
            kept.member.bare.put([{**group, "params": [p]}], defaultdict(dict, {p: state}))
            method()
            left = kept.member.bare.optimizer.param_groups[0]
            after[index] = {name: value for name, value in left.items() if name != "params"}
            if not same(p.detach(), values):
                kept.p.write(p)
            if state:
                self.take_state(kept.p, state | {"step": state.get("step", self._runtime.engine.param(kept.p.number).updates)})
        for index, numbers in after.items():
            groups[index].update(numbers)

    def rest(self) -> Any:
        """By the parameters' names, and each optimizer's own numbers."""
        told = self._told(self._kept.values())
        return {
            "params": {self._kept[number].p.name: (sorted(present), rest) for number, (present, rest) in told.items() if rest is not None},
            "optimizers": [member.bare.numbers() for member in self._members],
        }

    def take_rest(self, rest: Any) -> None:
        if rest is None:
            raise InvalidArgument("the checkpoint is of another kind of optimizer: load it with weights_only=True")
        for kept in self._kept.values():
            present, numbers = rest["params"].get(kept.p.name, ((), None))
            kept.present, kept.rest, kept.owns = frozenset(present), numbers, True
        for member, numbers in zip(self._members, rest["optimizers"]):
            member.bare.set_numbers(numbers)


def _floats_at(address: int, count: int, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer((_abi.c_float * count).from_address(address), dtype=dtype)


def _stand_in(kept: _Kept) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """One element in place of those that other ranks have."""
    return torch.zeros(1), torch.zeros(1), {name: torch.zeros(1) for name in kept.member.facts.states}
