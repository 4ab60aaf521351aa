# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""TRL's trainers with their defaults, full and LoRA, and transformers' with gradient checkpointing, next to the plain ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
WORKER = Path(__file__).parents[1] / "helpers" / "trl_worker.py"


@pytest.mark.parametrize(("ranks", "whats"), [
    (1, ["sft", "sft lora", "dpo", "dpo lora", "trainer", "trainer lora"]),
    (2, ["sft", "sft lora", "dpo", "dpo lora", "trainer", "trainer lora"]),
])
def test_losses_are_those_of_the_plain_trainer_and_no_step_is_skipped(ranks: int, whats: list[str], tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run([sys.executable, *launcher, str(WORKER), str(tmp_path), str(out), *whats], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for what, made in json.loads(out.read_text()).items():
        for how in ("roomy", "tight"):
            assert made[how]["skipped"] == 0, (what, how)
            assert made[how]["losses"] == pytest.approx(made["plain"]["losses"], rel=1e-5), (what, how)
