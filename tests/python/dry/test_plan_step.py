# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Plans that count a module's own step: `castor.plan(model, step=..., batch=..., card=...)`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import castor
import castor.torch
from castor.errors import InvalidArgument


def gpt2() -> Any:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=3, n_embd=64, n_head=2, vocab_size=500, n_positions=64))


def step(model: Any, batch: Any) -> Any:
    return model(**batch).loss


def batch_of(sequences: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(500, (sequences, 64), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids}


def activations(plan: Any) -> int:
    return int(plan.document["configuration"]["activations"]["activations_bytes"])


def test_a_plan_counts_what_the_step_needs_and_the_run_keeps_to_the_rest() -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plan = castor.plan(model, optimizer=optimizer, step=step, batch=batch_of(4), card="16MiB", host_budget="16MiB")
    counted = castor.torch.dry_step(model, step, batch_of(4)).peak_bytes
    assert plan.fits and plan.step_memory is not None
    assert plan.step_memory.peak_bytes == counted == activations(plan)
    on_card = plan.tiers[0]
    assert on_card.tier == "device" and counted < on_card.planned_bytes <= on_card.budget_bytes == 16 << 20
    # The rest of the card is Castor's, and a run holds no more.
    wrapped, optimizer = castor.torch.wrap(model, optimizer, device=(16 << 20) - counted, host="16MiB")
    for _ in range(3):
        step(wrapped, batch_of(4)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert optimizer.runtime.engine.stats()["device_peak_bytes"] + counted <= 16 << 20


def test_a_longer_batch_needs_more_and_a_card_without_room_is_refused_before_the_run() -> None:
    model = gpt2()
    small, large = (castor.plan(model, step=step, batch=batch_of(n), card="64MiB") for n in (2, 8))
    assert 3.5 < activations(large) / activations(small) < 4.5
    refused = castor.plan(model, step=step, batch=batch_of(8), card=activations(large), host_budget="64MiB")
    assert not refused.fits and "beside" in refused.reason
    assert any("device budget" in change.what for change in refused.changes)


def test_a_model_on_meta_is_planned() -> None:
    with torch.device("meta"):
        model = gpt2()
    assert castor.plan(model, step=step, batch=batch_of(2), card="64MiB").fits


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step": step}, "needs no seq="),
        ({"step": step, "batch": 1, "seq": 64}, "needs no seq="),
        ({"card": "1MiB", "device_budget": "1MiB"}, "two names of one thing"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        castor.plan(gpt2(), **given)


def test_a_config_has_no_step_to_run() -> None:
    with pytest.raises(InvalidArgument, match="step= runs the forward of a torch module"):
        castor.plan([("w", (4, 4), "F32")], step=step, batch=batch_of(1))
