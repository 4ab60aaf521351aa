# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters whose values live in chunks.

Outside its module's forward a parameter is a `ChunkedParameter`: its data is one NaN, expanded to its shape, and a function that needs
its values gets them for as long as it runs. Inside, it is the plain parameter that it was, and its data is a view of its chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

import torch
from torch import Tensor

from castor import _abi
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._guards import GUARDS, refuse_gradient
from castor.torch._device import Viewer
from castor.torch._leases import Unit

if TYPE_CHECKING:
    from castor.torch._runtime import Runtime

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


class Param:
    """What Castor knows of one parameter."""

    __slots__ = (
        "block", "dtype", "elements", "frozen", "given", "grad_view", "group", "hole", "name", "number", "pins", "plain", "ready",
        "runtime", "shape", "state", "tensor", "unit", "uses", "view", "where",
    )

    def __init__(self, runtime: Runtime, name: str, tensor: torch.nn.Parameter, dtype: torch.dtype, group: str, frozen: bool) -> None:
        self.runtime = runtime
        self.name = name
        self.tensor = tensor
        self.plain = type(tensor)  # its class while it is active
        self.shape = tensor.shape
        self.dtype = dtype
        self.elements = tensor.numel()
        self.group = group
        self.frozen = frozen
        self.view = runtime.device.viewer(self.shape, dtype)  # over its memory
        self.number = -1
        self.hole: Tensor  # what its data is while it is not active
        self.grad_view: Viewer  # over its gradient's
        self.unit: Unit
        self.block: Optional[Unit] = None  # with which it comes and goes, where ranks may differ inside
        self.pins = 0  # how many forwards hold it
        self.where = 0  # its address while it is active
        self.uses = 0  # since the last backward ended
        self.given = -1  # the micro-batch that has had its gradient
        self.ready = False  # whether that is handed back

    def write(self, values: Tensor) -> None:
        """Whole values into its chunk. All ranks write the same."""
        if values.shape != self.shape:
            raise InvalidArgument(f"parameter {self.name} has the shape {tuple(self.shape)}, and the values have {tuple(values.shape)}")
        kept = values.detach().to("cpu", torch.float32).contiguous()
        self.runtime.leases.end_those_over()
        self.runtime.engine.write(self.number, _abi.PARAM, kept.data_ptr(), self.elements)
        self.runtime.weights_changed()


def _names(of: Any) -> set[Any]:
    return {getattr(Tensor, name) for name in of if hasattr(Tensor, name)}


def _accessors(names: str, *kinds: str) -> set[Any]:
    return {getattr(getattr(Tensor, name), kind) for name in names.split() if hasattr(Tensor, name) for kind in kinds}


# What needs no values.
_OF_METADATA = (
    _accessors("shape dtype device layout ndim is_leaf grad_fn requires_grad grad _version is_sparse is_cuda is_quantized is_meta names "
               "output_nr retains_grad _backward_hooks _grad _base is_nested is_mps is_xpu is_mkldnn is_cpu itemsize nbytes", "__get__")
    | _accessors("grad requires_grad _backward_hooks", "__set__")
    | {Tensor.data.__get__, Tensor.data.__set__, Tensor.grad.__delete__}
    | _names(
        "size dim ndimension numel nelement stride storage_offset is_contiguous is_floating_point is_complex is_signed element_size "
        "register_hook register_post_accumulate_grad_hook requires_grad_ get_device has_names __len__ __hash__ retain_grad type_as "
        "is_same_size is_inference is_conj is_neg sym_size _is_view untyped_storage storage data_ptr is_shared dim_order new_empty "
        "new_zeros new_ones new_full new_tensor __torch_dispatch__".split()
    )
    | {torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like, torch.rand_like, torch.randn_like, torch.numel,
       torch.is_floating_point, torch.is_complex, torch.is_tensor, torch.result_type}
)


def _is_chunked(of: Any, found: list[Param]) -> None:
    """Collects the inactive parameters among arguments, in lists too."""
    if isinstance(of, Tensor):
        if type(of) is ChunkedParameter:
            found.append(of._castor)  # type: ignore[attr-defined]
    elif isinstance(of, (list, tuple)):
        for one in of:
            _is_chunked(one, found)
    elif isinstance(of, dict):
        for one in of.values():
            _is_chunked(one, found)


def _writes(function: Any, arguments: tuple, keywords: dict) -> bool:
    """Whether a function writes to a parameter among its arguments."""
    name = getattr(function, "__name__", "")
    first = arguments[0] if arguments else None
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in _ASKS):
        return type(first) is ChunkedParameter
    out = keywords.get("out")
    return type(out) is ChunkedParameter


_READ_GRAD = Tensor.grad.__get__  # type: ignore[attr-defined]
_ASKS = ("__index__", "__int__", "__invert__")


class ChunkedParameter(torch.nn.Parameter):
    """A parameter outside its module's forward."""

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        if function in _OF_METADATA:
            if function == _READ_GRAD and arguments[0]._castor.runtime.has_gradient(arguments[0]._castor):
                return ChunkedGradient.of(arguments[0]._castor)
            guard = GUARDS.get(function)
            if guard is not None:
                guard(arguments[0]._castor, *arguments[1:], **keywords)
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **keywords)
        found: list[Param] = []
        _is_chunked(arguments, found)
        _is_chunked(keywords, found)
        if not found:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **keywords)
        if _writes(function, arguments, keywords):
            if function is Tensor.copy_ and found[0].runtime.takes_copies:
                found[0].write(arguments[1])
                return arguments[0]
            raise FailedPrecondition(
                f"parameter {found[0].name} is written to by {getattr(function, '__name__', function)}, and its values are in a chunk: "
                "write inside castor.gathered([...], write=True)"
            )
        return found[0].runtime.call_with(found, function, arguments, keywords)

    def __deepcopy__(self, memo: Any) -> Any:
        raise FailedPrecondition(f"parameter {self._castor.name} is in a chunk and cannot be copied: copy the model before castor.wrap, "
                                 "or copy values inside castor.gathered")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise FailedPrecondition(f"parameter {self._castor.name} is in a chunk and cannot be pickled: save model.state_dict(), or call castor.save")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        p = self._castor
        return f"ChunkedParameter({p.name}, shape={tuple(p.shape)}, dtype={p.dtype})"


class ChunkedGradient(Tensor):
    """What ``p.grad`` is while the gradient is in a chunk: whoever asks learns that there is one, and its shape.

    Computing with it is refused, because the values are elsewhere.
    """

    @staticmethod
    def of(p: Param) -> ChunkedGradient:
        with torch._C.DisableTorchFunctionSubclass():
            gradient = p.tensor.detach().as_subclass(ChunkedGradient)
        gradient._castor = p  # type: ignore[attr-defined]
        return gradient

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        if function in _OF_METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(keywords or {}))
        refuse_gradient(_first_gradient((arguments, keywords)))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ChunkedGradient({self._castor.name}, shape={tuple(self._castor.shape)})"  # type: ignore[attr-defined]


def _first_gradient(of: Any) -> Any:
    if type(of) is ChunkedGradient:
        return of._castor  # type: ignore[attr-defined]
    inside = of.values() if isinstance(of, dict) else of if isinstance(of, (list, tuple)) else ()
    return next((found for found in map(_first_gradient, inside) if found is not None), None)
