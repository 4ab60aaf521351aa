# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Single tensors of safetensors files, for what is not in chunks: buffers, and parameters of ignored modules. Chunks are filled by the engine."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

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


def read_tensors(path: str, names: Iterable[str]) -> dict[str, Tensor]:
    """Those of the names that there are, on the CPU."""
    wanted, found = set(names), {}
    for file in _files_of(path) if wanted else []:
        with open(file, "rb") as data:
            size = int.from_bytes(data.read(8), "little")
            try:
                header = json.loads(data.read(size)) if size <= os.path.getsize(file) else None
            except ValueError:
                header = None
            if not isinstance(header, dict):
                raise Malformed(f"{str(file)!r} is no safetensors file")
            for name in wanted & set(header):
                about = header[name]
                dtype, (begin, end) = _TYPES.get(about["dtype"]), about["data_offsets"]
                if dtype is None or end - begin != math.prod(about["shape"]) * dtype.itemsize:
                    raise Malformed(f"{name} in {str(file)!r} is {about['dtype']} of {end - begin} bytes, which no tensor here is made from")
                data.seek(8 + size + begin)
                content = bytearray(data.read(end - begin))
                found[name] = (torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)).reshape(about["shape"])
    return found
