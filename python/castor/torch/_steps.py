# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Where the training of one model is: its phase, the step that is made, and the micro-batches of the step."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

from castor import _abi
from castor._abi import lib
from castor._interrupts import whole
from castor.errors import FailedPrecondition
from castor.torch import _record
from castor.torch._model import Owner, Param


class Phase(enum.Enum):
    """What is under way. A value says so in a sentence."""

    IDLE = "between two steps"
    FORWARD = "inside a forward"
    BETWEEN = "inside a step, between forwards and backwards"
    BACKWARD = "inside a backward"
    EVALUATING = "inside a forward without gradients"
    ASLEEP = "while the model is asleep"


# The phase behind each call. A forward, a backward and a read come in any phase but ASLEEP, in which the engine refuses them.
#
#                a forward begins      it ends     a backward begins   it ends    step()   zero_grad()   sleep()   wake()
#   IDLE         FORWARD, EVALUATING               BACKWARD                       IDLE     IDLE          ASLEEP
#   FORWARD      FORWARD               BETWEEN     BACKWARD
#   BETWEEN      FORWARD, EVALUATING               BACKWARD                       IDLE     IDLE
#   BACKWARD     BACKWARD              BACKWARD    BACKWARD            BETWEEN
#   EVALUATING   EVALUATING            as before
#   ASLEEP                                                                                   ASLEEP                IDLE
#
# Of calls with a refusal: the phases without it, and the remedy for a script.
_MAY_COME: dict[str, tuple[set[Phase], str]] = {
    "optimizer.step()": ({Phase.IDLE, Phase.BETWEEN}, "call it behind loss.backward(), when forwards and backwards are over"),
    "optimizer.zero_grad()": ({Phase.IDLE, Phase.BETWEEN, Phase.ASLEEP}, "call it when forwards and backwards are over"),
    "castor.sleep": ({Phase.IDLE}, "call optimizer.step() or optimizer.zero_grad() before"),
}


class Steps:
    """Those of one model. Resident parameters' gradients reach the engine with the step, which begins then."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.number = 0
        self.micro_batch = 0  # counted for ever
        self.before = 0  # what it was when the step began
        self.begun = False  # a micro-batch has
        self.last = True  # the next micro-batch may be the last of its step
        self.backward_done = False  # since the micro-batch began
        self.asleep = False
        self._scaled = 0  # losses such that no backward has begun of yet

    @property
    def phase(self) -> Phase:
        runtime = self._runtime
        if self.asleep:
            return Phase.ASLEEP
        if runtime.backwards.under_way:
            return Phase.BACKWARD
        if runtime.forwards.evaluating:
            return Phase.EVALUATING
        if runtime.forwards.under_way:
            return Phase.FORWARD
        return Phase.BETWEEN if self.begun else Phase.IDLE

    def require(self, call: str) -> None:
        """FailedPrecondition where the call may not come now. The caller has the turn."""
        phases, instead = _MAY_COME[call]
        phase = self.phase
        if phase not in phases:
            raise FailedPrecondition(f"{call} cannot come {phase.value}: {instead}")

    # Micro-batches.

    def begin_micro_batch(self) -> None:
        runtime, several = self._runtime, self._runtime.engine.several
        _record.check()
        if runtime.opening.updates_early:
            runtime.optimizer.check_early()
        if several and not self.begun:
            runtime.values.settle()
        runtime.gradients.values.before_backward()
        runtime.flush()
        _abi.check(lib.castor_engine_begin_micro_batch(runtime.engine.handle, int(self.last)))
        if several and self.begun:
            runtime.values.settle()  # behind gradients, which ranks that leave layers out reduce later than others
        if not self.begun:
            self.before = self.micro_batch
        self.micro_batch += 1
        self.begun = True
        runtime.uses.sample()
        self.backward_done = False

    def end_backward(self) -> None:
        """The micro-batch has its gradients."""
        self.backward_done = True

    @contextlib.contextmanager
    def not_last(self) -> Iterator[None]:
        """Micro-batches inside are not the last of their step."""
        before, self.last = self.last, False
        try:
            yield
        finally:
            self.last = before

    def scale(self) -> None:
        """A loss is multiplied by the loss scale."""
        self._scaled += 1

    def check_scaled(self) -> None:
        """A backward begins. A loss that nobody scaled would be divided by the loss scale all the same."""
        if self._runtime.opening.scales:
            if self._scaled == 0:
                raise FailedPrecondition(
                    "castor.wrap was given an initial_scale, and this loss was not scaled: call optimizer.backward(loss) or optimizer.scale(loss).backward()"
                )
            self._scaled -= 1

    # Gradients of the step.

    def has_gradients(self) -> bool:
        """Whether this step has any."""
        if not self.begun or self.backward_done:
            return self.begun
        before = self.before
        for p in self._runtime.params:
            if p.given > before:
                return True
        return False

    def has_gradient(self, p: Param) -> bool:
        """Whether this step has a gradient of the parameter."""
        return self.begun and p.given > self.before

    @whole
    def settle(self) -> None:
        """Drops a step of forwards alone: what is done between steps can be done."""
        self._runtime.values.given.settle()
        self._runtime.residents.gradients.hand_over()
        if self.begun and not self.has_gradients():
            self.abandon()

    @whole
    def abandon(self) -> None:
        """Drops the step's gradients."""
        runtime = self._runtime
        if self.begun:
            if not runtime.backwards.under_way:
                runtime.gradients.values.part()
            runtime.gradients.values.forget()
            runtime.flush()
            runtime.engine.abandon()
            runtime.residents.gradients.forget_all()
            runtime.optimizer.rule.end(runtime.optimizer.groups, False)  # which updates in the backward may have begun
        self.begun = self.backward_done = False

    @whole
    def drop_gradients(self) -> None:
        """Of this step, if it has any."""
        self._runtime.residents.gradients.drop()
        if self.has_gradients():
            self.abandon()

    # Its end.

    def change_weights(self) -> None:
        """What autograd has saved so far is of other weights."""
        self.number += 1
        self._runtime.residents.count_changes()
        if self._runtime.uses.stays:
            self._runtime.uses.values_change()

    @whole
    def end(self) -> None:
        runtime = self._runtime
        runtime.residents.gradients.forget_all()
        runtime.gradients.values.forget()
        self.change_weights()
        runtime.values.refresh()
        runtime.residents.sample()
        for p in runtime.params:
            p.uses = 0  # of forwards that no backward came for
        self.begun = self.backward_done = False

    def sleep(self, asleep: bool) -> None:
        """Whether the device was emptied."""
        self.asleep = asleep
