# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How much memory a training takes, as the system counts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parents[1] / "helpers" / "memory_worker.py"
# glibc keeps up to 100 MiB of what is freed, more in one run than in the next. Blocks of their own go back at once.
ENVIRONMENT = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "2"}


def run(*arguments: str) -> list[int]:
    out = subprocess.run([sys.executable, str(WORKER), *arguments], capture_output=True, text=True, timeout=300, check=False, env=ENVIRONMENT)
    assert out.returncode == 0, out.stderr[-3000:]
    return [int(word) for word in out.stdout.split()[-4:]]


@pytest.fixture(scope="module")
def plain() -> dict[str, list[int]]:
    pytest.importorskip("transformers")
    return {how: run(how) for how in ("plainly", "autocast")}


@pytest.mark.parametrize(("how", "share"), [("plainly", 0.2), ("plainly", 1.2), ("autocast", 0.2)])
def test_budgets_are_all_that_is_taken(how: str, share: float, plain: dict[str, list[int]], tmp_path: Path) -> None:
    """From wrap through the first step, the placement after it, and more steps: the most that the process ever had."""
    states, _, _, without = plain[how]
    same_states, budgets, chunk, peak = run(how, str(tmp_path), str(share))
    assert same_states == states and budgets == pytest.approx(share * states)
    # Beside the budgets, what the plain script needs but for its states: the libraries and the activations.
    # Two runs of one process differ by less than a percent.
    allowed = 1.01 * (budgets + without - states) + chunk
    assert peak <= allowed, f"{peak / 2**20:.0f} MiB, and {allowed / 2**20:.0f} MiB are allowed"
