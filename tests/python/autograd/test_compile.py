# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Modules that torch.compile compiles, before castor.wrap, after it, and inside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from models import gpt2, language
from older_torch import needs_torch


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def squares(model: Any, step: int) -> torch.Tensor:
    return model(torch.randn(2, 8, generator=torch.Generator().manual_seed(step))).pow(2).mean()


def train(make: Any, loss_of: Any, order: str, backend: str, wrap: Any) -> list[float]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model: Any = make()
    if order == "inside":
        for name, child in model.named_children():
            setattr(model, name, torch.compile(child, backend=backend))
    elif order == "before":
        model = torch.compile(model, backend=backend)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if wrap is not None:
        model, optimizer = castor.wrap(model, optimizer, **wrap)
    if order == "after":
        model = torch.compile(model, backend=backend)
    losses = []
    for step in range(4):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if order != "not":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
    return losses


@needs_torch("2.7", "frames are left uncompiled one by one, and Castor is not shown to work under torch.compile")
@pytest.mark.parametrize("order", ["before", "after", "inside"])
def test_what_is_compiled_trains_as_what_is_not(order: str, tmp_path: Path) -> None:
    tight = {"device": "64KiB", "host": "64KiB", "nvme": str(tmp_path), "chunk": "512B", "config": {"poison": True}}
    want = train(small, squares, "not", "", None)
    assert train(small, squares, order, "inductor", tight) == pytest.approx(want, rel=1e-5)
    transformer = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB", "config": {"poison": True}}
    want = train(gpt2, language, "not", "", None)
    assert train(gpt2, language, order, "aot_eager", transformer) == pytest.approx(want, rel=1e-5)
