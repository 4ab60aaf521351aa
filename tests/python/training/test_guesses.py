# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Updates that begin in the backward, before anybody knows whether the step is clipped: the same bits as without."""

from __future__ import annotations

import ctypes
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor import _command, simulate
from castor._abi import lib

STEPS = 5
WAYS: dict[str, tuple[Callable[[int, Any, Any], None], bool]] = {
    # What a script does between backward and step, and whether a guess may be right.
    "nothing": (lambda step, model, optimizer: None, True),
    "a clip that is not reached": (lambda step, model, optimizer: torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6), True),
    "a clip": (lambda step, model, optimizer: torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3), False),
    "a gradient that is written": (lambda step, model, optimizer: model[0].weight.grad.mul_(0.5), True),
    "a weight that is written": (lambda step, model, optimizer: model[2].bias.data.fill_(0.25), True),
    "another rate": (lambda step, model, optimizer: optimizer.param_groups[0].update(lr=0.01 / (step + 2)), False),
}


def stats_of(model: Any) -> dict[str, Any]:
    text = ctypes.c_char_p()
    lib.castor_engine_stats_json(model._castor.engine.handle, ctypes.byref(text))
    return json.loads((text.value or b"").decode())


def train(way: Callable[[int, Any, Any], None], guesses: bool, micro_batches: int = 1, **more: Any) -> tuple[list[float], list[torch.Tensor], dict[str, Any]]:
    torch.manual_seed(3)
    plain = nn.Sequential(*(module for _ in range(6) for module in (nn.Linear(64, 64), nn.GELU())))
    model, optimizer = castor.wrap(
        plain, torch.optim.AdamW(plain.parameters(), lr=0.01),
        **{"device": "128KiB", "host": "4MiB", "chunk": "32KiB", "config": {"guess_updates": guesses}, **more})
    losses = []
    for step in range(STEPS):
        for micro_batch in range(micro_batches):
            x = torch.randn(5, 64, generator=torch.Generator().manual_seed(10 * step + micro_batch))
            loss = model(x).pow(2).mean()
            loss.backward()
            losses.append(loss.item())
        way(step, model, optimizer)
        optimizer.step()
        optimizer.zero_grad()
    return losses, [castor.exact(p) for p in model.parameters()], stats_of(model)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_guesses_change_no_bit(name: str, micro_batches: int) -> None:
    way, may_be_right = WAYS[name]
    losses, weights, stats = train(way, True, micro_batches)
    plain_losses, plain_weights, plain_stats = train(way, False, micro_batches)
    assert losses == plain_losses
    assert all(torch.equal(one, other) for one, other in zip(weights, plain_weights))
    assert stats["guesses"] > 0 == plain_stats["guesses"]
    assert (stats["right_guesses"] > 0) == may_be_right


def test_processors_that_compute_alone_guess_nothing_unasked() -> None:
    plain = nn.Linear(64, 64)
    model, _ = castor.wrap(plain, torch.optim.AdamW(plain.parameters()), device="64KiB", host="4MiB")
    assert not model._castor.opening.guesses


def test_states_on_a_drive_are_guessed_unasked(tmp_path: Path) -> None:
    way, _ = WAYS["nothing"]
    place = {"*": {"param": "host", "exp_avg": "nvme", "exp_avg_sq": "nvme", "grad": "nvme"}}
    more = {"device": "256KiB", "nvme": str(tmp_path), "place": place}
    losses, weights, stats = train(way, True, **more, config={})
    plain_losses, plain_weights, plain_stats = train(way, False, **more)
    assert losses == plain_losses
    assert all(torch.equal(one, other) for one, other in zip(weights, plain_weights))
    assert stats["guesses"] == stats["right_guesses"] > 0 == plain_stats["guesses"]


def test_a_record_counts_guesses_and_a_forecast_makes_them(tmp_path: Path) -> None:
    for name, wrong in (("nothing", False), ("a clip", True)):
        file = tmp_path / f"{wrong}.rec"
        with castor.record(file):
            *_, stats = train(WAYS[name][0], True)
            gc.collect()
        report = _command.ask(["report", str(file)])
        assert report["guesses"] == stats["guesses"] > 0
        assert report["wrong_guesses"] == (report["guesses"] if wrong else 0)
        assert (report["wrong_guess_ns"] > 0) == wrong
        assert simulate(str(file)).fits
