# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Modules that `wrap` is told to ignore are part of the model: saved, zeroed, clipped. Ranks average them (ranks_worker.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor


def made(wraps: bool = True) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 2))
    first: Any = torch.optim.SGD(list(model[0].parameters()) + list(model[3].parameters()), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.1)
    if wraps:
        model, first = castor.wrap(model, first, ignore=[model[2]])
    return model, first, second


def backward(model: Any, step: int = 0) -> None:
    model(torch.randn(8, 4, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()


def test_a_checkpoint_has_their_parameters_and_buffers(tmp_path: Path) -> None:
    model, first, second = made()
    for step in range(3):
        backward(model, step)
        first.step(), second.step()
        model.zero_grad()
    castor.save(str(tmp_path), model)
    want = {name: values.clone() for name, values in model.state_dict().items()}
    other, _, _ = made()
    with torch.no_grad():
        other[2].weight.fill_(7.0)
    castor.load(str(tmp_path), other)
    for name, values in other.state_dict().items():
        assert torch.equal(values, want[name]), name


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e6])
def test_clipping_counts_and_clips_them(limit: float, by_model: bool) -> None:
    norms, weights = [], []
    for wraps in (False, True):
        model, first, second = made(wraps)
        for step in range(3):
            backward(model, step)
            norms.append(model.clip_grad_norm_(limit) if wraps and by_model else nn.utils.clip_grad_norm_(model.parameters(), limit))
            first.step(), second.step()
            model.zero_grad()
        weights.append([p.detach().clone() for p in model.parameters()])
    torch.testing.assert_close(torch.stack(norms[3:]), torch.stack(norms[:3]), rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(*weights):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_zero_grad_of_the_model_drops_theirs() -> None:
    model, first, _ = made()
    backward(model)
    assert model[2].weight.grad is not None
    first.zero_grad()
    assert model[2].weight.grad is not None, "the optimizer has none of them"
    model.zero_grad(set_to_none=False)
    assert model[2].weight.grad is not None and not model[2].weight.grad.any()
    model.zero_grad()
    assert model[2].weight.grad is None
