# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Backwards of one model: when one begins and ends, by an exception too, and in which thread."""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any

from castor._interrupts import whole
from castor.errors import FailedPrecondition
from castor.torch import _patches
from castor.torch._model import Owner
from castor.torch._torch_internals import graph_task, queue_callback


class Backwards:
    """One is under way at most. Backwards inside it belong to it."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.under_way = False
        self.task = -1  # of autograd's, that backward

    def is_inside(self) -> bool:
        """Whether the caller belongs to the backward under way, which other threads may run, and other backwards of other threads beside it."""
        if not self.under_way:
            return False
        task = graph_task()
        return task != -1 and (task == self.task or _patches.backward_under_way()[1] == self._runtime.forwards.turn.thread)

    @whole
    def begin(self, _gradient: Any = None) -> None:
        """A hook on what a forward gave: its gradient is there."""
        runtime, steps, turn = self._runtime, self._runtime.steps, self._runtime.forwards.turn
        if self.under_way and (graph_task() == self.task or self.is_inside()):
            return
        frame, thread = _patches.backward_under_way()
        if self.under_way and thread != threading.get_ident() and turn.lives():
            # A thread of autograd's own, which computes both backwards: the other would never end.
            raise FailedPrecondition("another thread computes with this model")
        turn.take(frame, thread)
        if runtime.values.unsettled:
            runtime.values.settle()
        # What is read between a forward and its backward ends the micro-batch that the forward began.
        if steps.backward_done or not steps.begun or runtime.gradients.values.finished == steps.micro_batch:
            steps.begin_micro_batch()
        steps.check_scaled()
        self.under_way = True
        self.task = graph_task()
        queue_callback(self._end)

    @whole
    def _end(self) -> None:
        runtime = self._runtime
        runtime.gradients.hand_back_the_rest()
        for p in runtime.params:
            p.uses = 0
        self.under_way = False
        runtime.steps.end_backward()
        runtime.forwards.forget_places()
        runtime.flush()
        if runtime.engine.several and runtime.steps.last:
            runtime.modules.ignored.average()

    def outermost_begins(self) -> None:
        """Of this model or not. Waits for a backward of another thread where autograd would compute both in one thread of its own, as on a GPU."""
        if self.under_way and self._runtime.device.follow is not None and not self.is_inside():
            with self._runtime.forwards.turn:
                pass
        self._runtime.residents.gradients.backward_begins()

    @whole
    def is_over(self, frame: FrameType, outermost: bool) -> None:
        """`frame`: of a backward that has ended, of this model or not, by an exception or not."""
        self._runtime.residents.gradients.backward_ends(outermost)
        turn = self._runtime.forwards.turn
        if turn.frame is frame:
            try:
                self.forget()
            finally:
                turn.give(frame)

    def forget_if_failed(self) -> None:
        """Where an exception has ended one, and nobody has noticed yet. The caller has the turn."""
        if not self.is_inside():
            self.forget()

    def forget(self) -> None:
        """An exception ended a backward, if there is one: what it gave is dropped."""
        if self.under_way:
            self.under_way = False
            self._runtime.gradients.drop()
            self._runtime.steps.abandon()
