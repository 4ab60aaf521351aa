# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Who has a tensor's memory, and what is in it."""

from __future__ import annotations

import ctypes
import functools
import zlib

import torch
from torch import Tensor

from castor.torch._torch_internals import storage_uses


_ROW = 509  # elements; a prime, since most lengths of rows are powers of two


def uses_of_storage(values: Tensor) -> int:
    return storage_uses(values.untyped_storage()._cdata)


@functools.cache
def alone() -> int:
    """Uses of a storage that one tensor has, and who asks."""
    return uses_of_storage(torch.empty(1, device="cpu"))


def digest_of(values: Tensor) -> int:
    """Of the bytes of a contiguous tensor in memory of the host."""
    size = values.numel() * values.itemsize
    return zlib.crc32((ctypes.c_char * size).from_address(values.data_ptr())) if size else 0


def device_digest_of(values: Tensor) -> int:
    """Of any tensor, by its own device, for which the host waits. Sums of rows and columns count by their places, so another order is another digest."""
    with torch.no_grad():
        flat = values.detach().reshape(-1).view(torch.uint8 if values.itemsize == 1 else torch.int16)
        whole = flat.numel() // _ROW * _ROW
        rows = flat[:whole].view(-1, _ROW)
        sums = [rows.sum(dim, dtype=torch.int64) for dim in (0, 1)] + [flat[whole:].to(torch.int64)]
        return int(torch.cat([(part * torch.arange(1, part.numel() + 1, device=part.device)).sum().view(1) for part in sums]).sum().item())
