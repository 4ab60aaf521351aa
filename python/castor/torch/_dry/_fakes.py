# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Fake tensors in place of a batch's and a model's: their shapes, strides, types and shared storages, without memory."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from castor.torch._dry._known import KnownValues
from castor.torch._torch_internals import NormBase

_CONTAINERS = (list, dict, collections.OrderedDict, set, collections.deque)  # of modules, copied for the step


class Fakes:
    """Makes one fake tensor of each tensor. The mode is on while `of` is called."""

    def __init__(self, device: torch.device, dtype: Optional[torch.dtype], values: KnownValues) -> None:
        """`dtype`: of floating tensors; None leaves theirs. `values` is told small integers."""
        self._device, self._dtype, self._values = device, dtype, values
        self._made: dict[int, tuple[Tensor, Tensor]] = {}  # with the tensors, whose identities stay theirs that long
        self._bases: dict[tuple[int, torch.dtype], Tensor] = {}  # over whole storages

    def of(self, tensor: Tensor, *, keep_type: bool = False) -> Tensor:
        if id(tensor) not in self._made:
            with torch.no_grad():
                self._made[id(tensor)] = (tensor, self._make(tensor, tensor.dtype if keep_type or not tensor.is_floating_point() else self._dtype or tensor.dtype))
        return self._made[id(tensor)][1]

    def known(self, tensor: Any) -> Optional[Tensor]:
        made = self._made.get(id(tensor))
        return made and made[1]

    def _make(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.layout is not torch.strided or dtype is not tensor.dtype or tensor.device.type not in (self._device.type, "meta"):
            fake = torch.empty_like(tensor, dtype=dtype, device=self._device)
        else:
            storage = tensor.untyped_storage()
            base = self._bases.get((storage._cdata, dtype))
            if base is None:
                base = self._bases[storage._cdata, dtype] = torch.empty(storage.nbytes() // dtype.itemsize, dtype=dtype, device=self._device)
            fake = base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).detach()
        if isinstance(tensor, nn.Parameter):
            fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
        else:
            fake.requires_grad_(tensor.requires_grad)
        for name, value in vars(tensor).items():  # a script's marks
            vars(fake).setdefault(name, value)
        self._values.tell(fake, tensor)
        return fake


def fake_batch(value: Any, of: Callable[[Tensor], Tensor]) -> Any:
    """The same value with `of` each tensor: in lists, tuples, mappings, dataclasses and other objects' attributes, whose copies it is put into."""
    if isinstance(value, Tensor):
        return of(value)
    if isinstance(value, tuple):
        found = [fake_batch(part, of) for part in value]
        return type(value)(*found) if hasattr(value, "_fields") else tuple(found)
    if isinstance(value, list):
        return [fake_batch(part, of) for part in value]
    if isinstance(value, (nn.Module, type)) or callable(value) or not any(True for _ in tensors_of_batch(value)):
        return value
    made = copy.copy(value)
    if isinstance(value, collections.UserDict):  # a BatchEncoding
        made.data = {key: fake_batch(part, of) for key, part in value.data.items()}
    elif isinstance(value, Mapping):
        for key, part in value.items():
            made[key] = fake_batch(part, of)  # type: ignore[index]
    else:
        for name, part in _attributes(value).items():
            object.__setattr__(made, name, fake_batch(part, of))
    return made


def _attributes(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(getattr(value, "__dict__", {}))


def tensors_of_batch(value: Any) -> Iterator[Tensor]:
    """Tensors that `fake_batch` reaches."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of_batch(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_of_batch(part)
    elif not isinstance(value, (nn.Module, type)) and not callable(value):
        for part in _attributes(value).values():
            yield from tensors_of_batch(part)


class _Exchange:
    """Fake values of the attributes of modules."""

    def __init__(self, fakes: Fakes) -> None:
        self._fakes = fakes
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            # A parameter or a buffer is known by then; a module's other tensors keep their types, as its buffers do.
            return self._fakes.known(value) if self._fakes.known(value) is not None else self._fakes.of(value, keep_type=True)
        if type(value) is tuple:
            return tuple(map(self.of, value))
        if isinstance(value, weakref.ref) and (fake := self._fakes.known(value())) is not None:
            return weakref.ref(fake)  # of recurrent modules, which compare these
        if type(value) not in _CONTAINERS:
            return value
        if id(value) in self._made:
            return self._made[id(value)][1]
        made = copy.copy(value)
        self._made[id(value)] = (value, made)
        if isinstance(value, dict):
            made.update({key: self.of(part) for key, part in value.items()})
        elif isinstance(value, (list, collections.deque)):
            made.clear()
            made.extend(map(self.of, value))
        return made


@contextlib.contextmanager
def exchanged(model: nn.Module, fakes: Fakes) -> Iterator[None]:
    """Inside, all tensors of a model's modules are fake; behind, every attribute of every module is as it was.

    Parameters take the type of `fakes`, except in modules with running statistics; buffers keep theirs, as with `castor.wrap`. Lists and dictionaries
    of modules are copies inside, so what a forward puts into them is gone afterwards.
    """
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    exchange = _Exchange(fakes)
    try:
        for module, _ in before:
            for parameter in module._parameters.values():
                if parameter is not None:
                    fakes.of(parameter, keep_type=isinstance(module, NormBase))
        for module, attributes in before:
            module.__dict__.update({name: exchange.of(value) for name, value in attributes.items()})
        yield
    finally:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
