# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The chunk-size search: which size of chunks wastes least, proved."""

from __future__ import annotations

import ctypes
import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from castor import _abi, _command
from castor.sizes import format_size

# A name, a shape and a type as safetensors names it, in initialization order.
TensorSpec = tuple[str, Sequence[int], str]


@dataclass(frozen=True)
class ChunkChoice:
    """A chunk size and what it costs."""

    mode: str
    chunk_bytes: int
    chunks: int
    oversize_chunks: int
    waste_bytes: int
    waste_fraction: float
    gathered_bytes: int
    reason: str


@dataclass(frozen=True)
class SearchResult:
    """What `search` found. ``document`` is all of it, as `castor search --json` writes it."""

    elements: int
    total_bytes: int
    best: ChunkChoice
    recommended: ChunkChoice
    optimal: bool
    candidates: tuple[ChunkChoice, ...]
    document: dict[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        best = self.recommended
        proof = "proved least" if self.optimal else "best found"
        return (f"SearchResult({self.elements} elements, {format_size(self.total_bytes)}: {best.chunks} chunks of {format_size(best.chunk_bytes)} "
                f"waste {best.waste_fraction:.2%}, {proof})")

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{word}</th>" for word in ("mode", "chunk", "chunks", "oversize", "waste", "gathered", "why"))
        rows = "".join(
            f"<tr><td>{c.mode}</td><td>{format_size(c.chunk_bytes)}</td><td>{c.chunks}</td><td>{c.oversize_chunks}</td>"
            f"<td>{c.waste_fraction:.2%}</td><td>{format_size(c.gathered_bytes)}</td><td>{html.escape(c.reason)}</td></tr>"
            for c in self.candidates
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def specs_of(model: Union[Iterable[TensorSpec], Any]) -> list[TensorSpec]:
    """A list of parameters from a torch module (on the meta device too) or a list."""
    if hasattr(model, "named_parameters"):
        from castor.torch._parameters._stored import stored

        return [(name, *reversed(stored(p.dtype, p.shape))) for name, p in model.named_parameters()]
    return list(model)


def _document(model: Union[str, Path, Iterable[TensorSpec], Any], options: dict[str, Any]) -> dict[str, Any]:
    if isinstance(model, (str, Path)):
        return _command.ask(["search", str(model), *_command.flags_of(options)])
    specs = specs_of(model)
    tensors = (_abi.Tensor * len(specs))()
    for tensor, (name, shape, dtype) in zip(tensors, specs):
        tensor.name, tensor.dtype = name.encode(), dtype.encode()
        tensor.dims, tensor.dim_count = (ctypes.c_int64 * len(shape))(*shape), len(shape)
    text = ctypes.c_char_p()
    _abi.check(_abi.lib.castor_search_run(tensors, len(specs), json.dumps(options).encode(), ctypes.byref(text)))
    document: dict[str, Any] = json.loads(text.value or b"{}")
    return document


def search(model: Union[str, Path, Iterable[TensorSpec], Any], **options: Any) -> SearchResult:
    """Finds the chunk size that wastes least.

    Args:
      model: what `castor search` takes (a config.json, a folder of a model, weights), a torch module (on the meta device too), or
        (name, shape, dtype) in initialization order.
      options: those of `castor search`, with underscores: ``min="1MiB"``, ``max="512MiB"``, ``world=8``, ``device_budget="8GiB"``, ``mode=...``.

    Raises:
      InvalidArgument, Malformed: names the tensor or the option. DoesNotFit: says what budget would do.
    """
    document = _document(model, options)
    names = ChunkChoice.__dataclass_fields__

    def choice(of: dict[str, Any]) -> ChunkChoice:
        return ChunkChoice(**{name: of[name] for name in names})

    return SearchResult(
        elements=document["model"]["elements"],
        total_bytes=document["model"]["total_bytes"],
        best=choice(document["best"]),
        recommended=choice(document["recommended"]),
        optimal=document["certificate"]["optimal"],
        candidates=tuple(choice(c) for c in document["candidates"]),
        document=document,
    )
