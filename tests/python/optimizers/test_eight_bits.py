# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Moments in 8 bits: the same bits wherever they are, a quarter of the memory, and nearly the losses of float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run
from torch import nn

import castor.torch as castor
from castor import _plan as plan

WIDTH = 96  # of matrices with 9,216 elements; biases and norms keep float32


def made(optimizer: Any = torch.optim.AdamW, dtype: torch.dtype = torch.float32, **wrap: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)).to(dtype)
    return castor.wrap(model, optimizer(model.parameters(), lr=3e-3), **{"device": "8MiB", "host": "64MiB", "state_dtype": "8bit"} | wrap)


def trained(model: Any, optimizer: Any, steps: range) -> list[float]:
    losses = []
    for step in steps:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)).to(next(model.parameters()).dtype)
        loss = (model(x) - x.flip(1).sin()).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def exact(model: Any) -> list[torch.Tensor]:
    return [castor.exact(p).clone() for p in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_bit_depends_on_chunks_homes_or_the_time_of_an_update(dtype: torch.dtype, tmp_path: Path) -> None:
    ends = []
    for wrap in (
        {},
        {"chunk": "48KiB", "place": {"*": "host"}},
        {"chunk": "96KiB", "place": {"*": {"exp_avg": "nvme", "exp_avg_sq": "host"}}, "nvme": str(tmp_path)},
        {"device": "448KiB", "host": "512KiB", "nvme": str(tmp_path), "chunk": "48KiB"},
        {"update_in_backward": True, "place": {"*": "host"}},
    ):
        model, optimizer = made(dtype=dtype, **wrap)
        ends.append((trained(model, optimizer, range(8)), exact(model)))
    for losses, weights in ends[1:]:
        assert losses == ends[0][0]
        assert all(map(torch.equal, weights, ends[0][1]))


def test_no_bit_depends_on_ranks(tmp_path: Path) -> None:
    digests = [digest for ranks in (1, 2, 4) for digest in run("eight_bits", ranks, tmp_path)]
    assert len(digests) == 15 and len(set(digests)) == 1


def test_losses_are_nearly_those_of_float32() -> None:
    """Over the last steps the loss of each is within 3 % of the other."""
    ends = []
    for state_dtype in (None, "8bit"):
        model, optimizer = made(state_dtype=state_dtype)
        losses = trained(model, optimizer, range(400))
        ends.append(sum(losses[-50:]))
        assert ends[-1] < 0.2 * sum(losses[:50])
    assert ends[1] == pytest.approx(ends[0], rel=0.03)


def test_moments_take_a_quarter_of_the_memory() -> None:
    peak = {}
    for state_dtype in (None, torch.bfloat16, "8bit"):
        torch.manual_seed(0)
        model: Any = nn.Linear(512, 512)
        model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="8MiB", host="64MiB", place={"*": "host"}, state_dtype=state_dtype)
        model(torch.ones(2, 512)).sum().backward()
        optimizer.step()
        peak[state_dtype] = optimizer.runtime.engine.stats()["host_peak_bytes"]
    elements = 512 * 512
    assert peak[None] - peak["8bit"] > 2 * (4 - 1.04) * elements
    assert peak[torch.bfloat16] - peak["8bit"] > 2 * (2 - 1.04) * elements


def test_a_plan_counts_them() -> None:
    model: Any = nn.Linear(512, 512, bias=False)
    held = {}
    for moments in ("f32", "8bit"):
        found = plan.plan(model, optimizer=torch.optim.AdamW(model.parameters()), device_budget="64MiB", host_budget="64MiB", moments=moments)
        held[moments] = sum(tier.planned_bytes for tier in found.tiers)
    elements = 512 * 512
    assert held["f32"] - held["8bit"] == pytest.approx(2 * (4 - 132 / 128) * elements, rel=0.02)


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    model, optimizer = made(torch.optim.Adam, place={"*": "host"})
    trained(model, optimizer, range(3))
    castor.save(str(tmp_path), model)
    trained(model, optimizer, range(3, 6))
    other, others = made(torch.optim.Adam, chunk="48KiB")
    castor.load(str(tmp_path), other)
    trained(other, others, range(3, 6))
    assert all(map(torch.equal, exact(other), exact(model)))


def test_states_are_read_and_set_as_float32() -> None:
    model, optimizer = made()
    trained(model, optimizer, range(3))
    state = optimizer.state_dict()
    weights = model.state_dict()
    moments = state["state"][2]["exp_avg"]
    assert moments.dtype is torch.float32 and moments.shape == (WIDTH, WIDTH)
    assert len(moments.flatten()[:128].abs().unique()) <= 128  # codes of a block
    other, others = made(place={"*": "host"})
    other.load_state_dict(weights)
    others.load_state_dict(state)
    trained(model, optimizer, range(3, 6))
    trained(other, others, range(3, 6))
    assert all(map(torch.equal, exact(other), exact(model)))


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)])
def test_each_optimizer_that_castor_updates_by(optimizer: Any) -> None:
    model, optimizer = made(optimizer)
    losses = trained(model, optimizer, range(60))
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_other_optimizers_and_other_words_are_refused() -> None:
    with pytest.raises(castor.InvalidArgument, match="state_dtype is 4bit: give torch.bfloat16, '8bit', or None"):
        made(state_dtype="4bit")
    with pytest.raises(castor.InvalidArgument, match="a custom optimizer keeps its states in F32"):
        made(lambda p, lr: torch.optim.RMSprop(p, lr=lr))


def test_trainers_take_the_word_too() -> None:
    from castor.torch._arguments import checked_of_wrap

    assert checked_of_wrap({"state_dtype": "8bit"}, "castor=")["state_dtype"] == "8bit"
    assert checked_of_wrap({"state_dtype": "bfloat16"}, "castor=")["state_dtype"] is torch.bfloat16
    with pytest.raises(castor.InvalidArgument, match="give a name of torch's types"):
        checked_of_wrap({"state_dtype": "9bit"}, "castor=")
