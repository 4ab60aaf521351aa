# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What `castor.plan` and `castor.wrap` call enough is enough, and what is too little is refused before the first step."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")

import castor.torch as castor
from castor import parse_size
from castor._engine import Engine

from budget_cases import SIZED, all_at_once, backward_twice, changes_for, least_device, outcome, plainly, two_forwards, with_a_penalty

CHUNK = 32 << 10
HOST = 64 << 20


@pytest.mark.parametrize("chunk", [CHUNK, None])
@pytest.mark.parametrize("name", SIZED)
def test_plan_and_wrap_ask_for_the_same(name: str, chunk: Optional[int]) -> None:
    case = SIZED[name]
    sized = {} if chunk is None else {"chunk": chunk}
    least = least_device(case, host_budget=HOST, **sized)
    assert outcome(case, device=least, host=HOST, **sized) == "trains"
    assert outcome(case, device=least - (chunk or 2048), host=HOST, **sized) == "refused"


def test_norms_that_run_first_and_are_registered_last(tmp_path: Path) -> None:
    """Found by a draw: at the derived least, the norm's chunk had no slot in the backward."""
    assert outcome(SIZED["t5"], device=199680, host=1940006, stage=0, nvme=str(tmp_path)) == "trains"


def test_the_first_steps_memory_stays_where_what_it_held_does_not_fit_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[int] = []

    def refuses(*_: Any) -> None:
        refused.append(1)
        raise castor.DoesNotFit("states do not fit")

    monkeypatch.setattr(Engine, "reseal", refuses)
    assert outcome(SIZED["mlp"], device=200 << 10, host=HOST, chunk=CHUNK) == "trains"
    assert len(refused) == 1


def drawn(draw: random.Random, nvme: Path) -> tuple[str, dict[str, Any]]:
    budgets: dict[str, Any] = {"device": int(2 ** draw.uniform(16.5, 21.5)), "host": int(2 ** draw.uniform(16, 22)), "stage": draw.randrange(4),
                               "chunk": draw.choice([None, 16 << 10, 32 << 10, 64 << 10])}
    if draw.random() < 0.7:
        budgets["nvme"] = str(nvme)
    return draw.choice(list(SIZED)), budgets


def test_no_step_finds_that_a_budget_is_too_small(tmp_path: Path) -> None:
    """CASTOR_TEST_PAIRS: how many models and budgets are drawn."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    said: dict[str, int] = {}
    for pair in range(int(os.environ.get("CASTOR_TEST_PAIRS", "60"))):
        name, budgets = drawn(draw, tmp_path)
        came = outcome(SIZED[name], **budgets)
        assert came in ("trains", "refused"), (seed, pair, name, budgets, came)
        said[came] = said.get(came, 0) + 1
    assert len(said) == 2, f"{said}: budgets that are too large, or too small, show nothing"


@pytest.mark.parametrize("backward", [with_a_penalty, backward_twice, two_forwards])
def test_neither_does_a_step_that_does_more_than_modules_show(tmp_path: Path, backward: Callable[..., None]) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    said: dict[str, int] = {}
    for pair in range(int(os.environ.get("CASTOR_TEST_PAIRS", "60")) // 2):
        name, budgets = drawn(draw, tmp_path)
        came = outcome(SIZED[name], backward=backward, **budgets)
        assert came in ("trains", "refused"), (seed, pair, name, budgets, came)
        said[came] = said.get(came, 0) + 1
    assert len(said) == 2, f"{said}: budgets that are too large, or too small, show nothing"


def test_every_change_that_a_refusal_proposes_trains(tmp_path: Path) -> None:
    """CASTOR_TEST_PAIRS: how many models and budgets are drawn."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    applied = 0
    for pair in range(int(os.environ.get("CASTOR_TEST_PAIRS", "60"))):
        name, budgets = drawn(draw, tmp_path)
        changes = changes_for(SIZED[name], **budgets)
        for change in changes:
            raised = dict(budgets)
            for tier, by in changed(change):
                if tier == "nvme":
                    raised["nvme"] = str(tmp_path)
                else:
                    raised[tier] += by
            assert outcome(SIZED[name], **raised) == "trains", (seed, pair, name, budgets, change)
            applied += 1
    assert applied > 0, "no refusal proposed anything"


def test_what_a_step_that_suddenly_holds_more_proposes_is_enough(tmp_path: Path) -> None:
    """At the first try, where steps before have shown less."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    refused = 0
    for pair in range(int(os.environ.get("CASTOR_TEST_PAIRS", "60")) // 2):
        name, budgets = drawn(draw, tmp_path)
        came = outcome(SIZED[name], 4, late_all_at_once(), **budgets)
        if came in ("trains", "refused"):
            continue
        (change,) = castor.DoesNotFit(came).changes
        ((tier, by),) = changed(change)
        assert tier == "device", came
        budgets["device"] += by
        assert outcome(SIZED[name], 4, late_all_at_once(), **budgets) == "trains", (seed, pair, name, budgets, came)
        refused += 1
    assert refused > 0, "no step was refused"


def late_all_at_once() -> Callable[[Any, Any], None]:
    steps = itertools.count()
    return lambda case, model: (plainly if next(steps) < 2 else all_at_once)(case, model)


def changed(change: str) -> list[tuple[str, int]]:
    """The tiers that a proposed change is of, and by how many bytes."""
    found = re.findall(r"(device|host|NVMe)[a-z ]* (?:by|with) ([0-9.]+ \w+)", change)
    assert found and ("both" in change) == (len(found) == 2), change
    return [(tier.lower(), parse_size(by.removesuffix(" bytes"))) for tier, by in found]
