# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What `castor.plan` and `castor.wrap` call enough is enough, and what is too little is refused before the first step."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")

from budget_cases import SIZED, least_device, outcome

CHUNK = 32 << 10
HOST = 64 << 20


@pytest.mark.parametrize("name", SIZED)
def test_plan_and_wrap_ask_for_the_same(name: str) -> None:
    case = SIZED[name]
    least = least_device(case, host_budget=HOST, chunk=CHUNK)
    assert outcome(case, device=least, host=HOST, chunk=CHUNK) == "trains"
    assert outcome(case, device=least - CHUNK, host=HOST, chunk=CHUNK) == "refused"


def test_no_step_finds_that_a_budget_is_too_small(tmp_path: Path) -> None:
    """CASTOR_TEST_PAIRS: how many models and budgets are drawn."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    said: dict[str, int] = {}
    for pair in range(int(os.environ.get("CASTOR_TEST_PAIRS", "60"))):
        name = draw.choice(list(SIZED))
        budgets: dict[str, Any] = {"device": int(2 ** draw.uniform(16.5, 21.5)), "host": int(2 ** draw.uniform(16, 22)), "stage": draw.randrange(4),
                                   "chunk": draw.choice([None, 16 << 10, 32 << 10, 64 << 10])}
        if draw.random() < 0.7:
            budgets["nvme"] = str(tmp_path)
        came = outcome(SIZED[name], **budgets)
        assert came in ("trains", "refused"), (seed, pair, name, budgets, came)
        said[came] = said.get(came, 0) + 1
    assert len(said) == 2, f"{said}: budgets that are too large, or too small, show nothing"
