# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models that a trainer only evaluates, such as the reference of DPO: in chunks of their own, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch
from torch import nn

from castor.errors import InvalidArgument
from castor.sizes import format_size, parse_size
from castor.torch._wrap import wrap

_SHARE = 5  # a trained model has about five times the bytes of a frozen one: weights, a gradient, two moments
_SLACK = 1 << 20  # bytes of ends of chunks
_SHARED = ("nvme", "stage", "shard", "dtype", "keep_fp32", "buffer_dtype", "on", "timeout_s", "check", "chunk", "config")


def budgets_of_frozen(model: nn.Module, arguments: Mapping[str, Any], frozen: Optional[Mapping[str, Any]]) -> Optional[dict[str, Any]]:
    """The arguments of `castor.torch.wrap` for a frozen model; None: the model stays as plain PyTorch has it.

    Args:
      arguments: those of the trained model. ``device`` counts for all models of the trainer together, and so does ``host``.
      frozen: arguments that go before; None: a fifth of ``device``, where it is a size.
    """
    device, host = arguments.get("device", "auto"), arguments.get("host", "auto")
    if frozen is None and device == "auto":
        return None
    made = {name: arguments[name] for name in _SHARED if name in arguments}
    if device != "auto":
        made["device"] = parse_size(device, "device") // _SHARE
    if host != "auto":
        made["host"] = parse_size(host, "host") // _SHARE
    elif "nvme" not in arguments:  # "auto" would take most of the memory, and leave little to the trained model
        made["host"] = sum(p.numel() * 4 for p in model.parameters()) * 5 // 4 + _SLACK
    return {**made, **(frozen or {})}


def wrap_frozen(model: nn.Module, arguments: Mapping[str, Any]) -> nn.Module:
    """The model with its parameters in chunks, none of them trained. All ranks call it."""
    model.requires_grad_(False)
    wrapped, _ = wrap(model, torch.optim.SGD([{"params": []}], lr=0.0), **arguments)
    return wrapped


def left_over(arguments: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the trained model once a frozen one has its budgets."""
    left = dict(arguments)
    for tier in ("device", "host"):
        if left.get(tier, "auto") != "auto" and taken.get(tier, "auto") != "auto":
            whole, part = parse_size(left[tier], tier), parse_size(taken[tier], tier)
            if part >= whole:
                raise InvalidArgument(f"frozen models of the trainer take {format_size(part)} of {tier}, and castor= gives all models {format_size(whole)}: "
                                      f"give more, or less to frozen models by castor={{..., 'frozen': {{'{tier}': ...}}}}")
            left[tier] = whole - part
    return left
