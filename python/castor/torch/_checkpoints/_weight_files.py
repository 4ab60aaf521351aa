# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Single tensors of safetensors files, for what the engine does not take from them itself."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from castor.errors import Malformed

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def _files_of(path: str) -> list[Path]:
    """As the engine finds them: a file, those of an index, or those of a folder."""
    there = Path(path)
    if there.is_dir():
        index, whole = there / "model.safetensors.index.json", there / "model.safetensors"
        there = index if index.exists() else whole
    if there.name.endswith(".index.json") and there.exists():
        return [there.parent / name for name in sorted(set(json.loads(there.read_text())["weight_map"].values()))]
    return [there] if there.suffix == ".safetensors" and there.exists() else []


class Place(NamedTuple):
    """Where a tensor is."""

    file: Path
    begin: int  # of its bytes in the file
    size: int  # bytes
    type: str  # as safetensors names it
    shape: list[int]

    def dtype(self, name: str, floating: bool = False) -> torch.dtype:
        """Malformed where torch has no such type, or has one that is not `floating` where that is asked for."""
        dtype = _TYPES.get(self.type)
        if dtype is None or self.size != math.prod(self.shape) * dtype.itemsize or (floating and not dtype.is_floating_point):
            raise Malformed(f"{name} in {str(self.file)!r} is {self.type} of {self.size} bytes, which no tensor here is made from")
        return dtype

    def read(self, name: str) -> Tensor:
        """The values on the CPU. Malformed as of `dtype`."""
        dtype = self.dtype(name)
        with open(self.file, "rb") as data:
            data.seek(self.begin)
            content = bytearray(data.read(self.size))
        return (torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)).reshape(self.shape)


def places_of(path: str) -> dict[str, Place]:
    """All tensors of a file, of an index's files or of a folder's, by their names; none where there is no safetensors file."""
    found: dict[str, Place] = {}
    for file in _files_of(path):
        with open(file, "rb") as data:
            size = int.from_bytes(data.read(8), "little")
            try:
                header = json.loads(data.read(size)) if size <= os.path.getsize(file) else None
            except ValueError:
                header = None
        if not isinstance(header, dict):
            raise Malformed(f"{str(file)!r} is no safetensors file")
        for name, about in header.items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                found[name] = Place(file, 8 + size + begin, end - begin, about["dtype"], about["shape"])
    return found
