# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How chunks hold the values of a parameter: as numbers that Castor trains, or as the bytes of a frozen weight of any other type.

Integers and float8 are quantized by others, who alone know what the bytes mean. The engine reads and writes values in float32, of bytes 0.0 to 255.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from castor.torch._torch_internals import is_made_of_tensors

TRAINED = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_BYTES = "U8"


def are_bytes(dtype: torch.dtype) -> bool:
    return dtype not in TRAINED


def holds(tensor: Tensor) -> bool:
    """Whether chunks can hold a frozen tensor as it is: one memory, row-major, of whole bytes."""
    return not is_made_of_tensors(tensor) and tensor.layout is torch.strided and not tensor.dtype.is_complex and not tensor.is_quantized


def stored(dtype: torch.dtype, shape: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """The engine's type and shape."""
    if not are_bytes(dtype):
        return TRAINED[dtype], tuple(shape)
    return _BYTES, (*shape[:-1], (shape[-1] if shape else 1) * dtype.itemsize)


def stored_elements(dtype: torch.dtype, elements: int) -> int:
    return elements * dtype.itemsize if are_bytes(dtype) else elements


def bytes_of(values: Tensor) -> Tensor:
    """A flat tensor over the same memory, or over a row-major copy."""
    return values.detach().contiguous().reshape(-1).view(torch.uint8)


def to_floats(values: Tensor, dtype: torch.dtype) -> Tensor:
    """What the engine is given for values of a parameter of this type: flat float32 on the CPU."""
    flat = bytes_of(values) if are_bytes(dtype) else values.detach().reshape(-1)
    return flat.to("cpu", torch.float32).contiguous()


def from_floats(floats: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """What the engine gave: bytes in their own type, other values in float32."""
    if are_bytes(dtype):
        floats = floats.to(torch.uint8).view(dtype)
    return floats.reshape(tuple(shape))
