# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Classes of parameters that stay where they are (_residents.py), and of tensors over the same memory whose writes no counter of the parameter shows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from castor.errors import InvalidArgument
from castor.torch._autograd._gradient_values import ChunkedGradient
from castor.torch._model import Param
from castor.torch._parameters._params import OWN_GRAD, ChunkedParameter
from castor.torch._torch_internals import no_function, plain_functions

OWN_DATA: Any = Tensor.data
_OWN_REQUIRES: Any = Tensor.requires_grad
read_grad, write_grad = OWN_GRAD.__get__, OWN_GRAD.__set__


class ResidentParameter(ChunkedParameter):
    """A parameter over the memory of its chunk. Functions see a plain tensor."""

    __torch_function__ = no_function  # type: ignore[assignment]

    _castor: Param

    @property
    def grad(self) -> Optional[Tensor]:  # type: ignore[override]
        """Autograd's own, until the engine has it."""
        p = self._castor
        own: Optional[Tensor] = read_grad(self)
        if not p.runtime.steps.has_gradient(p):
            return own
        if own is not None:
            p.runtime.residents.gradients.hand_over()  # another backward has come since
        return p.runtime.gradients.values.show(p)

    @grad.setter
    def grad(self, values: Optional[Tensor]) -> None:
        p = self._castor
        if p.runtime.steps.has_gradient(p) or (values is not None and p.runtime.steps.begun and not p.frozen):
            write_grad(self, None)
            p.runtime.gradients.values.set(p, values)
        else:
            write_grad(self, values.values() if type(values) is ChunkedGradient else values)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return OWN_DATA.__get__(self)

    @data.setter
    def data(self, values: Tensor) -> None:
        """The parameter has other memory, as in plain PyTorch, until `Residents.find_writes` takes the values into the chunk."""
        p = self._castor
        if values.shape != p.shape or values.dtype is not p.dtype:
            raise InvalidArgument(
                f"the data of parameter {p.name} are {p.dtype} of shape {tuple(p.shape)}, in a chunk, and cannot become {values.dtype} of shape "
                f"{tuple(values.shape)}: change the model before castor.wrap"
            )
        OWN_DATA.__set__(self, values.detach().to(p.runtime.device.torch_device))

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        return _OWN_REQUIRES.__get__(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        if requires_grad and self._castor.frozen:
            self._castor.runtime.optimizer.thaw()
        _OWN_REQUIRES.__set__(self, requires_grad)
        return self


def _seen(name: str) -> Callable[..., Any]:
    plain = getattr(Tensor, name)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        result = plain(self, *arguments, **keywords)
        return result if torch.compiler.is_compiling() or self._castor.runtime.forwards.under_way else Seen.of(result, self._castor)

    return method


class MirroredParameter(ResidentParameter):
    """One with a master. A forward's own views are plain. Outside forwards a script gets what tells of writes that the parameter's counter does not show."""

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        """Writes are counted."""
        return self.detach()

    @data.setter
    def data(self, values: Tensor) -> None:
        ResidentParameter.data.fset(self, values)  # type: ignore[attr-defined]


for _name in ("__getitem__ detach view view_as t transpose permute reshape flatten unflatten narrow select squeeze unsqueeze unbind split chunk expand "
              "swapaxes movedim diagonal ravel").split():
    setattr(MirroredParameter, _name, _seen(_name))


class Seen(Tensor):
    """A tensor over the memory of a parameter with a master. What is made of it is another, as far as the memory is the same."""

    _castor_of: Param

    @staticmethod
    def of(made: Any, p: Param) -> Any:
        """Of what a function gave."""
        if isinstance(made, (list, tuple)):
            return type(made)(Seen.of(one, p) for one in made)
        if type(made) is not Tensor or not made.numel() or made.untyped_storage().data_ptr() != p.storage_at():
            return made
        made.__class__ = Seen  # nobody else has it yet, and a subclass made by a function would be another node of graphs
        made._castor_of = p
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: tuple = (), keywords: Optional[dict] = None) -> Any:
        of = next((one for one in arguments if type(one) is Seen), None)
        with plain_functions():
            if of is None:
                return function(*arguments, **(keywords or {}))
            if function == OWN_DATA.__get__:
                function = Tensor.detach  # whose writes are counted
            if function in _PAST_COUNTERS:
                of._castor_of.runtime.residents.suspect(of._castor_of)
            return Seen.of(function(*arguments, **(keywords or {})), of._castor_of)

    def _plain(self) -> Tensor:
        with plain_functions():
            return self.as_subclass(Tensor)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return copy.deepcopy(self._plain(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(protocol)

    def __format__(self, form: str) -> str:
        return format(self._plain(), form)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._plain())


_PAST_COUNTERS = {getattr(Tensor, name) for name in "numpy __array__ __dlpack__ data_ptr untyped_storage storage share_memory_".split()}
