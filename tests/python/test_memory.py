# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How much memory a training takes, as the system counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "memory_worker.py"


def run(*arguments: str) -> list[float]:
    out = subprocess.run([sys.executable, str(WORKER), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert out.returncode == 0, out.stderr[-3000:]
    return [float(word) for word in out.stdout.split()[-4:]]


@pytest.mark.parametrize("how", ["plainly", "autocast"])
def test_a_fifth_of_the_states_is_enough_and_is_all_that_is_taken(how: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    _, states, budgets, plain = run(how)
    _, same_states, _, peak = run(how, str(tmp_path))
    assert same_states == states and budgets <= states / 5
    # Beside the budgets, what the plain script needs but for its states: the libraries and the activations.
    allowed = budgets + plain - states
    assert peak <= 1.1 * allowed, f"{peak / 2**20:.0f} MiB, and {allowed / 2**20:.0f} MiB are allowed"
