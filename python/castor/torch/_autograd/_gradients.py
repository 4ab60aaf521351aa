# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Gradients, from autograd into chunks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Optional

import torch
from torch import Tensor

from castor import _abi
from castor._abi import lib
from castor._interrupts import whole
from castor.errors import CastorError, FailedPrecondition
from castor.torch._autograd._blocks import Blocks
from castor.torch._autograd._gradient_values import GradientValues
from castor.torch._model import Owner, Param, Unit
from castor.torch._parameters._params import OWN_GRAD
from castor.torch._torch_internals import graph_task, plain_functions

_DOES_NOT_FIT = 3  # castor_code
_ONE_UNIT = "a block whose inner calls differ, from rank to rank too, as experts' do, is to be one unit: castor.wrap(..., units=[...])"


class Gradients:
    """Those of one model. A gradient is handed back once this micro-batch adds nothing more to it, and may then be reduced."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.blocks = Blocks(runtime)
        self.values = GradientValues(runtime)
        self._late: list[Param] = []  # to be handed back when the backward ends
        self._told_early = 0  # the micro-batch of which the engine was told that updates may begin
        self._address = ctypes.c_void_p()
        self._out = ctypes.byref(self._address)

    def attend(self, p: Param) -> None:
        """Has autograd's gradient of a parameter go into its chunk from now on."""
        p.take = self._hook(p)
        self.listen(p)

    @staticmethod
    def listen(p: Param) -> None:
        """The same again."""
        with plain_functions():
            trained = p.tensor.requires_grad
            # Torch asks this of a tensor that gets a hook, and refuses the call inside a transform, where a garbage collector may close a model.
            if not trained:
                p.tensor.requires_grad_(True)
            p.hook = p.tensor.register_post_accumulate_grad_hook(p.take)
            if not trained:
                p.tensor.requires_grad_(False)

    def _hook(self, p: Param) -> Callable[[Tensor], None]:
        runtime = self._runtime
        dtype = runtime.opening.reduce_dtype or p.dtype
        p.grad_view = runtime.device.viewer(p.shape, dtype)
        at_once = runtime.device.gives
        leases = runtime.leases
        size = p.elements * dtype.itemsize

        @whole
        def take(tensor: Tensor) -> None:
            with plain_functions():
                gradient = OWN_GRAD.__get__(tensor)
                OWN_GRAD.__set__(tensor, None)
            if gradient is None:
                return
            if not runtime.backwards.under_way or graph_task() != runtime.backwards.task:
                runtime.backwards.begin()
            if runtime.steps.last and self._told_early != runtime.steps.micro_batch:
                self._told_early = runtime.steps.micro_batch
                if runtime.opening.updates_early:
                    runtime.optimizer.update_early()
                elif runtime.opening.guesses:
                    runtime.optimizer.guess_updates()
            if p.given == runtime.steps.micro_batch and p.ready:
                raise FailedPrecondition(f"the gradient of {p.name} comes twice in one backward: {_ONE_UNIT}")
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if p.block is not None:
                runtime.gradients.blocks.keep(p, gradient)
                return
            if p.uses != 1 or (p.again != runtime.steps.micro_batch and graph_task() != runtime.backwards.task):
                # A backward inside this one, of a checkpoint with reentry, may add to it.
                self.give(p, gradient)
                self._late.append(p)
            elif (at_once and p.given != runtime.steps.micro_batch and gradient.dtype is dtype and gradient.is_contiguous() and not gradient.is_neg()
                  and (address := gradient.data_ptr())):
                if leases.ended:
                    runtime.flush()
                if runtime.device.follow is not None:
                    runtime.device.follow()
                code = lib.castor_engine_give_grad(runtime.engine.handle, p.number, address, size)
                if code == _DOES_NOT_FIT and self.hand_back_early():
                    code = lib.castor_engine_give_grad(runtime.engine.handle, p.number, address, size)
                if code:
                    raise told_of((p,), _abi.error(code))
                p.given, p.ready = runtime.steps.micro_batch, True
            else:
                self.give(p, gradient)
                self.hand_back(p)

        return take

    def run_again(self, unit: Unit) -> None:
        """A checkpoint computes a module's forward again, in whose backward the module's own parameters get gradients."""
        for p in unit.params:
            p.again = self._runtime.steps.micro_batch

    def give(self, p: Param, gradient: Optional[Tensor]) -> None:
        """Adds to the gradient of this micro-batch. None: zeros."""
        runtime = self._runtime
        runtime.flush()
        if runtime.device.follow is not None:
            runtime.device.follow()
        code = lib.castor_engine_grad(runtime.engine.handle, p.number, self._out)
        if code == _DOES_NOT_FIT and self.hand_back_early():
            code = lib.castor_engine_grad(runtime.engine.handle, p.number, self._out)
        if code:
            raise _abi.error(code)
        place = p.grad_view(self._address.value, None)
        if gradient is None:
            place.zero_()
        elif p.given == runtime.steps.micro_batch:
            place.add_(gradient)
        else:
            place.copy_(gradient)
        p.given, p.ready = runtime.steps.micro_batch, False

    def hand_back(self, p: Param) -> None:
        if not p.ready:
            p.ready = True
            runtime = self._runtime
            if runtime.device.follow is not None:
                runtime.device.follow()
            code = lib.castor_engine_grad_ready(runtime.engine.handle, p.number)
            if code:
                raise told_of((p,), _abi.error(code))

    def hand_back_early(self) -> bool:
        """Memory lacks: those that wait for the end of the backward go now, and their chunks with them. Whether there were any."""
        late, self._late = self._late, []
        for p in late:
            self.hand_back(p)
        return bool(late)

    def hand_back_the_rest(self) -> None:
        """The backward ends."""
        self.blocks.end()
        late, self._late = self._late, []
        for p in late:
            self.hand_back(p)

    def drop(self) -> None:
        """The backward came to nothing."""
        self._late.clear()
        self.blocks.drop()


def told_of(params: Iterable[Param], error: CastorError) -> CastorError:
    """An error with the names of parameters, and what to do."""
    names = ", ".join(p.name for p in list(params)[:3])
    hint = f"; {_ONE_UNIT}. With stage=2 ranks hold all parameters, and branches may differ" if "ranks disagree" in str(error) else ""
    return type(error)(f"{names}: {error}{hint}")
