# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trainings of experts that go on under Castor: transformers stacks experts in the model, and writes one matrix for each to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from experts_trainer import CASTOR, trainer_of_experts  # noqa: E402


@pytest.mark.parametrize("begun", [None, CASTOR], ids=["plain", "castor"])
def test_a_training_of_experts_goes_on_under_castor_as_if_it_was_not_interrupted(begun: Any, tmp_path: Path) -> None:
    whole = trainer_of_experts(tmp_path / "whole", CASTOR, 4)
    whole.train()
    trainer_of_experts(tmp_path / "begun", begun, 4).train()
    rest = trainer_of_experts(tmp_path / "rest", CASTOR, 4)
    rest.train(resume_from_checkpoint=str(tmp_path / "begun" / "checkpoint-2"))
    for name, values in rest.model.state_dict().items():
        torch.testing.assert_close(values, whole.model.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)


def test_the_best_checkpoint_of_a_plain_run_of_experts_comes_back_whole(tmp_path: Path) -> None:
    trainer_of_experts(tmp_path, None, 4).train()
    trainer = trainer_of_experts(tmp_path / "rest", CASTOR, 4)
    trainer.train()
    trainer.state.best_model_checkpoint = str(tmp_path / "checkpoint-2")
    trainer._load_best_model()
    saved = transformers.MixtralForCausalLM.from_pretrained(tmp_path / "checkpoint-2").state_dict()
    assert all(torch.equal(values, saved[name]) for name, values in trainer.model.state_dict().items())
