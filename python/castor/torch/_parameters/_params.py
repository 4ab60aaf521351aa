# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters whose values live in chunks.

Outside its module's forward a parameter is a `ChunkedParameter`: its data is one NaN, expanded to its shape. A function that needs its
values gets them for as long as it runs. Inside, it is the plain parameter that it was, and its data is a view of its chunk.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from castor.errors import FailedPrecondition, InvalidArgument, Unavailable
from castor.sizes import format_size
from castor.torch._autograd._compile import is_compiling
from castor.torch._model import NEVER, Param
from castor.torch._parameters._guards import GUARDS
from castor.torch._parameters._values import call, collect, replaced
from castor.torch._torch_internals import plain_functions


def _names(of: Any) -> set[Any]:
    return {getattr(Tensor, name) for name in of if hasattr(Tensor, name)}


def _accessors(names: str, *kinds: str) -> set[Any]:
    return {getattr(getattr(Tensor, name), kind) for name in names.split() if hasattr(Tensor, name) for kind in kinds}


# What needs no values.
OF_METADATA = (
    _accessors("shape dtype device layout ndim is_leaf grad_fn requires_grad grad _version is_sparse is_cuda is_quantized is_meta names "
               "output_nr retains_grad _backward_hooks _grad _base is_nested is_mps is_xpu is_mkldnn is_cpu itemsize nbytes", "__get__")
    | _accessors("grad requires_grad _backward_hooks", "__set__")
    | {Tensor.grad.__delete__}
    | _names(
        "size dim ndimension numel nelement stride storage_offset is_contiguous is_floating_point is_complex is_signed element_size "
        "register_hook register_post_accumulate_grad_hook requires_grad_ get_device has_names __len__ __hash__ retain_grad type_as "
        "is_same_size is_inference is_conj is_neg sym_size _is_view untyped_storage storage data_ptr is_shared dim_order new_empty "
        "new_zeros new_ones new_full new_tensor __torch_dispatch__".split()
    )
    | {torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like, torch.rand_like, torch.randn_like, torch.numel,
       torch.is_floating_point, torch.is_complex, torch.is_tensor, torch.result_type}
)

_OF_LAYOUT = _names("stride storage_offset is_contiguous dim_order".split())
_OF_MEMORY = _names("untyped_storage storage data_ptr".split())


def _writes(function: Any, arguments: tuple, keywords: dict) -> bool:
    """Whether a function writes to a parameter among its arguments."""
    name = getattr(function, "__name__", "")
    first = arguments[0] if arguments else None
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in _ASKS):
        return type(first) in (ChunkedParameter, UsedParameter)
    return type(keywords.get("out")) in (ChunkedParameter, UsedParameter)


OWN_GRAD: Any = Tensor.grad  # torch's, of any tensor
_READ_GRAD = OWN_GRAD.__get__
_WRITE_GRAD = {OWN_GRAD.__set__, OWN_GRAD.__delete__}
_READ_DATA, _WRITE_DATA = Tensor.data.__get__, Tensor.data.__set__  # type: ignore[attr-defined]
# What gives no tensor, or none that has gradients.
_WITHOUT_GRADIENTS = _names("detach item tolist numpy __float__ __int__ __bool__ __index__ __complex__ __repr__ __format__ __contains__ equal "
                            "allclose isclose isnan isinf isfinite eq ne lt le gt ge argmax argmin count_nonzero nonzero all any "
                            "__array__ __dlpack__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__".split()) | {
    torch.equal, torch.allclose, torch.isclose, torch.isnan, torch.isinf, torch.isfinite, torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge,
    torch.argmax, torch.argmin, torch.count_nonzero, torch.nonzero, torch.all, torch.any,
}
_ASKS = ("__index__", "__int__", "__invert__")


