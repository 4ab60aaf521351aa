# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Configs of other systems, and what became of each of their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import castor.torch as castor

DEEPSPEED = {
    "train_batch_size": 8,
    "gradient_clipping": 1.0,
    "fp16": {"enabled": True, "initial_scale_power": 5, "loss_scale_window": 100},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"},
        "offload_param": {"device": "cpu", "nvme_path": "/unused"},
    },
    "pipeline": {"stages": 2},
}


def test_deepspeed_configs_say_what_became_of_every_key(tmp_path: Path) -> None:
    taken = castor.from_deepspeed(DEEPSPEED)
    assert taken.arguments == {"max_norm": 1.0, "dtype": torch.float16, "initial_scale": 32.0, "stage": 3, "nvme": ["/scratch"]}
    assert len(taken.mapped) + len(taken.ignored) == 12
    assert "zero_optimization.overlap_comm: ignored, Castor plans this" in repr(taken)
    assert taken.ignored["pipeline.stages"] == "Castor has nothing of the kind"
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED))
    assert castor.from_deepspeed(tmp_path / "ds.json").arguments == taken.arguments
    (tmp_path / "ds.json").write_text("{")
    with pytest.raises(castor.Malformed, match="no DeepSpeed config"):
        castor.from_deepspeed(tmp_path / "ds.json")


def test_a_model_trains_as_a_deepspeed_config_says(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 4)
    taken = castor.from_deepspeed({"gradient_clipping": 0.5, "zero_optimization": {"stage": 2}})
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", **taken.arguments)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    assert optimizer.grad_norm == pytest.approx(2 * 36**0.5, rel=1e-5)


def test_gemini_arguments() -> None:
    taken = castor.from_gemini(precision="bf16", max_norm=1.0, initial_scale=2**5, placement_policy="auto", min_chunk_size_m=1)
    assert taken.arguments == {
        "dtype": torch.bfloat16, "max_norm": 1.0, "initial_scale": 32.0, "config": {"chunk": {"min_bytes": 1 << 20}},
    }
    assert "budgets" in taken.ignored["placement_policy"]
    with pytest.raises(castor.InvalidArgument, match="fp64"):
        castor.from_gemini(precision="fp64")
