# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The script for TRL in docs/pytorch.md runs as it is written, saves, and goes on from a plain trainer's checkpoint."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
trl = pytest.importorskip("trl", reason="trl is not installed")
pytest.importorskip("peft", reason="peft is not installed")

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


def script() -> str:
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S) if "with_castor" in block]
    assert len(blocks) == 1
    return blocks[0]


def test_the_script_of_the_page_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    from trl_family_worker import rows
    from trl_worker import llama, tokenizer

    words = ["--max_steps", "4", "--save_steps", "2", "--logging_steps", "1", "--per_device_train_batch_size", "2", "--report_to", "none", "--use_cpu",
             "--bf16", "false", "--learning_rate", "1e-3", "--disable_tqdm", "true", "--max_length", "32"]

    def names() -> dict[str, Any]:
        return {"transformers": transformers, "trl": trl, "model": llama(), "reference": llama(), "data": datasets.Dataset.from_list(rows("dpo")),
                "tokenizer": tokenizer()}

    plain = names()
    (args,) = transformers.HfArgumentParser(trl.DPOConfig).parse_args_into_dataclasses(["--output_dir", str(tmp_path / "plain"), *words])
    trainer = trl.DPOTrainer(model=plain["model"], ref_model=plain["reference"], args=args, train_dataset=plain["data"], processing_class=plain["tokenizer"])
    trainer.train()
    want = [log["loss"] for log in trainer.state.log_history if "loss" in log]

    for begun in ([], ["--resume_from_checkpoint", str(tmp_path / "plain" / "checkpoint-2")]):
        monkeypatch.setattr(sys, "argv", ["train.py", "--output_dir", str(tmp_path / "runs"), *words, *begun, "--castor",
                                          '{"device": "200KiB", "host": "8MiB", "chunk": "4KiB"}'])
        run = names()
        exec(compile(script(), str(PAGE), "exec"), run)  # noqa: S102
        made = run["trainer"]
        assert hasattr(made.model, "_castor") and hasattr(made.ref_model, "_castor")
        assert [log["loss"] for log in made.state.log_history if "loss" in log] == pytest.approx(want, rel=1e-5)