# What looks for a parameter in a graph, where it is by its name.
_OF_GRAPH = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}
# Questions that an alias hands on to its parameter.
_OF_PARAMETER = _OF_GRAPH | {Tensor.register_hook, Tensor.requires_grad_, Tensor.requires_grad.__get__, Tensor.grad_fn.__get__, _READ_GRAD, *_WRITE_GRAD, _READ_DATA, _WRITE_DATA, Tensor.detach, *GUARDS, Tensor.register_post_accumulate_grad_hook, Tensor.is_leaf.__get__}  # type: ignore[attr-defined]


def _of_memory(p: Param, function: Callable, arguments: tuple, keywords: dict) -> Any:
    """A kernel is given an address, and is launched within a forward or a backward; elsewhere addresses tell which parameters are one."""
    if p.pins and p.alias is not None:
        return in_use([p], function, arguments, keywords)
    if function in _OF_LAYOUT and not is_compiling():
        return function(p.outline, *arguments[1:], **keywords)
    if function in _OF_MEMORY and p.elements and (p.runtime.forwards.under_way or p.runtime.backwards.under_way):
        there: Any = p.runtime.forwards.point_at(p)
    else:
        there = arguments[0]
    with plain_functions():
        return function(there, *arguments[1:], **keywords)


def set_data(p: Param, values: Tensor) -> None:
    """``p.data = values``."""
    if values.shape != p.shape or values.dtype is not p.dtype:
        raise InvalidArgument(
            f"the data of parameter {p.name} are {p.dtype} of shape {tuple(p.shape)}, in a chunk, and cannot become {values.dtype} of shape "
            f"{tuple(values.shape)}: change the model before castor.wrap"
        )
    p.runtime.values.replace(p, call([values._castor], Tensor.clone, (values,), {}) if type(values) is ChunkedParameter else values)


class ChunkedParameter(torch.nn.Parameter):
    """A parameter outside its module's forward."""

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        if function in OF_METADATA:
            if function == _READ_GRAD and arguments[0]._castor.runtime.steps.has_gradient(arguments[0]._castor):
                return arguments[0]._castor.runtime.gradients.values.show(arguments[0]._castor)
            if function in _WRITE_GRAD:
                return arguments[0]._castor.runtime.gradients.values.set(arguments[0]._castor, arguments[1] if len(arguments) > 1 else None)
            if function in _OF_LAYOUT or function in _OF_MEMORY:
                return _of_memory(arguments[0]._castor, function, arguments, keywords)
            guard = GUARDS.get(function)
            if guard is not None:
                guard(arguments[0]._castor, *arguments[1:], **keywords)
            with plain_functions():
                return function(*arguments, **keywords)
        if function in _OF_GRAPH:
            with plain_functions():  # to the graph, whose backward _patches.py has served again
                return function(*arguments, **keywords)
        inactive: list[ChunkedParameter] = []
        collect(arguments, ChunkedParameter, inactive)
        collect(keywords, ChunkedParameter, inactive)
        found: list[Param] = [tensor._castor for tensor in inactive]  # type: ignore[attr-defined]
        if not found:
            with plain_functions():
                return function(*arguments, **keywords)
        first = found[0]
        writes = _writes(function, arguments, keywords)
        if writes and torch.is_grad_enabled() and any(p.tensor.requires_grad for p in found) and function not in _WITHOUT_GRADIENTS:
            raise RuntimeError(f"a leaf Variable that requires grad is being used in an in-place operation: {first.name}")
        if all(p.pins for p in found):
            if function == _WRITE_DATA:
                first.watched, first.digest = max(first.watched, 1), NEVER  # which no counter says
            return in_use(found, function, arguments, keywords)
        if function is Tensor.copy_ and first.runtime.values.takes_copies:
            first.write(arguments[1])
            return arguments[0]
        if function == _WRITE_DATA:
            return set_data(first, arguments[1])
        if function == _READ_DATA:
            function = Tensor.detach  # whose writes are counted
        elif not writes and function not in _WITHOUT_GRADIENTS and (torch.is_grad_enabled() or first.runtime.forwards.under_way):
            return first.runtime.call_with(found, function, arguments, keywords)  # without gradients too within a forward, in the chunk's own memory
        return call(found, function, arguments, keywords)

    def _refuse_memory(self, name: str) -> Any:
        raise FailedPrecondition(f"{self._castor.name}.{name} would give the parameter other memory, and its values are in a chunk: copy into it by copy_")

    def set_(self, source: Any = None, *more: Any, **__: Any) -> Any:
        if not isinstance(source, Tensor) or more or source.shape != self.shape:
            self._refuse_memory("set_")
        if source is not self:
            self.data = source  # type: ignore[attr-defined]
        return self

    def resize_(self, *_: Any, **__: Any) -> Any:
        self._refuse_memory("resize_")

    def resize_as_(self, *_: Any, **__: Any) -> Any:
        self._refuse_memory("resize_as_")

    def __deepcopy__(self, memo: Any) -> Any:
        p = self._castor
        try:
            with torch.no_grad():
                values = self.clone() if p.pins or p.runtime.residents.active else call([p], Tensor.clone, (self,), {})
        except torch.OutOfMemoryError as error:
            raise Unavailable(f"a copy of {p.name} takes {format_size(p.elements * p.dtype.itemsize)} of {p.runtime.device.torch_device}, which has no more: "
                              "copy values one by one inside castor.gathered") from error
        values = values.contiguous(memory_format=p.format)
        if p.plain is torch.nn.Parameter:
            made: Any = torch.nn.Parameter(values, requires_grad=self.requires_grad)
        else:  # whose constructor may do more, as quantize
            made = torch.Tensor._make_subclass(p.plain, values, self.requires_grad)  # type: ignore[attr-defined]
        memo[id(self)] = made
        vars(made).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name != "_castor"})
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._castor.pins:
            return copy.deepcopy(self).__reduce_ex__(protocol)
        raise FailedPrecondition(f"parameter {self._castor.name} is in a chunk and cannot be pickled: save model.state_dict(), or call castor.save")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        p = self._castor
        return f"ChunkedParameter({p.name}, shape={tuple(p.shape)}, dtype={p.dtype})"


