# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`with_castor` of trainers made of transformers' Trainer, next to the plain ones, and the budgets of models that a trainer only evaluates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from castor.errors import InvalidArgument  # noqa: E402
from castor.hf import CastorTrainer, with_castor  # noqa: E402
from castor.hf._frozen import budgets_of_frozen, left_over  # noqa: E402

WORKER = Path(__file__).parents[1] / "helpers" / "trl_family_worker.py"


@pytest.mark.parametrize(("what", "device", "reference"), [
    ("seq2seq", "180KiB", None), ("sft", "180KiB", None), ("sft lora", "56KiB", None), ("dpo", "180KiB", True), ("dpo lora", "56KiB", None),
    ("kto", "180KiB", True), ("reward", "180KiB", None), ("grpo", "180KiB", True), ("rloo", "180KiB", True),
])
def test_twenty_steps_are_those_of_the_plain_trainer(what: str, device: str, reference: Any, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    pytest.importorskip("peft", reason="peft is not installed")
    out = tmp_path / "found.json"
    done = subprocess.run([sys.executable, str(WORKER), str(tmp_path), str(out), what, device], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(out.read_text())
    assert len(found["plain"]["losses"]) == 20 and any(found["plain"]["norms"])
    assert found["castor"]["losses"] == pytest.approx(found["plain"]["losses"], rel=1e-5, abs=1e-5)
    assert found["castor"]["norms"] == pytest.approx(found["plain"]["norms"], rel=1e-4, abs=1e-5)
    assert found["reference"] is reference, "a reference model is in chunks, and adapters have none"
    assert found["device"] < 0.4 * found["states"]


def test_the_rule_stands_once() -> None:
    assert CastorTrainer is with_castor(transformers.Trainer) and with_castor(CastorTrainer) is CastorTrainer
    made = with_castor(transformers.Seq2SeqTrainer)
    assert made is with_castor(transformers.Seq2SeqTrainer) and issubclass(made, transformers.Seq2SeqTrainer)
    assert made.__name__ == "CastorSeq2SeqTrainer"
    for strange in (object, torch.nn.Module, 3):
        with pytest.raises(InvalidArgument, match="give transformers.Trainer or a class made of it"):
            with_castor(strange)


def test_a_frozen_model_takes_a_fifth_and_the_trained_one_the_rest() -> None:
    model = torch.nn.Linear(1024, 1024)
    assert budgets_of_frozen(model, {}, None) is None, "auto budgets leave the model alone"
    arguments = {"device": "10MiB", "host": "20MiB", "max_norm": 1.0, "stage": 2}
    made = budgets_of_frozen(model, arguments, None)
    assert made == {"device": 2 << 20, "host": 4 << 20, "stage": 2}
    assert left_over(arguments, made) == {"device": 8 << 20, "host": 16 << 20, "max_norm": 1.0, "stage": 2}
    asked = budgets_of_frozen(model, arguments, {"device": "1MiB"})
    assert asked is not None and left_over(arguments, asked)["device"] == 9 << 20
    bounded = budgets_of_frozen(model, {"device": "10MiB"}, None)
    assert bounded is not None and 4 << 20 < bounded["host"] < 8 << 20, "room for the model, not most of the memory"
    with pytest.raises(InvalidArgument, match="castor= gives all models 10.00 MiB"):
        left_over(arguments, {"device": "10MiB"})
