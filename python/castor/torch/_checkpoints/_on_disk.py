# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Tensors over files without names, for states that are written one by one."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch

_SMALL = 1 << 20  # bytes of a tensor that stays in memory until it is written


def on_disk(state: dict[str, Any], folder: str) -> dict[str, Any]:
    """A parameter's states over files without names, so that host memory need not hold those of all parameters at once."""
    return {name: _file_of(value, folder) if isinstance(value, torch.Tensor) and value.nbytes > _SMALL else value for name, value in state.items()}


def _file_of(value: torch.Tensor, folder: str) -> torch.Tensor:
    number, path = tempfile.mkstemp(dir=folder)
    os.close(number)
    try:
        made = torch.from_file(path, shared=True, size=value.numel(), dtype=value.dtype).view(value.shape)
    finally:
        os.unlink(path)  # the mapping keeps the bytes
    return made.copy_(value)