def in_use(params: list[Param], function: Callable, arguments: tuple, keywords: dict) -> Any:
    """Calls a function with the aliases of parameters that are in use, and gives back the parameter where the function gives its alias."""
    there = {id(p.tensor): p.alias for p in params}
    back = {id(p.alias): p.tensor for p in params}
    return replaced(function(*replaced(arguments, there), **replaced(keywords, there)), back)


class UsedParameter(torch.nn.Parameter):
    """An alias whose use is over, and which somebody keeps. It has the values until the next step changes them, and is the parameter then.

    Writes are the parameter's at any time.
    """

    _castor: Param
    _castor_step: int

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        keywords = keywords or {}
        aliases: list[UsedParameter] = []
        collect(arguments, UsedParameter, aliases)
        collect(keywords, UsedParameter, aliases)
        with plain_functions():
            if function not in _OF_PARAMETER and not _writes(function, arguments, keywords) and all(map(_is_current, aliases)):
                return function(*arguments, **keywords)
        names = {id(alias): alias._castor.tensor for alias in aliases}
        return function(*replaced(arguments, names), **replaced(keywords, names))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in vars(self):
            vars(self._castor.tensor)[name] = value

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_castor"].tensor, name)  # what somebody has set since

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self._castor.tensor, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._castor.tensor.__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._castor.tensor)


def without_stale(of: Any) -> Any:
    """The same with parameters in the places of aliases from before the last step, in lists, tuples and dicts too."""
    aliases: list[UsedParameter] = []
    collect(of, UsedParameter, aliases)
    stale = {id(alias): alias._castor.tensor for alias in aliases if not _is_current(alias)}
    return replaced(of, stale) if stale else of


def _is_current(alias: UsedParameter) -> bool:
    runtime = alias._castor.runtime
    return alias._castor_step == runtime.steps.number and alias._castor.number not in runtime.values.copies
