# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What happens to one wrapped model while it is trained: forwards, saved tensors, backwards, micro-batches."""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Callable, Iterable, Optional, Sequence

import torch
from torch import Tensor

from castor import _abi
from castor._abi import lib
from castor._engine import Engine
from castor._interrupts import defer_handlers, whole
from castor.errors import CastorError, DoesNotFit, FailedPrecondition
from castor.torch import _patches, _record
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._blocks import Blocks
from castor.torch._autograd._check import Check
from castor.torch._autograd._gradient_values import GradientValues
from castor.torch._autograd._gradients import Gradients, told_of
from castor.torch._autograd._saves import SavedTensors
from castor.torch._autograd._compile import uncompiled
from castor.torch._hooks import ModuleHooks, address_of, tensors_in
from castor.torch._machine._device import Gpu
from castor.torch._machine._placement import Placement
from castor.torch._model import Param, Unit
from castor.torch._opening import Opening
from castor.torch._parameters._given import Given
from castor.torch._parameters._guards import Replacements, refuse_torchscript
from castor.torch._parameters._ignored import Ignored
from castor.torch._parameters._leases import Leases
from castor.torch._parameters._residents import Residents
from castor.torch._parameters._uses import Uses
from castor.torch._parameters._values import Values, replaced
from castor.torch._torch_internals import graph_task, queue_callback
from castor.torch._turn import Turn, levels_to

log = logging.getLogger("castor")


