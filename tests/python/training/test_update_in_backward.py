# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Chunks updated in the backward have the bits of those updated after it, and what cannot be so is refused."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
import harness
from models import PLAIN, Case, of_transformers

CASES = [*PLAIN, *of_transformers()]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("placed", ["resident", "drive"])
def test_the_bits_are_those_of_an_update_after_it(case: Case, placed: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {} if placed == "resident" else {"place": {"*": "nvme"}, "nvme": str(tmp_path), "device": "8MiB", "host": "8MiB"}
    late = harness.train(case.make, case.loss, where)
    early = harness.train(case.make, case.loss, where | {"update_in_backward": True})
    assert early.losses == late.losses
    for name, values in late.weights.items():
        assert torch.equal(early.weights[name], values), name
    if placed == "drive":
        assert early.stats["nvme_written_bytes"] < late.stats["nvme_written_bytes"], "gradients go to no drive"


def wrapped(**more: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.1), update_in_backward=True, **more)


def backward(model: Any) -> None:
    model(torch.ones(2, 8)).sum().backward()


def same_either_way(kind: Any, step: Any) -> None:
    """Three steps, each by `step(model, optimizer)`, in and after the backward."""
    weights = []
    for early in (True, False):
        torch.manual_seed(0)
        model: Any = nn.Linear(8, 4)
        model, optimizer = castor.wrap(model, kind(model.parameters(), lr=0.1), update_in_backward=early)
        for _ in range(3):
            step(model, optimizer)
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)


def test_micro_batches_before_the_last_are_marked() -> None:
    def step(model: Any, optimizer: Any) -> None:
        with model.no_sync():
            backward(model)
        backward(model)
        optimizer.step()

    same_either_way(torch.optim.SGD, step)


def test_a_schedule_changes_the_rate_between_steps() -> None:
    def step(model: Any, optimizer: Any) -> None:
        backward(model)
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5

    same_either_way(torch.optim.AdamW, step)


def test_what_must_know_all_gradients_is_refused() -> None:
    for more in ({"max_norm": 1.0}, {"initial_scale": 1024.0}):
        with pytest.raises(castor.InvalidArgument, match="leave max_norm= and initial_scale= away"):
            wrapped(**more)
    model, optimizer = wrapped()
    backward(model)
    with pytest.raises(castor.FailedPrecondition, match="do not clip"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert optimizer.grad_norm is None


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("placed", ["resident", "drive"])
def test_a_forward_that_is_refused_has_not_begun(early: bool, placed: str, tmp_path: Path) -> None:
    """Who catches the error and makes the step trains on as if nothing had been tried."""
    where: dict[str, Any] = {} if placed == "resident" else {"place": {"*": "nvme"}, "nvme": str(tmp_path), "device": "8MiB", "host": "8MiB"}
    weights = []
    for tries in (False, True):
        torch.manual_seed(0)
        model: Any = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.1), update_in_backward=early, **where)
        for _ in range(3):
            backward(model)
            if not early:
                model.clip_grad_norm_(1.0)
            if tries and (early or where):  # resident parameters are plain
                with pytest.raises(castor.FailedPrecondition, match="used already"):
                    model(torch.ones(2, 8))
            optimizer.step()
        weights.append({name: values.clone() for name, values in model.state_dict().items()})
    for name, values in weights[0].items():
        assert torch.equal(weights[1][name], values), name


@pytest.mark.parametrize("early", [False, True])
def test_a_backward_after_the_model_is_refused(early: bool) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 4))
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="1MiB", host="1MiB", update_in_backward=early)
    loss = model(torch.ones(2, 64)).sum()
    del model, optimizer
    gc.collect()
    with pytest.raises(castor.FailedPrecondition, match="the wrapped model is gone"):
        loss.backward()


def test_a_backward_is_final() -> None:
    model, optimizer = wrapped()
    backward(model)
    with pytest.raises(castor.FailedPrecondition, match="is updated already"):
        optimizer.zero_grad()
    with pytest.raises(castor.FailedPrecondition, match="used already"):
        backward(model)
    optimizer.step()
    backward(model)
    optimizer.step()
    model, optimizer = wrapped()
    backward(model)
    optimizer.param_groups[0]["lr"] = 0.2
    with pytest.raises(castor.FailedPrecondition, match="updated already"):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    backward(model)
    optimizer.step()


class Block(nn.Module):
    """Of which a chunk has a trained parameter that no step uses, if asked for."""

    def __init__(self, unused: bool) -> None:
        super().__init__()
        self.a = nn.Linear(128, 128)
        self.spare = nn.Parameter(torch.zeros(64)) if unused else None
        self.b = nn.Linear(128, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


@pytest.mark.parametrize("every", [0, 1, 3])
def test_a_recorded_step_moves_what_is_simulated_of_it(every: int, tmp_path: Path) -> None:
    """`every`: so many blocks have an unused parameter in between; 0: none has. Its chunk is updated when the step ends."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(*(Block(every > 0 and number % every == 0) for number in range(8)))
    with castor.record(tmp_path / "run.rec"):
        model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-3), device="1500KiB", host="1800KiB", nvme=str(tmp_path),
                                       update_in_backward=True, chunk=160 << 10)
        for _ in range(8):
            model(torch.randn(4, 128)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        del model, optimizer
    recorded = castor.report(tmp_path / "run.rec").document["steps"][-2]["link_bytes"]
    (point,) = castor.simulate(tmp_path / "run.rec").document["points"]
    simulated = {f"{link['from']} -> {link['to']}": link["bytes"] for link in point["step"]["moved"]}
    assert recorded["host -> nvme"] > 0
    assert {link: moved for link, moved in simulated.items() if moved} == {link: moved for link, moved in recorded.items() if moved}
