# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Uses of parameters: which of them have values now, and the tensors that have these values.

A parameter is a name. A use gives it an *alias*: a tensor of its own over the parameter's lease, whose gradient goes to the parameter. The alias is
never given other memory, so whoever keeps it, autograd first of all, keeps the values of that use.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from castor import _abi
from castor._interrupts import whole
from castor.errors import CastorError, FailedPrecondition
from castor.torch._autograd._alone import WATCHERS, unseen
from castor.torch._autograd._compile import uncompiled
from castor.torch._model import SAMPLE, TRAINING_FORWARD, Owner, Param, Unit
from castor.torch._parameters._params import UsedParameter
from castor.torch._torch_internals import increment_versions, plain_functions, same_memory, set_grad_enabled, views_unnoted

_MANY = 1 << 14  # aliases


class Uses:
    """Those of one model."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self._leases, self._forwards = runtime.leases, runtime.forwards
        self._views_unnoted = views_unnoted()
        self.active: dict[int, Param] = {}  # by address
        self.may_stay = False  # parameters may keep views of chunks that stay where they are, from their first use to the end of the step
        self.stays = False  # they do
        self.written_late: Optional[Param] = None  # by ``.data`` in a forward, as it was not in its first
        self._kept: list[Unit] = []  # which keep views
        self._handed: list[weakref.ref[Tensor]] = []  # aliases of kept views that graphs of this step may have
        self._many = _MANY
        self._further: dict[tuple[int, ...], list[Tensor]] = {}  # of the same chunks, on lease for other streams
        self._on_gpu = runtime.device.follow is not None
        self._samples_every = 16 if self._on_gpu else 1  # forwards: on a GPU the host waits

    # Begin and end.

    @uncompiled
    @whole
    def begin(self, unit: Unit, counts: bool, alone: bool = False) -> None:
        """Makes parameters usable; each is until as many `end` as `begin`.

        Args:
          counts: a gradient is expected of this use.
          alone: nothing watches this thread's operations.
        """
        if not alone:
            for watches in WATCHERS:
                if watches():
                    with unseen():
                        return self.begin(unit, counts, alone=True)
        params = unit.params
        for p in params:
            if p.pins:
                return self._begin_rest(unit, counts)
        if self.stays and params[0].kept and not unit.kept:
            self._see_kept(unit)
        if not unit.kept:
            try:
                views = self._leases.acquire(unit)
            except CastorError as error:
                views = self._runtime.acquire_behind(error, unit)
            keeps = self.stays and not self._forwards.evaluating
            stream = self._runtime.device.current_stream() if self._on_gpu else 0
            for p, view, address in zip(params, views, unit.addresses):
                p.where = address or 0
                if keeps:
                    p.values, p.kept = view, True
                    p.streams.add(stream)
            if keeps:
                unit.kept = True
                self._kept.append(unit)
        else:
            if self._on_gpu:
                self._follow(unit)
            views = []
            for p in params:
                views.append(p.values)
        # Anew for each use, since autograd goes back in the order in which aliases were made.
        aliases = self._aliases(unit, views)
        finds = self._forwards.saves.packs or not self.stays
        for p, alias in zip(params, aliases):
            alias.__class__ = p.plain
            p.alias, p.seen = alias, alias._version
            if self.stays and p.number in self._runtime.values.copies:
                p.watched = max(p.watched, 1)  # a copy's alias is to show what a forward writes by .data
            if p.watched > 0:
                p.digest = self._digest(p)
            p.pins = 1
            p.uses += counts
            if finds and p.where:
                self.active[p.where] = p

    def _see_kept(self, unit: Unit) -> None:
        """Parameters may have kept their views in other units."""
        unit.kept = all(p.kept for p in unit.params)
        if unit.kept:
            self._kept.append(unit)

    def _follow(self, unit: Unit) -> None:
        """A lease of its own has the current stream wait, and be waited for."""
        device = self._runtime.device
        stream = device.current_stream()
        if any(stream not in p.streams for p in unit.params):
            views = self._runtime.acquire(unit)
            stream = device.current_stream()
            self._further[(stream, *(p.number for p in unit.params))] = views
            for p in unit.params:
                p.streams.add(stream)

    def _begin_rest(self, unit: Unit, counts: bool) -> None:
        rest = tuple(p for p in unit.params if not p.pins)
        if rest:
            self.begin(rest[0].unit if len(rest) == 1 else Unit(rest), counts, alone=True)
        for p in unit.params:
            if p not in rest:
                p.pins += 1
                p.uses += counts

    def _aliases(self, unit: Unit, views: Sequence[Any]) -> list[Any]:
        """`views`: over leases."""
        made: list[Any] = []
        step, stays = self._runtime.steps.number, self.stays
        with_gradients = torch.is_grad_enabled()
        # Inside, `same_memory` gives a tensor whose gradient is the leaf's, and no view of the leaf: torch would check a view's writes against the
        # geometry that the leaf has.
        with plain_functions(), self._views_unnoted():
            if not with_gradients:
                set_grad_enabled(True)  # a forward without gradients may have a part with
            for p, view in zip(unit.params, views):
                leaf = p.tensor
                if leaf.requires_grad:
                    alias: Any = same_memory(leaf)
                    alias.data = view
                else:
                    alias = view.detach() if stays else view
                if stays and with_gradients:
                    self._handed.append(weakref.ref(alias))
                own, marks = vars(leaf), p.marks
                marks["_castor_step"] = step
                if len(own) > 1:
                    vars(alias).update(own)
                vars(alias).update(marks)
                made.append(alias)
            if not with_gradients:
                set_grad_enabled(False)
        if len(self._handed) > self._many:
            self._handed = [reference for reference in self._handed if reference() is not None]
            self._many = max(2 * len(self._handed), _MANY)
        return made

    @uncompiled
    @whole
    def end(self, unit: Unit, own: bool = False, alone: bool = False) -> None:
        """`own`: at the end of a forward of the unit's module. `alone`: as in `begin`."""
        if not alone:
            for watches in WATCHERS:
                if watches():
                    with unseen():
                        return self.end(unit, own, alone=True)
        for p in unit.params:
            p.pins -= 1
            if p.pins:
                continue
            alias: Any = p.alias
            if p.are_bytes and alias.shape != p.shape:
                self._refuse_other_layout(p)
            if alias._version != p.seen or (p.watched > 0 and self._changed(p, own)):
                self._keep_write(p)
            attributes, marks = vars(alias), p.marks
            if len(attributes) > len(marks) or len(vars(p.tensor)) > 1:
                self._take_attributes(p, attributes)
            alias.__class__ = UsedParameter
            p.alias = None
            if self.active and self.active.get(p.where) is p:
                del self.active[p.where]

    def _refuse_other_layout(self, p: Param) -> None:
        alias, p.alias = p.alias, None
        raise FailedPrecondition(f"a forward laid the quantized weight {p.name} out anew, from {list(p.shape)} to {list(alias.shape)}, and its place is in a "  # type: ignore[union-attr]
                                 "chunk: have the forward do so before castor.wrap")

    @staticmethod
    def _take_attributes(p: Param, attributes: dict[str, Any]) -> None:
        """A parameter has the attributes that its alias was given, and no others."""
        own, marks = vars(p.tensor), p.marks
        for name in [name for name in own if name not in attributes]:
            del own[name]
        own.update((name, value) for name, value in attributes.items() if name not in marks or name in own)

    def reset(self) -> None:
        """No use is under way."""
        for p in self._runtime.params:
            if p.pins:
                p.pins = 0
                if p.alias is not None:
                    p.alias.__class__ = UsedParameter
                p.alias = None
        self.active.clear()

    def lend(self, p: Param, values: Tensor) -> None:
        """A use of values in memory of torch's, until `take_back`."""
        (p.alias,) = self._aliases(p.unit, [values])
        p.alias.__class__ = p.plain  # type: ignore[union-attr]
        p.pins += 1

    @staticmethod
    def take_back(p: Param) -> Tensor:
        """Ends a use that `lend` began. Returns the values as they are."""
        assert p.alias is not None
        values = p.alias.detach()
        p.alias.__class__ = UsedParameter
        vars(p.alias)["_castor_step"] = -1  # a write to it comes too late
        p.alias = None
        p.pins -= 1
        return values

    # Writes inside a use.

    def _keep_write(self, p: Param) -> None:
        alias: Any = p.alias
        if alias._version != p.seen:
            p.version += alias._version - p.seen
            p.seen = alias._version
            increment_versions([p.tensor])
        self._outdate(p)
        with unseen():
            self._runtime.values.keep(p, alias.detach())

    def _changed(self, p: Param, own: bool) -> bool:
        """Whether a forward wrote to ``weight.data``, which no counter says. One that does so does it in its first calls, as a rule."""
        changed = self._digest(p) != p.digest
        if changed and p.sample is not None:
            self.written_late = p
        p.watched = 1 << 30 if changed else p.watched - (TRAINING_FORWARD if own and not self._runtime.forwards.evaluating else 1)
        p.sample = None
        return changed

    def _digest(self, p: Param) -> int:
        assert p.alias is not None
        with unseen():
            values = p.alias.detach()
            return self._runtime.values.digest_of(values if p.sample is None else values.reshape(-1)[p.sample : p.sample + SAMPLE])

    def sample(self) -> None:
        """Has the next use of one parameter looked at, of each in its turn: a forward may begin late to write to ``weight.data``."""
        params, forwards = self._runtime.params, self._runtime.steps.micro_batch
        if forwards % self._samples_every == 0 and params:
            turn, number = divmod(forwards // self._samples_every, len(params))
            p = params[number]
            if p.watched <= 0:
                p.watched = 1
                p.sample = turn * SAMPLE % max(p.elements, 1)

    # Views that stay.

    def allow(self, may_stay: bool) -> None:
        """Whether views may be kept, wherever chunks are. None is, until `choose`."""
        self.may_stay, self.stays = may_stay, False

    def take_written_late(self) -> Optional[Param]:
        late, self.written_late = self.written_late, None
        return late

    def choose(self) -> None:
        """Whether parameters keep views: where every chunk has its home on the device, whole."""
        runtime = self._runtime
        self.stays = self.may_stay and all(
            not p.elements or (p.block is None and runtime.engine.param(p.number).homes[_abi.PARAM] == _abi.DEVICE) for p in runtime.params)

    @whole
    def let_go(self) -> None:
        """Parameters give back the views that they keep to the end of a step."""
        if self._kept:
            self.drop()
        self._runtime.flush()

    def keep_none(self) -> None:
        """No parameter keeps a view any more."""
        self.stays = self.may_stay = False
        self.drop()

    @whole
    def drop(self) -> None:
        """Castor itself has no tensor over a chunk's memory any more. Parameters may keep views anew."""
        for p in self._runtime.params:
            if p.kept:
                p.kept, p.values = False, None
                p.streams.clear()
        for unit in self._kept:
            unit.kept = False
        self._kept.clear()
        self._further.clear()
        self._runtime.flush()

    # Changes of values, as autograd counts them.

    def values_change(self) -> None:
        """Autograd is to refuse graphs of the values before, as behind torch's optimizers."""
        increment_versions([alias for reference in self._handed if (alias := reference()) is not None and alias.requires_grad])
        self._handed.clear()

    def _outdate(self, p: Param) -> None:
        """Somebody has written to the parameter, whose memory graphs of earlier uses have as well."""
        increment_versions([alias for reference in self._handed
                            if (alias := reference()) is not None and alias is not p.alias and vars(alias).get("_castor") is p])

    def count_write(self, p: Param) -> None:
        """A write that came to the chunk by another way than an alias."""
        p.version += 1
        increment_versions([p.tensor] if p.alias is None else [p.tensor, p.alias])
        p.seen += p.alias is not None or self._runtime.residents.active
        self._outdate(p)
