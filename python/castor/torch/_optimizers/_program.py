# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Any optimizer of torch's kind, whose own code updates parameters window by window (_updates.py).

States of a parameter's shape are in chunks. What else a state holds, a count of steps, say, stays here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castor import _abi
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._model import Owner, Param, read
from castor.torch._optimizers._bare import copied, same
from castor.torch._optimizers._rule import Groups
from castor.torch._optimizers._updates import Updates
from castor.torch._optimizers._windows import MOST_STATES, Kept, Member

# Names that the engine has itself, and words that its documents have beside states.
_TAKEN = ("param", "grad", "master", "all", "budget", "communicator", "gathered", "home", "in_use", "kept", "leases", "norm", "peak", "prefetch", "rounding",
          "staging")
_MOST = 1 << 18  # elements of a call on the host, but for a larger parameter that stays whole
_MOST_ON_DEVICE = 1 << 24  # the same on a GPU


class Program:
    """The update is the optimizers' own code."""

    kind = "custom"

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._members: list[Member] = []
        self._of_group: list[Member] = []
        for optimizer in optimizers:
            member = Member(optimizer, len(self._of_group))
            self._members.append(member)
            self._of_group += [member] * len(optimizer.param_groups)
        self.states = self._names()
        self.other_bytes = sum(member.facts.other_bytes for member in self._members)
        # The members take turns. What their states hold beside chunks is there twice until the step ends.
        self.update_bytes = max(member.facts.update_bytes(_MOST) for member in self._members) + self.other_bytes
        self.device_update_bytes = max(member.facts.update_bytes(_MOST_ON_DEVICE) for member in self._members) + self.other_bytes
        self._groups_first = [{name: copied(value) for name, value in group.items() if name != "params"}
                              for optimizer in optimizers for group in optimizer.param_groups]
        self._rates = [float(group.get("lr") or 0.0) for optimizer in optimizers for group in optimizer.param_groups]
        self._runtime: Any = None
        self._lists_first = False
        self._kept: dict[int, Kept] = {}  # by the parameter's number
        self._updates = Updates(self._members)

    def _names(self) -> tuple[str, ...]:
        """Of places for states: the first of each optimizer has the first place, and so on."""
        names: list[str] = []
        for place in range(max(len(member.facts.states) for member in self._members)):
            words = {str(member.facts.states[place]): None for member in self._members if place < len(member.facts.states)}
            name = re.sub(r"[^0-9A-Za-z_]", "_", "_or_".join(words))[:56] or "state"
            while name in (*_TAKEN, *names):
                name += "_"
            names.append(name)
        if len(names) > MOST_STATES:
            raise InvalidArgument(f"{self._members[0].bare.name} keeps {len(names)} states of a parameter's shape, and there may be {MOST_STATES}: "
                                  "give castor.wrap an optimizer with fewer")
        return tuple(names)

    def regrouped(self, groups: Groups, before: Groups) -> Program:
        if len(self._members) > 1:
            raise FailedPrecondition("several optimizers were given to castor.wrap, and nothing says whose groups these are: thaw parameters, and put them into "
                                     "groups, before castor.wrap")
        (member,) = self._members
        member.bare.put(groups, defaultdict(dict, member.of_all))
        try:
            made = Program([member.bare.optimizer])
        finally:
            member.bare.put([], defaultdict(dict))
        if made.states != self.states:
            raise FailedPrecondition(f"{member.bare.name} would keep other states of the groups than before ({', '.join(made.states)} instead of "
                                     f"{', '.join(self.states)}): put them into it before castor.wrap")
        made._members[0].first = member.first
        made._lists_first = self._lists_first
        first = {id(group): numbers for group, numbers in zip(before, self._groups_first)}
        made._groups_first = [first.get(id(group), numbers) for group, numbers in zip(groups, made._groups_first)]
        return made

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "states": [{"name": name} for name in self.states]}

    def groups(self) -> Groups:
        groups: Groups = []
        for index, (rate, member) in enumerate(zip(self._rates, self._of_group)):
            groups.append({"name": f"g{index}", "lr": max(rate, 0.0), "span": "parameter" if member.facts.whole else "elements"})
            if len(member.facts.states) < len(self.states):
                groups[-1]["states"] = len(member.facts.states)
        return groups

    def bind(self, runtime: Owner) -> None:
        self._runtime = runtime
        for p in runtime.params:
            if not p.frozen:
                self._kept[p.number] = Kept(p, self._of_group[int(p.group[1:])])
        self._updates.bind(runtime, self._kept)

    # Steps.

    def begin(self, groups: Groups) -> None:
        self._updates.begin(groups)

    def end(self, groups: Groups, applied: bool) -> None:
        self._updates.end(groups, applied)

    def idle(self, groups: Groups) -> None:
        self._updates.begin(groups)
        self._updates.end(groups, True)

    @property
    def error(self) -> Optional[BaseException]:
        return self._updates.error

    def set_number(self, name: str, value: Any) -> bool:
        there = [member.bare for member in self._members if name in vars(member.bare.optimizer)]
        if there and self._updates.within_step:
            raise FailedPrecondition(f"{name} of the optimizer is set within a step that update_in_backward=True has begun: set it before the backward")
        for bare in there:
            bare.set_numbers({name: value})
        return bool(there)

    # States.

    def _told(self, wanted: Iterable[Kept]) -> dict[int, tuple[frozenset[str], Optional[dict[str, Any]]]]:
        """By the parameter's number, what its owner has of it. All ranks call it."""
        mine = {kept.p.number: (kept.present, kept.rest) for kept in wanted if kept.owns}
        if not self._runtime.engine.several or not any(member.facts.whole for member in self._members):
            return mine
        told: list[Any] = [None] * self._runtime.engine.world.size
        dist.all_gather_object(told, {number: said for number, said in mine.items() if self._kept[number].member.facts.whole})
        for of_rank in told:
            mine.update(of_rank)
        return mine

    def state_of(self, p: Param, groups: Groups) -> Optional[dict[str, Any]]:
        kept = self._kept[p.number]
        present, rest = self._told([kept])[p.number]
        if rest is None:
            return self._first_state(kept, groups) if self._lists_first else None
        state: dict[str, Any] = {name: copied(value) for name, value in rest.items()}
        for place, name in enumerate(kept.member.facts.states):
            if name in present:
                state[name] = torch.empty(p.shape, device="cpu")
                self._runtime.engine.read(p.number, _abi.OPTIMIZER_STATE + place, state[name].data_ptr(), p.elements)
        return state

    def has_state(self, p: Param) -> bool:
        # Some have states before their first step.
        return self._runtime.engine.param(p.number).updates > 0 or self._kept[p.number].rest is not None

    def list_first(self) -> None:
        self._lists_first = True

    def _first_state(self, kept: Kept, groups: Groups) -> dict[str, Any]:
        """As torch.distributed.checkpoint has a plain optimizer make it: by a step whose gradients and rate are zero."""
        bare = kept.member.bare
        numbers = bare.numbers()
        p = nn.Parameter(torch.zeros(kept.p.shape, device="cpu"))
        p.grad = torch.zeros_like(p)
        group = {name: copied(value) for name, value in groups[kept.group].items() if name != "params"}
        state: defaultdict[Any, Any] = defaultdict(dict)
        bare.step([{**group, "params": [p]} | ({"lr": 0.0} if "lr" in group else {})], state)
        bare.restore(numbers)
        bare.put([], defaultdict(dict))
        return dict(state[p])

    def take_state(self, p: Param, state: dict[str, Any], updates: Optional[int] = None) -> None:
        kept = self._kept[p.number]
        if updates is None:
            updates = int(state.get("step", bool(state)))
        present, rest = set(), {}
        for name, value in state.items():
            if name in kept.member.facts.states and isinstance(value, Tensor) and value.shape == p.shape:
                values = value.detach().to("cpu", torch.float32).contiguous()
                place = kept.member.facts.states.index(name)
                self._runtime.engine.write(p.number, _abi.OPTIMIZER_STATE + place, values.data_ptr(), p.elements)
                present.add(name)
            else:
                rest[name] = copied(value)
        kept.present, kept.rest, kept.owns = frozenset(present), rest, True
        self._runtime.engine.set_updates(p.number, max(updates, 0))

    def forget(self, p: Param) -> None:
        kept = self._kept[p.number]
        kept.present, kept.rest, kept.owns = frozenset(), None, True
        self._runtime.engine.set_updates(p.number, 0)

    def begin_anew(self, groups: Groups) -> None:
        for kept in self._kept.values():
            kept.present, kept.rest, kept.owns = frozenset(), None, True
        for member in self._members:
            numbers, of_all = member.first
            member.bare.set_numbers({name: numbers[name] for name in member.counted if name in numbers})
            member.of_all = {name: copied(value) for name, value in of_all.items()}
        for index, name in self._updates.counted:
            if name in self._groups_first[index]:
                groups[index][name] = copied(self._groups_first[index][name])
            else:
                groups[index].pop(name, None)

    def of_all(self) -> dict[Any, Any]:
        return {name: copied(value) for member in self._members for name, value in member.of_all.items()}

    def take_of_all(self, entries: dict[Any, Any]) -> None:
        for member in self._members:
            member.of_all = {name: copied(entries[name]) for name in (member.of_all or entries) if name in entries}

    def to_own_form(self, state_dict: dict[str, Any], params: Sequence[Param]) -> dict[str, Any]:
        """Of several, each that has a form of its own has all of it under ``own``."""
        if self._runtime.engine.world.rank != 0:
            return state_dict  # which has no states
        own: dict[int, dict[str, Any]] = {}
        rest = dict(state_dict["state"])
        for index, member in enumerate(self._members):
            if not member.bare.has_own_form:
                continue
            groups, numbers = self._groups_of(member, state_dict["param_groups"])
            state = {number: rest.pop(number) for number in numbers if number in rest}
            state.update({name: state_dict["state"][name] for name in member.of_all if name in state_dict["state"]})
            own[index] = member.bare.to_own_form({"state": state, "param_groups": groups}, self._stand_ins(member, numbers, params))
        if len(self._members) == 1:
            return own.get(0, state_dict)
        return {**state_dict, "state": rest, "own": own} if own else state_dict

    def from_own_form(self, state_dict: dict[str, Any], groups: Groups, params: Sequence[Param]) -> dict[str, Any]:
        own = {0: state_dict} if len(self._members) == 1 else state_dict.get("own", {})
        if not any(member.bare.has_own_form for member in self._members):
            return state_dict
        made: dict[str, Any] = {"state": {}, "param_groups": []} if len(self._members) == 1 else {
            "state": dict(state_dict["state"]), "param_groups": list(state_dict["param_groups"])}
        for index, member in enumerate(self._members):
            if index in own and member.bare.has_own_form:
                its_groups, numbers = self._groups_of(member, groups)
                taken = member.bare.from_own_form(own[index], its_groups, self._stand_ins(member, numbers, params))
                made["state"].update(taken["state"])
                made["param_groups"][member.groups.start : member.groups.stop] = taken["param_groups"]
        return made

    @staticmethod
    def _groups_of(member: Member, groups: Groups) -> tuple[Groups, list[int]]:
        """Its own, and the numbers of their parameters."""
        its = [groups[index] for index in member.groups]
        return its, [number for group in its for number in group["params"]]

    def _stand_ins(self, member: Member, numbers: Iterable[int], params: Sequence[Param]) -> dict[int, Tensor]:
        made = {}
        for number in numbers:
            kept = self._kept.get(params[number].number)  # of a frozen one there is none
            made[number] = member.bare.stand_in(params[number].shape, {} if kept is None else kept.attributes)
        return made

    def has(self, word: str) -> bool:
        return any(callable(getattr(member.bare.optimizer, word, None)) for member in self._members)

    def call(self, word: str, groups: Groups) -> None:
        after: dict[int, dict[str, Any]] = {}
        before = [member.bare.numbers() for member in self._members]
        for kept in self._kept.values():
            method = getattr(kept.member.bare.optimizer, word, None)
            if not callable(method):
                continue
            index = kept.group
            values, state = read(kept.p), self.state_of(kept.p, groups) or {}
            p = nn.Parameter(values.clone())
            group = {name: copied(value) for name, value in groups[index].items() if name != "params"}
            kept.member.bare.set_numbers(before[self._members.index(kept.member)])
            kept.member.bare.put([{**group, "params": [p]}], defaultdict(dict, {p: state} if state else {}))
            method()
            left = kept.member.bare.optimizer.param_groups[0]
            after[index] = {name: value for name, value in left.items() if name != "params"}
            if not same(p.detach(), values):
                kept.p.write(p)
            if state:
                self.take_state(kept.p, state, self._runtime.engine.param(kept.p.number).updates)
            kept.member.bare.put([], defaultdict(dict))
        for index, numbers in after.items():
            groups[index].update(numbers)

    def loaded(self) -> None:
        """Numbers of groups are the optimizer's own."""

    def rest(self) -> Any:
        """By the parameters' names, and each optimizer's own numbers."""
        told = self._told(self._kept.values())
        return {
            "params": {self._kept[number].p.name: (sorted(present, key=repr), rest) for number, (present, rest) in told.items() if rest is not None},
            "kinds": [member.bare.name for member in self._members],
            "optimizers": [(member.bare.numbers(), member.of_all) for member in self._members],
        }

    def check_rest(self, rest: Any) -> None:
        if rest is None:
            raise InvalidArgument("the checkpoint is of another kind of optimizer: load it with weights_only=True")
        kinds = [member.bare.name for member in self._members]
        if rest["kinds"] != kinds:
            raise InvalidArgument(f"the checkpoint is of {' and '.join(rest['kinds'])}, and the optimizer is {' and '.join(kinds)}, whose states mean something "
                                  "else: load it with weights_only=True")

    def take_rest(self, rest: Any) -> None:
        for kept in self._kept.values():
            present, numbers = rest["params"].get(kept.p.name, ((), None))
            kept.present, kept.rest, kept.owns = frozenset(present), numbers, True
        for member, (numbers, of_all) in zip(self._members, rest["optimizers"]):
            member.bare.set_numbers(numbers)
            member.of_all = of_all
