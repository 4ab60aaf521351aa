# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models that are built without memory for their parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from models import PLAIN, Case, gpt2, language


def trained(case: Case, **wrap: Any) -> tuple[list[float], int]:
    torch.manual_seed(5)
    with castor.lazy_init():
        model: Any = case.make()
    assert all(p.is_meta for p in model.parameters())
    assert not any(b.is_meta for b in model.buffers())
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(5)
    model, optimizer = castor.wrap(model, optimizer, **wrap)
    losses = []
    for step in range(8):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = case.loss(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer.runtime.engine.digest()


CASES = [case for case in PLAIN if case.name in ("lstm", "multihead_attention", "transformer_encoder", "resnet", "tied")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_the_same_under_every_budget_and_stage(case: Case) -> None:
    losses, digest = trained(case, device="64MiB", host="64MiB")
    assert losses[-1] < losses[0]
    assert trained(case, device="256KiB", host="64MiB", chunk="8KiB", stage=1) == (losses, digest)


def test_the_generators_of_gpus_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's own code is tried, and a lazy model drawn, from the CPU's generator, whose state comes back."""
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with castor.lazy_init():
        model: Any = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    optimizer: Any = torch.optim.NAdam(model.parameters(), lr=1e-2)
    before = torch.get_rng_state()
    castor.wrap(model, optimizer, device="1MiB", host="1MiB")
    assert seeds == []
    assert torch.equal(torch.get_rng_state(), before)


def test_models_of_transformers_are_initialised_as_they_say() -> None:
    pytest.importorskip("transformers")
    losses, _ = trained(Case("gpt2", gpt2, language), device="64MiB", host="64MiB")
    assert losses[0] == pytest.approx(4.16, abs=0.1)  # the logarithm of 64 words: nothing is known yet
    assert losses[-1] < losses[0]


def test_what_nobody_initialises_is_named() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

    with castor.lazy_init():
        model = nn.Sequential(nn.Linear(4, 4), Scale())
    with pytest.raises(castor.InvalidArgument, match=r"1\.scale has no initial values"):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB")
