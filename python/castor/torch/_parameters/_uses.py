# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Uses of parameters: which of them have values now, and the tensors that have these values.

A parameter is a name. A use gives it an *alias*: a tensor of its own over the parameter's lease, whose gradient goes to the parameter. The alias is
never given other memory, so whoever keeps it, autograd first of all, keeps the values of that use. Where everything stays on the CPU for good, the
parameter is its own alias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Optional

import torch
from torch import Tensor

from castor import _abi
from castor.torch._autograd._alone import is_watched, unseen
from castor.torch._model import SAMPLE, TRAINING_FORWARD, Owner, Param, Unit
from castor.torch._parameters._params import ChunkedParameter, UsedParameter
from castor.torch._parameters._values import increment_versions

# The same elements with a gradient and a counter of their own: in-place writes of one are not checked against the other's geometry.
_linked: Callable[..., Tensor] = torch.ops.aten._unsafe_view.default


class Uses:
    """Those of one model."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.active: dict[int, Param] = {}  # by address
        self.may_stay = False  # parameters may keep their aliases from their first use to the end of the step, as chunks stay where they are
        self.stays = False  # they do
        self.stays_for_good = False  # beyond the step: chunks are masters themselves, and whatever writes to an alias has written
        self.written_late: Optional[Param] = None  # by ``.data`` in a forward, as it was not in its first
        self._kept: list[Unit] = []  # which keep aliases
        self._further: dict[tuple[int, ...], list[Tensor]] = {}  # of the same chunks, on lease for other streams
        self._on_gpu = runtime.device.follow is not None
        self._samples_every = 16 if self._on_gpu else 1  # forwards: on a GPU the host waits

    # Begin and end.

    def begin(self, unit: Unit, counts: bool) -> None:
        """Makes parameters usable; each is until as many `end` as `begin`. `counts`: a gradient is expected of this use."""
        if is_watched():
            with unseen():
                return self._begin(unit, counts)
        self._begin(unit, counts)

    def _begin(self, unit: Unit, counts: bool) -> None:
        if self.stays and (unit.kept or all(p.kept for p in unit.params)):
            return self.begin_kept(unit, counts)
        for p in unit.params:
            if p.pins:
                return self._begin_rest(unit, counts)
        runtime = self._runtime
        views = runtime.acquire(unit)
        with torch._C.DisableTorchFunctionSubclass():
            for p, view, address in zip(unit.params, views, unit.addresses):
                self._hand_out(p, view, address or 0)
                p.uses += counts
        # An alias that is made in inference mode serves no training.
        if self.stays and (self.stays_for_good or not runtime.evaluating) and not torch.is_inference_mode_enabled():
            stream = runtime.device.current_stream()
            for p in unit.params:
                p.kept = True
                p.streams.add(stream)
            unit.kept = True
            self._kept.append(unit)

    def begin_kept(self, unit: Unit, counts: bool) -> None:
        """The same of a unit whose parameters have kept their aliases."""
        if self._on_gpu:
            device = self._runtime.device
            stream = device.current_stream()
            if any(stream not in p.streams for p in unit.params):
                # A lease of its own has this stream wait, and be waited for.
                views = self._runtime.acquire(unit)
                stream = device.current_stream()
                self._further[(stream, *(p.number for p in unit.params))] = views
                for p in unit.params:
                    p.streams.add(stream)
        values = self._runtime.values
        for p in unit.params:
            if p.pins:
                p.pins += 1
            else:
                alias: Any = p.alias
                alias.__class__ = p.plain
                if alias._version != p.seen:
                    self._keep_write(p)
                if values and values.has(p):
                    p.watched = max(p.watched, 1)  # a copy's alias is to show what a forward writes by .data
                if p.watched > 0:
                    p.digest = self._digest(p)
                p.pins = 1
                if self._runtime.packs and p.elements:
                    self.active[p.where] = p
            p.uses += counts

    def _begin_rest(self, unit: Unit, counts: bool) -> None:
        rest = tuple(p for p in unit.params if not p.pins)
        if rest:
            self.begin(rest[0].unit if len(rest) == 1 else Unit(rest), counts)
        for p in unit.params:
            if p not in rest:
                p.pins += 1
                p.uses += counts

    def _hand_out(self, p: Param, view: Tensor, address: int) -> None:
        """`view`: over its lease."""
        leaf = p.tensor
        if self.stays_for_good:
            leaf.data = view
            alias: Tensor = leaf
        else:
            alias = linked(leaf, view, p.shape)
            vars(alias).update(vars(leaf))
            alias._castor_step = self._runtime.step_number  # type: ignore[attr-defined]
        alias.__class__ = p.plain
        p.alias, p.seen = alias, alias._version
        if self.stays and self._runtime.values.has(p):
            p.watched = max(p.watched, 1)  # as above
        p.pins = 1
        p.where = address
        if p.watched > 0:
            p.digest = self._digest(p)
        if address:
            self.active[address] = p

    def end(self, unit: Unit, own: bool = False) -> None:
        """`own`: at the end of a forward of the unit's module."""
        if is_watched():
            with unseen():
                return self._end(unit, own)
        self._end(unit, own)

    def _end(self, unit: Unit, own: bool) -> None:
        for p in unit.params:
            p.pins -= 1
            if p.pins == 0:
                alias: Any = p.alias
                if alias._version != p.seen or (p.watched > 0 and self._changed(p, own)):
                    self._keep_write(p)
                self._put_away(p, alias)
                if self.active and self.active.get(p.where) is p:
                    del self.active[p.where]

    def _put_away(self, p: Param, alias: Any) -> None:
        if alias is p.tensor:
            if not p.kept:
                alias.data = p.hole
                p.alias = None
            alias.__class__ = ChunkedParameter
            return
        if len(vars(alias)) > len(vars(p.tensor)) + 1:
            vars(p.tensor).update((name, value) for name, value in vars(alias).items() if name != "_castor_step")
        alias.__class__ = UsedParameter
        if not p.kept:
            p.alias = None

    def lend(self, p: Param, values: Tensor) -> None:
        """A use of values in memory of torch's, until `take_back`."""
        with torch._C.DisableTorchFunctionSubclass():
            p.alias = linked(p.tensor, values, p.shape)
            p.alias.__class__ = p.plain
        p.pins += 1

    def take_back(self, p: Param, alias: Optional[Tensor], seen: int) -> Tensor:
        """Ends a use that `lend` began, with the alias that there was before. Returns the values as they are."""
        assert p.alias is not None
        values = p.alias.detach()
        p.alias, p.seen = alias, seen
        p.pins -= 1
        return values

    # Writes inside a use.

    def _keep_write(self, p: Param) -> None:
        alias: Any = p.alias
        if alias._version != p.seen:
            p.version += alias._version - p.seen
            p.seen = alias._version
            if alias is not p.tensor:
                torch.autograd.graph.increment_version(p.tensor)
        self._runtime.values.keep(p, alias.detach())

    def _changed(self, p: Param, own: bool) -> bool:
        """Whether a forward wrote to ``weight.data``, which no counter says. One that does so does it in its first calls, as a rule."""
        changed = self._digest(p) != p.digest
        if changed and p.sample is not None:
            self.written_late = p
        p.watched = 1 << 30 if changed else p.watched - (TRAINING_FORWARD if own and not self._runtime.evaluating else 1)
        p.sample = None
        return changed

    def _digest(self, p: Param) -> int:
        assert p.alias is not None
        values = p.alias.detach()
        return self._runtime.values.digest_of(values if p.sample is None else values.reshape(-1)[p.sample : p.sample + SAMPLE])

    def sample(self) -> None:
        """Has the next use of one parameter looked at, of each in its turn: a forward may begin late to write to ``weight.data``."""
        if self.stays_for_good:
            return
        params, forwards = self._runtime.params, self._runtime.micro_batch
        if forwards % self._samples_every == 0 and params:
            turn, number = divmod(forwards // self._samples_every, len(params))
            p = params[number]
            if p.watched <= 0:
                p.watched = 1
                p.sample = turn * SAMPLE % max(p.elements, 1)

    # Aliases that stay.

    def choose(self) -> None:
        """Whether parameters keep aliases: where every chunk has its home on the device, whole."""
        runtime = self._runtime
        self.stays = self.may_stay and all(
            not p.elements or (p.block is None and runtime.engine.param(p.number).homes[_abi.PARAM] == _abi.DEVICE) for p in runtime.params)

    def let_go(self) -> None:
        """Parameters give back the aliases that they keep to the end of a step."""
        if self._kept and not self.stays_for_good:
            with torch._C.DisableTorchFunctionSubclass():
                for p in self._runtime.params:
                    if p.kept and not p.pins and p.alias is not None and p.alias._version != p.seen:
                        self._keep_write(p)  # torch alone saw that write, and a master is elsewhere
            self.drop()
        self._runtime.flush()

    def keep_none(self) -> None:
        """No parameter keeps an alias any more."""
        self.stays = self.may_stay = False
        self.drop()

    def drop(self) -> None:
        """Castor itself has no tensor over a chunk's memory any more. Parameters may keep aliases anew."""
        kept = [p for p in self._runtime.params if p.kept]
        self.values_change(kept)  # for graphs, which refer to the aliases
        with torch._C.DisableTorchFunctionSubclass():
            for p in kept:
                self._forget(p)
        for unit in self._kept:
            unit.kept = False
        self._kept.clear()
        self._further.clear()
        self._runtime.flush()

    def renew(self, p: Param) -> None:
        """Its next use has another alias: what the present one's gradient is for has changed."""
        if p.kept and p.alias is not p.tensor:
            self._forget(p)
            for unit in self._kept:
                if p in unit.params:
                    unit.kept = False

    @staticmethod
    def _forget(p: Param) -> None:
        p.kept = False
        p.streams.clear()
        if not p.pins:
            if p.alias is p.tensor:
                p.tensor.data = p.hole
            p.alias = None

    def count_write(self, p: Param) -> None:
        """A write that came to the chunk by another way than an alias."""
        p.version += 1
        increment_versions([p.tensor] if p.alias is None or p.alias is p.tensor else [p.tensor, p.alias])
        p.seen += p.alias is not None

    def values_change(self, params: Iterable[Param]) -> None:
        """Counts a change of kept values, as autograd does. Nothing changes frozen ones."""
        changed = [p for p in params if p.alias is not None and (p.alias is p.tensor or not p.frozen)]
        increment_versions([p.alias for p in changed if p.alias is not None])
        for p in changed:
            p.version += 1
            p.seen += 1


def linked(leaf: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """A tensor over these values, whose gradient is the leaf's."""
    if not leaf.requires_grad:
        return values
    if torch.is_grad_enabled():
        alias = _linked(leaf, shape)
    else:
        with torch.enable_grad():  # a forward without gradients may have a part with
            alias = _linked(leaf, shape)
    alias.data = values
    return alias
