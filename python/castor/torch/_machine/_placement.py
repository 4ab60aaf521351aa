# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Which budgets a model trains in: as the first step shows them, and smaller ones where torch comes to need more of a GPU."""

from __future__ import annotations

import gc
import logging
import re
from typing import Optional

from castor._interrupts import uninterrupted
from castor.errors import DoesNotFit, FailedPrecondition, Unavailable
from castor.sizes import format_size
from castor.torch._machine._budgets import Budgets
from castor.torch._model import Moments, Owner

log = logging.getLogger("castor")
_ASK_EVERY = 16  # steps: ranks ask each other
_ENOUGH = 1 << 62  # what a rank says that lacks nothing


class Placement:
    """Of one model. All ranks call it alike."""

    def __init__(self, runtime: Owner, budgets: Budgets) -> None:
        self._runtime = runtime
        self._budgets = budgets
        self._placed = budgets.fits
        self._gives = budgets.gives_back
        self.given_back = 0  # times
        if not budgets.fits:
            budgets.begin()

    @property
    def watches(self) -> bool:
        return self._gives or not self._placed

    def after_step(self) -> None:
        if not self._placed:
            self._place()
        elif self._gives:
            self._give_back(_ASK_EVERY)

    def before_forward(self) -> None:
        """Torch ran out of memory, and a forward begins all the same, with a smaller batch as a rule."""
        runtime = self._runtime
        if self._gives and not runtime.engine.several and not runtime.steps.has_gradients():
            runtime.steps.abandon()
            self._give_back(1)

    def _place(self) -> None:
        """After the first step, which showed what is held at once. Where something still holds parameters, on any rank, after the next one."""
        runtime, budgets = self._runtime, self._budgets
        budgets.measure()
        before = self._device_budget()
        while True:
            try:
                self._placed = self._reseal(budgets.device, budgets.host)
                break
            except DoesNotFit as error:
                # What the first step held at once is more than was derived, and it was made within this memory all the same.
                log.info("castor: memory stays as it was in the first step: %s", error)
                self._placed = True
                break
            except Unavailable as error:
                if runtime.engine.several:
                    budgets.device, before = runtime.engine.least_of_ranks([budgets.device, before])
                if not budgets.measures or budgets.device <= before:
                    raise
                log.warning("castor: %s of device memory are not to be had (%s): trying less", format_size(budgets.device), error)
                budgets.device = max(budgets.device - budgets.device // 8, before)
        if self._placed:
            budgets.device = self._device_budget()
            log.info("castor: %s of device memory and %s of host memory for this rank", format_size(budgets.device),
                     format_size(runtime.engine.stats()["host_budget_bytes"]))

    def _device_budget(self) -> int:
        """Bytes, with those for exchanges among ranks."""
        stats = self._runtime.engine.stats()
        return stats["device_budget_bytes"] + stats["exchange_bytes"]

    def _give_back(self, every: int) -> None:
        runtime, budgets = self._runtime, self._budgets
        if runtime.engine.several and runtime.steps.number % every:
            return
        wanted = budgets.wanted()
        if runtime.engine.several:
            (least,) = runtime.engine.least_of_ranks([wanted if wanted < budgets.device else _ENOUGH])
            if least == _ENOUGH:
                return
            wanted = min(least, budgets.device)
        elif wanted >= budgets.device:
            return
        try:
            try:
                placed = self._reseal(wanted, budgets.host)
            except DoesNotFit as error:
                # All that Castor can do without.
                more = re.search(r"raise the device budget by (\d+) bytes", str(error))
                if runtime.engine.several or more is None or wanted + int(more[1]) >= budgets.taken:
                    raise
                wanted += int(more[1])
                placed = self._reseal(wanted, budgets.host)
            if not placed:
                return
        except (DoesNotFit, Unavailable) as error:
            self._gives = False
            log.warning("castor: torch needs more of the GPU than the first step showed, and Castor cannot do with %s: %s", format_size(wanted), error)
            return
        self.given_back += 1
        instead = f"device={format_size(wanted)!r}" if budgets.card is None else "a batch= of the largest size"
        log.warning("castor: torch needs more of the GPU than %s: Castor has %s instead of %s (%d times so far). %s from the start saves that",
                    "the first step showed" if budgets.card is None else "a step of batch=", format_size(wanted), format_size(budgets.device), self.given_back, instead)
        budgets.gave_back(wanted)

    def share(self, held: Moments) -> None:
        """The budgets are new, before a step has shown what is held at once.

        Raises:
          FailedPrecondition: somebody keeps tensors over parameters, on any rank.
        """
        if not self._reseal(self._budgets.device, self._budgets.host, held):
            raise FailedPrecondition("card= places chunks before the first training forward, and tensors over parameters are kept, such as p.view(-1) or p.sum(): "
                                     "let go of them, or give castor.wrap batch=, which places chunks at once")

    def _reseal(self, device: int, host: int, held: Optional[Moments] = None) -> bool:
        """Whether nothing stood in the way: tensors over parameters that somebody keeps, on any rank."""
        runtime = self._runtime
        if held is None:
            # A step whose parameters kept views does not show what it needs at once.
            held = runtime.opening.held if runtime.uses.stays else []
        for collects in (False, True):
            if collects:
                gc.collect()
            runtime.let_go()
            try:
                with uninterrupted():
                    runtime.engine.reseal(device, host, held)
                    runtime.forwards.check.begin_anew()
                    runtime.choose_residents()
                return True
            except FailedPrecondition:
                continue
        return False
