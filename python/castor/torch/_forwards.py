# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Forwards of one model: the turn of a thread, nested modules, evaluations, and what is set up around the outermost module."""

from __future__ import annotations

import logging
import threading
from types import FrameType
from typing import Any, Optional

import torch
from torch import Tensor

from castor._interrupts import defer_handlers, whole
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._check import Check
from castor.torch._autograd._compile import uncompiled
from castor.torch._autograd._saves import SavedTensors
from castor.torch._hooks import tensors_in
from castor.torch._model import Owner, Param
from castor.torch._parameters._guards import refuse_torchscript
from castor.torch._turn import Turn, levels_to

log = logging.getLogger("castor")


class Forwards:
    """One is under way at most, of modules that call each other. Whichever thread calls, one has the turn."""

    def __init__(self, runtime: Owner, checks_all: bool) -> None:
        """`checks_all`: every step is watched for reads of parameters without values."""
        self._runtime = runtime
        self.under_way: list[Any] = []  # modules and functions, the outermost first
        self.evaluating = False
        self.turn = Turn(self._forget_what_failed)
        self.saves = SavedTensors(runtime)
        self.check = Check(runtime, always=checks_all)
        self._holds: Optional[FrameType] = None  # the turn, for the forward under way
        self._checks: Optional[Check] = None  # under way in this forward
        self._autocast_cache: Optional[bool] = None  # what it was before the forward
        self._pointed_at: dict[int, Tensor] = {}  # by number
        self._out_of_memory = False  # torch was, since the last forward

    def is_inside(self) -> bool:
        """Whether the caller belongs to the forward under way."""
        return levels_to(self.turn.frame) > 0 or (self._runtime.backwards.is_inside() and self.turn.thread != threading.get_ident())

    @whole
    @uncompiled
    def enter(self, who: Any, frame: FrameType, inside: bool) -> None:
        """A module begins, or a function with parameters among its arguments. `frame`: lasts as long. `inside`: it belongs to the forward under way."""
        if not inside:
            self._take_turn(frame)
        try:
            self._begin(frame)
        except BaseException:
            if not self.under_way:
                self._give_turn()
            raise
        # What was refused has not begun.
        self.under_way.append(who)

    def _begin(self, frame: FrameType) -> None:
        runtime, inner = self._runtime, bool(self.under_way)
        if self._out_of_memory and not inner and not self.evaluating:
            self._recover()
        if runtime.residents.active and not inner:
            runtime.residents.look()
        if runtime.values.unsettled:
            with unseen():
                runtime.values.settle(quickly=inner)
        if inner:
            return
        if runtime.values.given:
            runtime.values.given.settle()
        if torch.jit.is_tracing() and not runtime.residents.active:
            refuse_torchscript()
        if runtime.modules.replacements.added:
            runtime.modules.replacements.check()
        if not runtime.residents.active:
            self._begin_uses(frame)

    def _begin_uses(self, frame: FrameType) -> None:
        """Of parameters that come to their modules and go."""
        runtime, steps = self._runtime, self._runtime.steps
        backward = runtime.backwards.under_way
        if torch.is_grad_enabled():
            if not backward and (not steps.begun or steps.backward_done):
                if not steps.begun:
                    runtime.optimizer.follow_groups()
                steps.begin_micro_batch()
            self.saves.watch()
        elif not backward:
            runtime.flush()
            runtime.engine.begin_evaluation()
            self.evaluating = True
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            # A cast that is kept would outlive what it was made of.
            self._autocast_cache = torch.is_autocast_cache_enabled()
            torch.set_autocast_cache_enabled(False)
        if self.check.due and not backward and self.check.is_due(self.evaluating):
            self._checks = self.check
            self._checks.begin(frame)

    def _take_turn(self, frame: FrameType) -> None:
        """For a forward, unless it is a part of a backward."""
        defer_handlers()
        if not self._runtime.backwards.is_inside() and self.turn.take(frame):
            self._holds = frame

    def _forget_what_failed(self) -> None:
        """Nothing is under way: an exception has ended what looks so."""
        if self.under_way:
            self._forget()
        self._runtime.backwards.forget()

    def _give_turn(self) -> None:
        frame, self._holds = self._holds, None
        if frame is not None:
            self.turn.give(frame)

    @whole
    @uncompiled
    def leave(self, result: Any) -> None:
        """The innermost ends."""
        self.under_way.pop()
        if self.under_way:
            return
        try:
            self._end(result)
        finally:
            self._give_turn()

    def _end(self, result: Any) -> None:
        runtime = self._runtime
        if self._checks is not None:
            check, self._checks = self._checks, None
            check.evaluated |= self.evaluating
            check.end()
        self._restore_autocast()
        self.saves.end()
        self.forget_places()
        if runtime.residents.active:
            return
        if self.evaluating:
            self.evaluating = False
            runtime.flush()
            runtime.engine.end_evaluation()
        elif not runtime.backwards.under_way and torch.is_grad_enabled():
            for tensor in tensors_in(result):
                if tensor.requires_grad:
                    tensor.register_hook(runtime.backwards.begin)

    def _restore_autocast(self) -> None:
        if self._autocast_cache is not None:
            torch.set_autocast_cache_enabled(self._autocast_cache)
            self._autocast_cache = None

    def _forget(self) -> None:
        """An interrupt has ended one, which calls no hook."""
        runtime = self._runtime
        check, self._checks = self._checks, None
        if check is not None:
            check.forget()
        self.saves.forget()
        self._restore_autocast()
        self.forget_places()
        self._holds = None
        for hooks in runtime.modules.hooks:
            hooks.reset()
        runtime.uses.reset()
        self.under_way.clear()
        runtime.flush()
        if self.evaluating:
            self.evaluating = False
            runtime.engine.end_evaluation()

    # Addresses.

    def point_at(self, p: Param) -> Tensor:
        """A parameter's values for a caller that asks for the address, to the end of the forward or the backward."""
        if p.number not in self._pointed_at:
            self._pointed_at[p.number] = self._runtime.alias_of(p)
        return self._pointed_at[p.number]

    def forget_places(self) -> None:
        self._pointed_at.clear()

    # A GPU without memory.

    def run_out(self) -> None:
        """Torch has no memory, in whatever it is doing."""
        self._out_of_memory = True
        card = self._runtime.opening.card
        if card is not None:
            log.warning("castor: %s", card.when_full())

    def _recover(self) -> None:
        """Torch ran out of memory since the last forward, and the program goes on."""
        runtime = self._runtime
        if runtime.backwards.is_inside():
            return
        self._out_of_memory = False
        runtime.backwards.forget()
        if runtime.opening.placement is not None and torch.is_grad_enabled():
            runtime.opening.placement.before_forward()
