# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Single tensors of safetensors files and of torch's own, for what the engine does not take from them itself."""

from __future__ import annotations

import json
import math
import os
import pickle
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from castor.errors import Malformed

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}

SAFETENSORS = ("model.safetensors.index.json", "model.safetensors")  # in a folder, the first that is there
_OF_TORCH = ("pytorch_model.bin.index.json", "pytorch_model.bin")  # where there is none of those


def _files_of(path: str) -> list[Path]:
    """As the engine finds them: a file, those of an index, or those of a folder. Files of torch's own where there are none of safetensors."""
    there = Path(path)
    if there.is_dir():
        there = next((there / name for name in (*SAFETENSORS, *_OF_TORCH) if (there / name).exists()), there / SAFETENSORS[0])
    if there.name.endswith(".index.json") and there.exists():
        return [there.parent / name for name in sorted(set(json.loads(there.read_text())["weight_map"].values()))]
    return [there] if there.suffix in (".safetensors", ".bin") and there.exists() else []


class Place(NamedTuple):
    """Where a tensor is."""

    name: str  # in the file
    file: Path
    begin: int  # of its bytes in the file
    size: int  # bytes
    type: str  # as safetensors names it
    shape: list[int]
    values: Tensor | None = None  # over the file, of torch's own files alone

    def dtype(self, floating: bool = False) -> torch.dtype:
        """Malformed where torch has no such type, or has one that is not `floating` where that is asked for."""
        dtype = _TYPES.get(self.type) if self.values is None else self.values.dtype
        if dtype is None or dtype not in _TYPES.values() or self.size != math.prod(self.shape) * dtype.itemsize or (floating and not dtype.is_floating_point):
            raise Malformed(f"{self.name} in {str(self.file)!r} is {self.type} of {self.size} bytes, which no tensor here is made from")
        return dtype

    def read(self) -> Tensor:
        """The values on the CPU. Malformed as of `dtype`."""
        dtype = self.dtype()
        if self.values is not None:
            return self.values
        with open(self.file, "rb") as data:
            data.seek(self.begin)
            content = bytearray(data.read(self.size))
        return (torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)).reshape(self.shape)


def places_of(path: str) -> dict[str, Place]:
    """All tensors of a file, of an index's files or of a folder's, by their names; none where there is no file of weights."""
    found: dict[str, Place] = {}
    for file in _files_of(path):
        if file.suffix == ".bin":
            found.update(_places_of_torch(file))
            continue
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
                found[name] = Place(name, file, 8 + size + begin, end - begin, about["dtype"], about["shape"])
    return found


def _places_of_torch(file: Path) -> dict[str, Place]:
    """Those of a file that torch.save wrote. Their values stay on the drive until they are read; a file from before torch 1.6 is read whole."""
    try:
        try:
            tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # an older format, which cannot be mapped
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Malformed(f"{str(file)!r} has no tensors that torch.load takes with weights_only=True: {error}") from error
    if not isinstance(tensors, dict) or not all(isinstance(name, str) and isinstance(values, Tensor) for name, values in tensors.items()):
        raise Malformed(f"{str(file)!r} has more than tensors by names; save its state_dict alone")
    return {name: Place(name, file, 0, values.numel() * values.itemsize, str(values.dtype), list(values.shape), values.detach()) for name, values in tensors.items()}
