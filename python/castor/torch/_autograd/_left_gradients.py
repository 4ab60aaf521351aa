# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Gradients that autograd leaves at resident parameters (_residents.py), until the engine gets all of them together.

An engine that borrows reads each where torch has made it, to the end of the step. Others copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from castor import _abi
from castor._abi import lib
from castor._interrupts import whole
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._gradients import told_of
from castor.torch._model import Owner, Param
from castor.torch._parameters._resident_params import read_grad, write_grad
from castor.torch._torch_internals import plain_functions

_ALIGN = 64  # bytes, of gradients that the engine reads


class LeftGradients:
    """Those of one model."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self._may_be = False  # some may be at parameters
        self._trained: list[Param] = []
        self._borrows = False  # the engine reads gradients where they are
        self._given: dict[Param, Tensor] = {}  # in this step, to an engine that borrows
        self._earlier: dict[Param, Tensor] = {}  # of earlier backwards, during one that may add to a parameter's several times
        self._nested = False  # backwards are made inside backwards, as by checkpoints with reentry
        self._ids: Any = None
        self._addresses: Any = None

    def begin(self, trained: list[Param], borrows: bool) -> None:
        """Autograd leaves the gradients of these from now on."""
        self._trained, self._borrows, self._may_be = trained, borrows, True
        self._ids, self._addresses = (ctypes.c_int32 * len(trained))(), (ctypes.c_void_p * len(trained))()

    def end(self) -> None:
        """It does not any more. Some may be left."""
        self._may_be = self.there()

    def there(self) -> bool:
        """Whether there are any that the engine has not got."""
        if not self._may_be:
            return False
        with plain_functions():
            for p in self._trained:
                if read_grad(p.tensor) is not None:
                    return True
        return False

    @whole
    def drop(self) -> None:
        if self._may_be:
            with plain_functions():
                for p in self._trained:
                    write_grad(p.tensor, None)

    @whole
    def hand_over(self) -> None:
        """The engine gets what is there, as one micro-batch."""
        if not self._may_be:
            return
        with plain_functions():
            found = [(p, gradient) for p in self._trained if (gradient := read_grad(p.tensor)) is not None]
            if found:
                self._hand_over(found)

    def _hand_over(self, found: list[tuple[Param, Tensor]]) -> None:
        runtime = self._runtime
        if self._given and runtime.gradients.values.factor != 1.0:
            self._clip_given()
        runtime.steps.begin_micro_batch()
        more = []
        for p, gradient in found:
            given = self._given.get(p)
            if given is None:
                more.append((p, gradient))
            else:
                with torch.no_grad():
                    given.add_(gradient)
        self._call(more)
        for p, _ in found:
            p.given, p.ready = runtime.steps.micro_batch, True
            write_grad(p.tensor, None)
        runtime.steps.end_backward()

    def _clip_given(self) -> None:
        """What comes behind a clip is added to what was clipped, as in plain PyTorch."""
        runtime, given = self._runtime, self._given
        with torch.no_grad():
            for gradient in given.values():
                gradient.mul_(runtime.gradients.values.factor)
        runtime.steps.abandon()
        runtime.steps.begin_micro_batch()
        self._call(list(given.items()))
        for p in given:
            p.given, p.ready = runtime.steps.micro_batch, True

    def give(self, p: Param, gradient: Tensor) -> bool:
        """A gradient of a parameter that has none in this step. Whether the engine takes it so."""
        if not self._may_be or not self._borrows or p in self._given:
            return False
        self._call([(p, gradient.clone())])
        return True

    def _call(self, found: list[tuple[Param, Tensor]]) -> None:
        runtime, ids, addresses = self._runtime, self._ids, self._addresses
        kept: dict[Param, Tensor] = {}
        for at, (p, gradient) in enumerate(found):
            address = 0 if gradient.is_sparse or gradient.is_neg() or not gradient.is_contiguous() else gradient.data_ptr()
            if p.elements and (not address or address % _ALIGN):
                with unseen(), torch.no_grad():
                    gradient = torch.empty(p.shape, dtype=p.dtype, device=gradient.device).copy_(gradient.to_dense())
                address = gradient.data_ptr()
            ids[at], addresses[at], kept[p] = p.number, address, gradient
        if runtime.device.follow is not None:
            runtime.device.follow()
        code = lib.castor_engine_give_grads(runtime.engine.handle, ids, addresses, len(found))
        if code:
            raise told_of(kept, _abi.error(code))
        if self._borrows:
            self._given.update(kept)

    def forget(self, p: Param) -> None:
        """The engine has dropped its gradient."""
        self._given.pop(p, None)

    def forget_all(self) -> None:
        """The step is over, or was abandoned."""
        self._given = {}

    # Backwards.

    @whole
    def backward_begins(self) -> None:
        """A backward that is in no other. What it adds is summed up first, as it is where gradients go into chunks."""
        if self._nested and self._may_be:
            for p in self._trained:
                gradient = read_grad(p.tensor)
                if gradient is not None:
                    self._earlier[p] = gradient
                    write_grad(p.tensor, None)

    @whole
    def backward_ends(self, outermost: bool) -> None:
        if not outermost:
            self._nested = True
            return
        earlier, self._earlier = self._earlier, {}
        with torch.no_grad():
            for p, gradient in earlier.items():
                more = read_grad(p.tensor)
                write_grad(p.tensor, gradient if more is None else gradient.add_(more))