class Runtime:
    """One wrapped model on one engine. Whichever thread calls, one has the turn."""

    def __init__(self, model: torch.nn.Module, engine: Engine, device: Any) -> None:
        """`device`: a Cpu or Gpu of _device.py."""
        self.model = weakref.ref(model)
        self.device = device
        self.engine = engine
        self.handle = engine.handle
        self.leases = Leases(engine.handle, device)
        self.reduce_dtype: Optional[torch.dtype] = None  # of all gradients; None: each as its parameter
        self.optimizer: Any = None
        self.opening: Opening  # what its engine is made by
        self.replacements: Replacements
        self.ignored: Ignored
        self.params: list[Param] = []
        self.by_tensor: dict[int, Param] = {}
        self.step_number = 0
        self.micro_batch = 0  # counted for ever
        self.before_step = 0  # what it was when the step began
        self.in_step = False  # a micro-batch has begun
        self.last = True  # the next micro-batch may be the last of its step
        self.updates_early = False  # in the backward of the last micro-batch
        self.asleep = False
        self.scales = False  # losses are multiplied by a loss scale
        self.scaled = 0  # such that no backward has begun of yet
        self.told_early = 0  # the micro-batch that the engine was told it of
        self.depth = 0  # of modules under way
        self.turn = Turn(self._forget_what_failed)
        self._holds: Optional[FrameType] = None  # the turn, for the forward under way
        self.evaluating = False
        self.takes_copies = False  # what is copied to a parameter is written into its chunk
        self.backward = False
        self.task = -1  # of autograd's, that backward
        self.backward_done = False  # since the micro-batch began
        self.blocks = Blocks(self)
        self.gradients = Gradients(self)
        self.values = Values(self)
        self.uses = Uses(self)
        self.residents = Residents(self)
        self.given = Given()
        self.gradient_values = GradientValues(self)
        self.several = engine.world.size > 1
        self._saves = SavedTensors(self)
        self.check = Check(self, always=False)
        self._checks: Optional[Check] = None  # under way in this forward
        self.module_hooks: list[ModuleHooks] = []
        self._autocast_cache: Optional[bool] = None  # what it was before the forward
        self.packs = False  # what autograd saves is looked at
        self._pointed_at: dict[int, Tensor] = {}  # by number
        self.held: Sequence[tuple[list[int], list[int]]] = ()  # at once in a step, as the model tells
        self.placement: Optional[Placement] = None  # while budgets may change
        self.out_of_memory = False  # torch was, since the last forward
        if isinstance(device, Gpu):
            device.out_of_memory = self._ran_out
        self.holes: dict[torch.dtype, Tensor] = {}
        self._whole_holes: dict[torch.dtype, bytes] = {}  # what they are while nobody has written to one

    # Values of parameters.

    def runs_again(self, unit: Unit) -> None:
        """A checkpoint computes a module's forward again, in whose backward the module's own parameters get gradients."""
        for p in unit.params:
            p.again = self.micro_batch

    def acquire(self, unit: Unit) -> list[Tensor]:
        try:
            return self.leases.acquire(unit)
        except DoesNotFit as error:
            if not self.gradients.hand_back_early():
                raise told_of(unit.params, error) from None
            return self.acquire(unit)
        except CastorError as error:
            raise told_of(unit.params, error) from None

    @uncompiled
    def call_with(self, found: Iterable[Param], function: Callable, arguments: tuple, keywords: dict) -> Any:
        """Calls a function outside the parameters' own modules with their values. It asks again for those of other models."""
        params = tuple({id(p): p for p in found if p.runtime is self}.values())
        unit = params[0].unit if len(params) == 1 else Unit(params)
        self.enter(sys._getframe(), self.depth > 0 and self.is_inside())
        try:
            self.uses.begin(unit, not self.backward and not self.evaluating)
            try:
                there: dict[int, Any] = {id(p.tensor): p.alias for p in params}
                result = function(*replaced(arguments, there), **replaced(keywords, there))
                with unseen():
                    self._watch(params, result)
                return result
            finally:
                self.uses.end(unit)
        finally:
            self.leave(None)

    def alias_of(self, p: Param) -> Tensor:
        """A parameter's values outside its module, for as long as somebody has them."""
        return self.call_with((p,), lambda alias: alias, (p.tensor,), {})

    def point_at(self, p: Param) -> Tensor:
        """The same for a caller that asks for the address, to the end of the forward or the backward."""
        if p.number not in self._pointed_at:
            self._pointed_at[p.number] = self.alias_of(p)
        return self._pointed_at[p.number]

    def _watch(self, params: Iterable[Param], result: Any) -> None:
        """What a function gave may be a view over a chunk."""
        for tensor in tensors_in(result):
            at = address_of(tensor)
            for p in params:
                if at and p.where == at and p.alias is not None:
                    self.values.watch(p, p.alias.detach())

    # Modules.

    def is_inside(self) -> bool:
        """Whether the caller belongs to the forward under way."""
        return levels_to(self.turn.frame) > 0 or (self.is_in_backward() and self.turn.thread != threading.get_ident())

    def is_in_backward(self) -> bool:
        """Whether the caller belongs to the backward under way, which other threads may run, and other backwards of other threads beside it."""
        if not self.backward:
            return False
        task = graph_task()
        return task != -1 and (task == self.task or _patches.backward_under_way()[1] == self.turn.thread)

    @whole
    @uncompiled
    def enter(self, frame: FrameType, inside: bool) -> None:
        """The first of nested modules begins. `frame`: lasts as long. `inside`: it belongs to the forward under way."""
        if not inside:
            self._take_turn(frame)
        try:
            self._begin_forward(frame)
        except BaseException:
            if self.depth == 0:
                self._give_turn()
            raise

    def _begin_forward(self, frame: FrameType) -> None:
        if self.out_of_memory and self.depth == 0 and not self.evaluating:
            self._recover()
        if self.residents.active and not self.depth:
            self.residents.look()
        if self.values.unsettled:
            with unseen():
                self.values.settle(quickly=self.depth > 0)
        if self.depth:
            self.depth += 1
            return
        if self.given:
            self.given.settle()
        if torch.jit.is_tracing() and not self.residents.active:
            refuse_torchscript()
        if self.replacements.added:
            self.replacements.check()
        if self.residents.active:
            self.depth = 1
            return
        if torch.is_grad_enabled():
            if not self.backward and (not self.in_step or self.backward_done):
                if not self.in_step:
                    self.optimizer.follow_groups()
                self.begin_micro_batch()
            self._saves.watch()
        elif not self.backward:
            self.flush()
            self.engine.begin_evaluation()
            self.evaluating = True
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            # A cast that is kept would outlive what it was made of.
            self._autocast_cache = torch.is_autocast_cache_enabled()
            torch.set_autocast_cache_enabled(False)
        if self.check.due and not self.backward and self.check.is_due(self.evaluating):
            self._checks = self.check
            self._checks.begin(frame)
        # What was refused has not begun.
        self.depth = 1

    def _take_turn(self, frame: FrameType) -> None:
        """For a forward, unless it is a part of a backward."""
        defer_handlers()
        if not self.is_in_backward() and self.turn.take(frame):
            self._holds = frame

    def _forget_what_failed(self) -> None:
        """Nothing is under way: an exception has ended what looks so."""
        if self.depth:
            self._forget_forward()
        if self.backward:
            self._forget_backward()

    def _give_turn(self) -> None:
        frame, self._holds = self._holds, None
        if frame is not None:
            self.turn.give(frame)

    @whole
    @uncompiled
    def leave(self, result: Any) -> None:
        """The first of nested modules ends."""
        self.depth -= 1
        if self.depth:
            return
        try:
            self._end_forward(result)
        finally:
            self._give_turn()

    def _end_forward(self, result: Any) -> None:
        if self._checks is not None:
            check, self._checks = self._checks, None
            check.evaluated |= self.evaluating
            check.end()
        if self._autocast_cache is not None:
            torch.set_autocast_cache_enabled(self._autocast_cache)
            self._autocast_cache = None
        self._saves.end()
        self._pointed_at.clear()
        if self.residents.active:
            return
        if self.evaluating:
            self.evaluating = False
            self.flush()
            self.engine.end_evaluation()
        elif not self.backward and torch.is_grad_enabled():
            for tensor in tensors_in(result):
                if tensor.requires_grad:
                    tensor.register_hook(self.backward_begins)

    def _forget_forward(self) -> None:
        """An interrupt has ended one, which calls no hook."""
        check, self._checks = self._checks, None
        if check is not None:
            check.forget()
        self._saves.forget()
        if self._autocast_cache is not None:
            torch.set_autocast_cache_enabled(self._autocast_cache)
            self._autocast_cache = None
        self._pointed_at.clear()
        self._holds = None
        for hooks in self.module_hooks:
            hooks.reset()
        self.uses.reset()
        self.depth = 0
        self.flush()
        if self.evaluating:
            self.evaluating = False
            self.engine.end_evaluation()

    def flush(self) -> None:
        if self.leases.ended:
            self.leases.end_those_over()

    # Backwards and micro-batches.

    def begin_micro_batch(self) -> None:
        _record.check()
        if self.updates_early:
            self.optimizer.check_early()
        if self.several and not self.in_step:
            self.values.settle()
        self.gradient_values.before_backward()
        self.flush()
        _abi.check(lib.castor_engine_begin_micro_batch(self.handle, int(self.last)))
        if self.several and self.in_step:
            self.values.settle()  # behind gradients, which ranks that leave layers out reduce later than others
        if not self.in_step:
            self.before_step = self.micro_batch
        self.micro_batch += 1
        self.in_step = True
        self.uses.sample()
        self.backward_done = False

    @whole
    def backward_begins(self, _gradient: Any = None) -> None:
        if self.backward and (graph_task() == self.task or self.is_in_backward()):
            return
        frame, thread = _patches.backward_under_way()
        if self.backward and thread != threading.get_ident() and self.turn.lives():
            # A thread of autograd's own, which computes both backwards: the other would never end.
            raise FailedPrecondition("another thread computes with this model")
        self.turn.take(frame, thread)
        if self.values.unsettled:
            self.values.settle()
        # What is read between a forward and its backward ends the micro-batch that the forward began.
        if self.backward_done or not self.in_step or self.gradient_values.finished == self.micro_batch:
            self.begin_micro_batch()
        self._check_scaled()
        self.backward = True
        self.task = graph_task()
        queue_callback(self._backward_ends)

    def _check_scaled(self) -> None:
        """A loss that nobody scaled would be divided by the loss scale all the same."""
        if self.scales:
            if self.scaled == 0:
                raise FailedPrecondition(
                    "castor.wrap was given an initial_scale, and this loss was not scaled: call optimizer.backward(loss) or optimizer.scale(loss).backward()"
                )
            self.scaled -= 1

    @whole
    def _backward_ends(self) -> None:
        self.gradients.hand_back_the_rest()
        for p in self.params:
            p.uses = 0
        self.backward = False
        self.backward_done = True
        self._pointed_at.clear()
        self.flush()
        if self.several and self.last:
            self.ignored.average()

    def forget_backward_that_failed(self) -> None:
        """Where an exception has ended one, and nobody has noticed yet. The caller has the turn."""
        if self.backward and not self.is_in_backward():
            self._forget_backward()

    def wait_for_backward(self) -> None:
        """Waits for a backward of another thread where autograd would compute both in one thread of its own, as on a GPU."""
        if self.backward and self.device.follow is not None and not self.is_in_backward():
            with self.turn:
                pass

    def outermost_backward_begins(self) -> None:
        """Of this model or not."""
        self.wait_for_backward()
        self.residents.gradients.backward_begins()

    @whole
    def backward_is_over(self, frame: FrameType, outermost: bool) -> None:
        """`frame`: of a backward that has ended, of this model or not, by an exception or not."""
        self.residents.gradients.backward_ends(outermost)
        if self.turn.frame is frame:
            try:
                if self.backward:
                    self._forget_backward()
            finally:
                self.turn.give(frame)

    def _forget_backward(self) -> None:
        """An exception ended a backward: what it gave is dropped."""
        self.backward = False
        self.gradients.drop()
        self.abandon()

    def _ran_out(self) -> None:
        self.out_of_memory = True

    def _recover(self) -> None:
        """Torch ran out of memory since the last forward, and the program goes on."""
        if self.is_in_backward():
            return
        self.out_of_memory = False
        if self.backward:
            self._forget_backward()
        if self.placement is not None and torch.is_grad_enabled():
            self.placement.before_forward()

    def has_gradients(self) -> bool:
        """Whether this step has any."""
        if not self.in_step or self.backward_done:
            return self.in_step
        before = self.before_step
        for p in self.params:
            if p.given > before:
                return True
        return False

    def has_gradient(self, p: Param) -> bool:
        """Whether this step has a gradient of the parameter."""
        return self.in_step and p.given > self.before_step

    # Parameters that stay.

    def let_go(self) -> None:
        """Castor itself has no tensor over a chunk's memory any more."""
        self.residents.end()
        self.uses.drop()

    def choose_residents(self) -> None:
        """Between steps, where homes are new: which parameters stay, and for how long."""
        self.uses.choose()
        self.residents.choose()
        if self.residents.active:
            self.check.due, self.check.cleared = False, True  # there is no parameter without values

    @whole
    def settle(self) -> None:
        """Drops a step of forwards alone: what is done between steps can be done."""
        self.given.settle()
        self.residents.gradients.hand_over()
        if self.in_step and not self.has_gradients():
            self.abandon()

    @whole
    def abandon(self) -> None:
        """Drops the step's gradients."""
        if self.in_step:
            if not self.backward:
                self.gradient_values.part()
            self.gradient_values.forget()
            self.flush()
            self.engine.abandon()
            self.residents.gradients.forget_all()
            self.optimizer.rule.end(self.optimizer.groups, False)  # which updates in the backward may have begun
        self.in_step = self.backward_done = False

    @whole
    def drop_gradients(self) -> None:
        """Of this step, if it has any."""
        self.residents.gradients.drop()
        if self.has_gradients():
            self.abandon()

    # Steps.

    def check_holes(self) -> None:
        """Nobody has written to a parameter where it was not."""
        for dtype, hole in self.holes.items():
            found = ctypes.string_at(hole.data_ptr(), hole.nbytes) if hole.is_cpu else None
            if found is not None and found == self._whole_holes.get(dtype):
                continue  # as torch found them to be NaN: to ask torch takes as long as a small model's forward
            if bool(torch.isnan(hole).all()):
                if found is not None:
                    self._whole_holes[dtype] = found
            else:
                written = [p.name for p in self.params if p.dtype is dtype and p.elements and not bool(torch.isnan(p.hole.reshape(-1)[0]))]
                hole.fill_(float("nan"))
                raise FailedPrecondition(
                    f"parameter {', '.join(written[:3])} was written to after castor.wrap, and its values are in a chunk: the write is lost. "
                    "Write inside castor.gathered([...], write=True)"
                )
        late, self.uses.written_late = self.uses.written_late, None
        if late is not None:
            raise FailedPrecondition(
                f"a forward writes to the memory of {late.name} by .data, numpy or the like, and did not in its first steps: Castor may have lost earlier "
                "writes of this kind. Write to the parameter itself under torch.no_grad(); from now on these writes are kept"
            )
        self.replacements.check()

    def close(self) -> None:
        """Gives all memory back. Waits for no other rank, since a garbage collector calls it: `make_world` ends worlds of several."""
        self.residents.allow(False)
        self.residents.end()
        self.uses.keep_none()
        self.given.close()
        _patches.let_go(self)
        try:
            self.engine.close()
            self.device.close()
            world = self.engine.world
            if self.close in world.closers:
                world.closers.remove(self.close)
            if world.size == 1:
                world.close()
        except CastorError as error:
            # Who still holds leases leaves the rest to the end of the process.
            log.debug("castor: %s", error)

    def weights_changed(self) -> None:
        """What autograd has saved so far is of other weights."""
        self.step_number += 1
        self.residents.count_changes()
        if self.uses.stays:
            self.uses.values_change()

    @whole
    def end_step(self) -> None:
        self.residents.gradients.forget_all()
        self.gradient_values.forget()
        self.weights_changed()
        self.values.refresh()
        self.residents.sample()
        for p in self.params:
            p.uses = 0  # of forwards that no backward came for
        self.in_step = self.backward_done = False
