# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Gradients in torch's memory, where a script reads or writes them between a backward and the step.

``p.grad`` is a `ChunkedGradient`: it costs nothing until a function needs its values. The function then gets the gradient's *copy*, averaged over ranks,
which stays to the end of the step. What was written to a copy goes to the chunk before the norm is taken, the step, or another backward. Whoever keeps a
``p.grad`` beyond that keeps the values that it had.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Optional

import torch
from torch import Tensor

from castor import _abi
from castor._abi import lib
from castor._interrupts import uninterrupted, whole
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._model import Owner, Param
from castor.torch._parameters._params import OWN_GRAD
from castor.torch._parameters._values import collect, replaced
from castor.torch._torch_internals import plain_functions


class _Copy:
    """One gradient's."""

    __slots__ = ("digest", "param", "values", "version")

    def __init__(self, param: Param, values: Tensor) -> None:
        self.param = param
        self.values = values
        self.note()

    def note(self) -> None:
        """What it has now is in the chunk."""
        self.version = self.values._version
        self.digest = self._digest()

    def _digest(self) -> int:
        return self.param.runtime.values.digest_of(self.values.contiguous())

    def written(self) -> bool:
        return self.values._version != self.version or self._digest() != self.digest


class GradientValues:
    """The copies of one model. On several ranks, all read and write the same gradients."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self._copies: dict[int, _Copy] = {}  # by number
        self._shown: weakref.WeakValueDictionary[int, ChunkedGradient] = weakref.WeakValueDictionary()  # of this step, by number
        self.finished = -1  # the micro-batch whose gradients so far are all reduced
        self.factor = 1.0  # by which the norm is clipped
        self.limit = math.inf  # to which it is

    @whole
    def finish(self) -> None:
        """Has every gradient of the step reduced, so that it can be read."""
        runtime = self._runtime
        if self.finished != runtime.steps.micro_batch:
            if runtime.opening.updates_early:
                raise FailedPrecondition("update_in_backward=True has used the gradients by now: leave it away where a script reads or writes p.grad")
            if runtime.backwards.under_way:
                raise FailedPrecondition("a gradient is read inside a backward, whose gradients are not all there: read it when loss.backward() has returned")
            runtime.flush()
            _abi.check(lib.castor_engine_finish_gradients(runtime.engine.handle))
            self.finished = runtime.steps.micro_batch

    @whole
    def of(self, p: Param) -> Tensor:
        """The copy of a gradient that there is."""
        copy = self._copies.get(p.number)
        if copy is None:
            self.finish()
            with torch.inference_mode(False), torch.no_grad():
                values = torch.empty(p.shape, device="cpu")
                self._runtime.engine.read(p.number, _abi.GRAD, values.data_ptr(), p.elements)
                if self.factor != 1.0:
                    values.mul_(self.factor)
                copy = self._copies[p.number] = _Copy(p, values.to(self._runtime.device.torch_device, p.dtype))
        return copy.values

    def show(self, p: Param) -> ChunkedGradient:
        """What ``p.grad`` is."""
        shown = self._shown.get(p.number)
        if shown is None:
            shown = self._shown[p.number] = ChunkedGradient.of(p)
        return shown

    def _part_from(self, number: int) -> None:
        """A gradient is about to be another: who has kept it keeps its values."""
        shown = self._shown.pop(number, None)
        if shown is not None:
            shown._values = self.of(shown._castor)

    @whole
    def part(self) -> None:
        """The same of all gradients, before they change."""
        if not len(self._shown):
            return  # of most steps: to go through a dictionary of weak references takes a while
        if self._runtime.opening.updates_early:
            self._shown.clear()  # nobody could read them
        for number in sorted(self._shown):
            self._part_from(number)

    @whole
    def settle(self) -> None:
        """Writes to chunks what was written to copies."""
        for _, copy in sorted(self._copies.items()):
            if copy.written():
                self._write(copy.param, copy.values)
                copy.note()

    def _write(self, p: Param, values: Tensor) -> None:
        kept = values.detach().to("cpu", torch.float32).contiguous()
        self._runtime.engine.write(p.number, _abi.GRAD, kept.data_ptr(), p.elements)

    def forget(self) -> None:
        """The step is over, or its gradients were dropped."""
        self._copies.clear()
        self._shown.clear()
        self.finished, self.factor, self.limit = -1, 1.0, math.inf

    @whole
    def before_backward(self) -> None:
        """Another backward adds to gradients."""
        if self._copies or self._shown or self.finished >= 0:
            self.part()
            self.settle()
            self._copies.clear()
            self.finished = -1

    def clipped(self, factor: float) -> None:
        """The step will multiply by this, of what gradients were before any clipping."""
        more, self.factor = factor / self.factor, factor
        with torch.no_grad():
            for copy in self._copies.values():
                copy.values.mul_(more)
                copy.note()

    @whole
    def set(self, p: Param, values: Optional[Tensor]) -> None:
        """``p.grad = values``."""
        runtime = self._runtime
        if p.frozen:
            with plain_functions():
                OWN_GRAD.__set__(p.tensor, values.values() if type(values) is ChunkedGradient else values)
            return
        if values is None:
            if not runtime.steps.has_gradient(p):
                return
            self.finish()
            self._part_from(p.number)
            self._copies.pop(p.number, None)
            _abi.check(lib.castor_engine_drop_gradient(runtime.engine.handle, p.number))
            runtime.residents.gradients.forget(p)
            p.given = -1
            return
        if type(values) is ChunkedGradient:
            if values is self._shown.get(p.number):
                return
            values = values.values()
        if not runtime.steps.begun:
            raise FailedPrecondition(f"the gradient of {p.name} is set outside a step: give gradients by loss.backward(), and set them behind it")
        if values.shape != p.shape or values.dtype is not p.dtype:
            raise InvalidArgument(f"the gradient of {p.name} is {p.dtype} of shape {tuple(p.shape)}, and cannot become {values.dtype} of shape {tuple(values.shape)}")
        self.finish()
        self._part_from(p.number)
        with torch.inference_mode(False), torch.no_grad():
            there = values.detach().to(runtime.device.torch_device)
        with uninterrupted():
            if not runtime.residents.gradients.give(p, there):
                self._write(p, there)
            p.given, p.ready = runtime.steps.micro_batch, True
            self._copies[p.number] = _Copy(p, there)


class ChunkedGradient(Tensor):
    """What ``p.grad`` is while the gradient is in a chunk."""

    _castor: Param
    _values: Optional[Tensor] = None  # its own, once the parameter's gradient is another

    @staticmethod
    def of(p: Param) -> ChunkedGradient:
        gradient = p.hole.detach().as_subclass(ChunkedGradient)  # NaN, for what asks no function of torch's
        gradient._castor = p
        return gradient

    def values(self) -> Tensor:
        return self._castor.runtime.gradients.values.of(self._castor) if self._values is None else self._values

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        if function in OF_SHAPE:
            with plain_functions():
                return function(*arguments, **keywords)
        found: list[ChunkedGradient] = []
        collect(arguments, ChunkedGradient, found)
        collect(keywords, ChunkedGradient, found)
        copies = {id(gradient): gradient.values() for gradient in found}
        back = {id(copies[id(gradient)]): gradient for gradient in found}
        if function == _WRITE_DATA:
            return found[0]._castor.runtime.gradients.values.set(found[0]._castor, replaced(arguments[1], copies))
        if function == _READ_DATA:
            function = Tensor.detach  # whose writes are counted
        return replaced(function(*replaced(arguments, copies), **replaced(keywords, copies)), back)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.values())


_READ_DATA, _WRITE_DATA = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]
# What needs no values.
OF_SHAPE = {
    getattr(getattr(Tensor, name), "__get__")
    for name in "shape dtype device layout ndim is_leaf grad_fn requires_grad is_sparse is_cuda is_quantized is_meta is_nested is_cpu itemsize nbytes".split()
} | {getattr(Tensor, name) for name in "size dim ndimension numel nelement is_floating_point is_complex element_size get_device __len__ __hash__".split()}
