# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Gradients in torch's memory, where a script reads or writes them between a backward and the step.

``p.grad`` is a `ChunkedGradient`: it costs nothing until a function needs its values. The function then gets the gradient's *copy*, averaged over ranks,
which stays to the end of the step. What was written to a copy goes to the chunk before the norm is taken, the step, or another micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor

from castor import _abi
from castor._abi import lib
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._guards import in_grad_scaler, refuse_grad_scaler
from castor.torch._values import replaced

if TYPE_CHECKING:
    from castor.torch._params import Param
    from castor.torch._runtime import Runtime


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
        self.digest = self.param.runtime.values.digest_of(self.values)

    def written(self) -> bool:
        return self.values._version != self.version or self.param.runtime.values.digest_of(self.values) != self.digest


class GradientValues:
    """The copies of one model. On several ranks, all read and write the same gradients."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._copies: dict[int, _Copy] = {}  # by number
        self._finished = -1  # the micro-batch whose gradients are all reduced
        self._factor = 1.0  # by which the norm is clipped

    def finish(self) -> None:
        """Has every gradient of the step reduced, so that it can be read."""
        runtime = self._runtime
        if self._finished != runtime.micro_batch:
            if runtime.updates_early:
                raise FailedPrecondition("update_in_backward=True has used the gradients by now: leave it away where a script reads or writes p.grad")
            if runtime.backward:
                raise FailedPrecondition("a gradient is read inside a backward, whose gradients are not all there: read it when loss.backward() has returned")
            runtime.flush()
            _abi.check(lib.castor_engine_finish_gradients(runtime.handle))
            self._finished = runtime.micro_batch

    def of(self, p: Param) -> Tensor:
        """The copy of a gradient that there is."""
        copy = self._copies.get(p.number)
        if copy is None:
            self.finish()
            values = torch.empty(p.shape, device="cpu")
            self._runtime.engine.read(p.number, _abi.GRAD, values.data_ptr(), p.elements)
            with torch.inference_mode(False), torch.no_grad():
                if self._factor != 1.0:
                    values.mul_(self._factor)
                copy = self._copies[p.number] = _Copy(p, values.to(self._runtime.device.torch_device, p.dtype))
        return copy.values

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
        self._finished, self._factor = -1, 1.0

    def clipped(self, factor: float) -> None:
        """The step will multiply by this."""
        self._factor = factor
        with torch.no_grad():
            for copy in self._copies.values():
                copy.values.mul_(factor)
                copy.note()

    def set(self, p: Param, values: Optional[Tensor]) -> None:
        """``p.grad = values``."""
        runtime = self._runtime
        if values is None:
            if not runtime.has_gradient(p):
                return
            self.finish()
            self._copies.pop(p.number, None)
            _abi.check(lib.castor_engine_drop_gradient(runtime.handle, p.number))
            p.given = -1
            return
        if type(values) is ChunkedGradient:
            if values._castor is p:
                return
            values = self.of(values._castor)
        if p.frozen or not runtime.in_step:
            raise FailedPrecondition(f"the gradient of {p.name} is set outside a step: give gradients by loss.backward(), and set them behind it")
        if values.shape != p.shape or values.dtype is not p.dtype:
            raise InvalidArgument(f"the gradient of {p.name} is {p.dtype} of shape {tuple(p.shape)}, and cannot become {values.dtype} of shape {tuple(values.shape)}")
        self.finish()
        with torch.inference_mode(False), torch.no_grad():
            there = values.detach().to(runtime.device.torch_device)
        self._write(p, there)
        p.given, p.ready = runtime.micro_batch, True
        self._copies[p.number] = _Copy(p, there)


class ChunkedGradient(Tensor):
    """What ``p.grad`` is while the gradient is in a chunk."""

    _castor: Param

    @staticmethod
    def of(p: Param) -> ChunkedGradient:
        with torch._C.DisableTorchFunctionSubclass():
            gradient = p.tensor.detach().as_subclass(ChunkedGradient)
        gradient._castor = p
        return gradient

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        if function in OF_SHAPE:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **keywords)
        if in_grad_scaler():
            refuse_grad_scaler()
        found: list[ChunkedGradient] = []
        _collect(arguments, found)
        _collect(keywords, found)
        copies = {id(gradient): gradient._castor.runtime.gradient_values.of(gradient._castor) for gradient in found}
        back = {id(copies[id(gradient)]): gradient for gradient in found}
        if function == _WRITE_DATA:
            return found[0]._castor.runtime.gradient_values.set(found[0]._castor, replaced(arguments[1], copies))
        if function == _READ_DATA:
            function = Tensor.detach  # whose writes are counted
        return replaced(function(*replaced(arguments, copies), **replaced(keywords, copies)), back)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._castor.runtime.gradient_values.of(self._castor))


_READ_DATA, _WRITE_DATA = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]
# What needs no values.
OF_SHAPE = {
    getattr(getattr(Tensor, name), "__get__")
    for name in "shape dtype device layout ndim is_leaf grad_fn requires_grad is_sparse is_cuda is_quantized is_meta is_nested is_cpu itemsize nbytes".split()
} | {getattr(Tensor, name) for name in "size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex element_size get_device __len__ __hash__".split()}


def _collect(of: Any, found: list[ChunkedGradient]) -> None:
    if isinstance(of, Tensor):
        if type(of) is ChunkedGradient and all(one is not of for one in found):
            found.append(of)
    elif isinstance(of, (list, tuple)):
        for one in of:
            _collect(one, found)
    elif isinstance(of, dict):
        for one in of.values():
            _collect(one, found)
