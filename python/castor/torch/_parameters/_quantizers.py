# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What libraries that quantize do with their weights, and chunks have to know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from castor.errors import FailedPrecondition
from castor.torch._parameters._stored import are_bytes

# bitsandbytes 0.50: on a CPU with AVX512-BF16 an evaluation lays a 4-bit weight out anew, in memory of its own. The other path computes the same.
_LAYS_OUT_ANEW = "support_avx512bf16_for_cpu"


def leave_layouts(modules: Iterable[nn.Module]) -> None:
    """Has forwards take weights as they are."""
    for module in modules:
        if getattr(module, _LAYS_OUT_ANEW, False):
            setattr(module, _LAYS_OUT_ANEW, False)


def refuse_merges(modules: Iterable[nn.Module]) -> None:
    """Adapters are not added to weights that somebody has quantized: the sum is another weight, of another layout."""

    def refuse(*_: Any, **__: Any) -> None:
        raise FailedPrecondition("the adapter is over a quantized weight in a chunk, which cannot take the sum: save the adapter by model.save_pretrained, and "
                                 "merge it into a model that is not wrapped")

    for module in modules:
        base = getattr(module, "base_layer", None)
        if isinstance(base, nn.Module) and hasattr(module, "merge") and any(are_bytes(p.dtype) for p in base.parameters(recurse=False)):
            module.merge = module.unmerge = refuse  # type: ignore[assignment]


def kept_beside(module: nn.Module, tensor: nn.Parameter) -> set[str]:
    """Further names of a weight's memory, as ``CB`` of bitsandbytes' Int8Params."""
    address = tensor.untyped_storage().data_ptr()
    places: tuple[Any, ...] = (tensor, module, getattr(module, "state", None))
    return {attribute for place in places for attribute, value in getattr(place, "__dict__", {}).items()
            if isinstance(value, torch.Tensor) and value is not tensor and value.numel() and value.untyped_storage().data_ptr() == address}
