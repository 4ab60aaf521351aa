# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Units whose inner calls may differ from rank to rank, as experts' do. All ranks make the same calls of the engine all the same.

In the backward, as in the forward, the parameters of such a unit come and go together. Its gradients wait in torch's memory. They are handed
back in one order, with zeros for those that this rank lacks, when the backward reaches another unit or ends. One rank alone needs none of this.
"""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from castor._interrupts import whole
from castor.torch._model import Owner, Param, Unit


class Blocks:
    """The units of one model that the caller of `wrap` has chosen."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self._now: Optional[Unit] = None  # where the backward is
        self._stream = 0  # that waits for its values
        self._values: dict[int, Tensor] = {}  # of its parameters, by number
        self._gradients: dict[int, tuple[Tensor, int]] = {}  # of all units, by number, and the stream that made each
        self._late: list[Unit] = []  # which the backward may reach again

    def watch(self, unit: Unit, outputs: list[Tensor]) -> None:
        """The backward reaches a unit with the gradient of what its forward gave."""

        @whole
        def reached(_gradient: Any) -> None:
            self.enter(unit)

        for tensor in outputs:
            if tensor.requires_grad:
                tensor.register_hook(reached)

    def enter(self, unit: Unit) -> None:
        device = self._runtime.device
        if self._now is unit:
            device.wait_for(self._stream)
            return
        self._leave()
        self._now, self._stream = unit, device.current_stream()
        views = self._runtime.acquire(unit)
        self._values = {p.number: view for p, view in zip(unit.params, views)}

    def value(self, p: Param) -> Tensor:
        """What autograd has saved of a parameter."""
        assert p.block is not None
        self.enter(p.block)
        if self._runtime.device.follow is not None:
            self._runtime.device.follow()
        return self._values[p.number]

    def keep(self, p: Param, gradient: Tensor) -> None:
        """A gradient of this backward."""
        assert p.block is not None
        self.enter(p.block)
        device = self._runtime.device
        before = self._gradients.get(p.number)
        if before is not None:
            device.take_over(*before)
            gradient = before[0] + gradient
        self._gradients[p.number] = gradient, device.current_stream()

    def _leave(self) -> None:
        unit, self._now = self._now, None
        self._values = {}
        if unit is None or unit in self._late:
            return
        if any(p.uses > 1 for p in unit.params):
            self._late.append(unit)
        else:
            self._hand_back(unit)

    def _hand_back(self, unit: Unit) -> None:
        kept = {p.number: self._gradients.pop(p.number) for p in unit.params if p.number in self._gradients}
        for made in kept.values():
            self._runtime.device.take_over(*made)
        for p in unit.params:
            if not p.frozen:
                self._runtime.gradients.give(p, kept[p.number][0] if p.number in kept else None)
                self._runtime.gradients.hand_back(p)

    def end(self) -> None:
        """The backward ends."""
        self._leave()
        late, self._late = self._late, []
        for unit in late:
            self._hand_back(unit)

    def drop(self) -> None:
        """The backward came to nothing."""
        self._now = None
        self._values = {}
        self._gradients = {}
        self._late.clear()
