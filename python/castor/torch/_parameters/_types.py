# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Which types parameters, buffers and inputs have where `wrap` is given a dtype.

Floating inputs of the model are cast to it. A module that computes in float32 has its inputs cast to that, and its outputs cast back. What tensors a model
makes of its own, such as the cosines and sines of rotary embeddings, stay as they are.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Optional, Union

import torch
from torch import nn

from castor.errors import InvalidArgument
from castor.torch._parameters._stored import TRAINED, are_bytes
from castor.torch._torch_internals import NormBase


EIGHT_BITS: Final = "8bit"
"""A `state_dtype` that is no type of torch: blocks of 128 bytes and their scale."""


def moments_in(state_dtype: Union[torch.dtype, str, None]) -> Optional[str]:
    """What an engine keeps moments in, by its option's word; None: its default."""
    if state_dtype in (None, torch.float32):
        return None
    if state_dtype == EIGHT_BITS:
        return EIGHT_BITS
    if state_dtype is not torch.bfloat16:
        raise InvalidArgument(f"state_dtype is {state_dtype}: give torch.bfloat16, '8bit', or None for float32")
    return "BF16"


class Types:
    """What was asked of one model."""

    def __init__(self, dtype: Optional[torch.dtype], keep_fp32: Sequence[str], buffer_dtype: Optional[torch.dtype]) -> None:
        if dtype is not None and dtype not in TRAINED:
            raise InvalidArgument(f"dtype is {dtype}: give torch.float32, torch.bfloat16 or torch.float16")
        if buffer_dtype is not None and not buffer_dtype.is_floating_point:
            raise InvalidArgument(f"buffer_dtype is {buffer_dtype}: give a floating type, or None to leave buffers as they are")
        self._dtype = dtype
        self._patterns = [keep_fp32] if isinstance(keep_fp32, str) else list(keep_fp32)
        self._buffer_dtype = buffer_dtype
        self._kept: dict[int, nn.Module] = {}
        self._kept_parameters: set[int] = set()

    def look_at(self, model: nn.Module) -> None:
        """Finds what stays in float32: modules whose names match, with all inside them. Where a pattern names none, parameters."""
        for pattern in self._patterns:
            found = [module for name, module in model.named_modules() if fnmatchcase(name, pattern)]
            for outer in found:
                self._kept.update((id(module), module) for module in outer.modules())
            if not found:
                parameters = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if fnmatchcase(name, pattern)}
                if not parameters:
                    raise InvalidArgument(
                        f"keep_fp32 has {pattern!r}, which is the name of no module and of no parameter: names are those of model.named_modules() and "
                        "model.named_parameters()"
                    )
                self._kept_parameters |= parameters

    def of_parameter(self, module: nn.Module, tensor: torch.Tensor) -> torch.dtype:
        """The type of a module's own parameter from now on."""
        if are_bytes(tensor.dtype) and tensor.dtype is not torch.float64:
            return tensor.dtype
        if id(module) in self._kept or id(tensor) in self._kept_parameters:
            return torch.float32
        if self._dtype is None:
            return tensor.dtype
        if isinstance(module, NormBase) and module.track_running_stats and tensor.dtype is torch.float32:
            return torch.float32  # as its statistics; inputs may be of another type
        return self._dtype

    def of_buffer(self, buffer: torch.Tensor) -> torch.dtype:
        return self._buffer_dtype if self._buffer_dtype is not None and buffer.is_floating_point() else buffer.dtype

    def hook(self, model: nn.Module) -> None:
        """Has inputs and outputs cast."""
        if self._dtype is not None:
            model.register_forward_pre_hook(_InputCast(self._dtype), with_kwargs=True)
        for module in self._kept.values():
            fp32 = _Fp32Casts(self._dtype)
            module.register_forward_pre_hook(fp32.before, with_kwargs=True)
            module.register_forward_hook(fp32.after, with_kwargs=True, always_call=True)


class _InputCast:
    """Of a whole model. Copies of the model have it too, and can be given another type."""

    def __init__(self, dtype: torch.dtype, copied: bool = False) -> None:
        self._dtype = dtype
        self._copied = copied

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> Any:
        if self._copied and all(p.dtype is not self._dtype for p in module.parameters()):
            return None
        return _cast(arguments, self._dtype), _cast(keywords, self._dtype)

    def __deepcopy__(self, memo: Any) -> _InputCast:
        return _InputCast(self._dtype, copied=True)


class _Fp32Casts:
    """Around a module that computes in float32. `others`: the type of the rest of the model; None: what comes in."""

    def __init__(self, others: Optional[torch.dtype]) -> None:
        self._others = others
        self._came: list[Optional[torch.dtype]] = []  # in, of calls under way

    def before(self, _module: nn.Module, arguments: Any, keywords: Any) -> Any:
        self._came.append(self._others or _floating_in((arguments, keywords)))
        return _cast(arguments, torch.float32), _cast(keywords, torch.float32)

    def after(self, _module: nn.Module, _arguments: Any, _keywords: Any, result: Any) -> Any:
        dtype = self._came.pop() if self._came else None
        return result if dtype in (None, torch.float32) or result is None else _cast(result, dtype)


def _floating_in(of: Any) -> Optional[torch.dtype]:
    if isinstance(of, torch.Tensor):
        return of.dtype if of.is_floating_point() else None
    inside = of.values() if isinstance(of, dict) else of if isinstance(of, (list, tuple)) else ()
    return next((found for found in map(_floating_in, inside) if found is not None), None)


def _cast(of: Any, dtype: torch.dtype) -> Any:
    """The same with floating tensors in a type, in lists, tuples and dicts too."""
    if isinstance(of, torch.Tensor):
        return of.to(dtype) if of.is_floating_point() else of
    if type(of) in (list, tuple):
        return type(of)(_cast(one, dtype) for one in of)
    if isinstance(of, tuple) and hasattr(of, "_fields"):
        return type(of)(*(_cast(one, dtype) for one in of))
    if isinstance(of, (dict, UserDict)):
        made = copy.copy(of)  # a ModelOutput too, whose attributes are its items
        for key in list(made):
            if made[key] is not None:
                made[key] = _cast(made[key], dtype)
        return made
    if dataclasses.is_dataclass(of) and not isinstance(of, type):
        made = copy.copy(of)
        for field in dataclasses.fields(of):
            object.__setattr__(made, field.name, _cast(getattr(of, field.name), dtype))
        return made
    return of
