# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Configs of other systems, and what became of each of their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    assert len(taken.mapped) + len(taken.ignored) == 12, taken
    assert "zero_optimization.overlap_comm: ignored, Castor plans this" in repr(taken)
    assert taken.ignored["pipeline.stages"] == "Castor has nothing of the kind"
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED))
    assert castor.from_deepspeed(tmp_path / "ds.json").arguments == taken.arguments
    (tmp_path / "ds.json").write_text("{")
    with pytest.raises(castor.Malformed, match="no DeepSpeed config"):
        castor.from_deepspeed(tmp_path / "ds.json")


ZERO3 = {
    "stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}, "reduce_bucket_size": "auto", "sub_group_size": 1e9,
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
}
SIZES = {"gradient_accumulation_steps": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}
FP16 = {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}
BF16 = torch.bfloat16


@pytest.mark.parametrize("config, arguments", [
    ({"gradient_clipping": "auto", "zero_optimization": ZERO3} | SIZES, {"stage": 3}),
    ({"fp16": FP16, "bf16": {"enabled": "auto"}, "zero_optimization": ZERO3} | SIZES, {"stage": 3}),
    ({"bf16": {"enabled": True}, "fp16": FP16, "zero_optimization": ZERO3} | SIZES, {"stage": 3, "dtype": BF16}),
    ({"fp16": FP16, "bf16": {"enabled": True}}, {"dtype": BF16}),
    ({"fp16": {**FP16, "enabled": True, "initial_scale_power": "auto"}}, {"dtype": torch.float16}),
    ({"zero_optimization": {"stage": "auto"}} | SIZES, {}),
    ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "auto"}}}, {"stage": 3}),
    ({"bf16": {"enabled": "true"}, "fp16": {"enabled": "False"}}, {"dtype": BF16}),
    ({"gradient_clipping": None}, {}),
    ({"gradient_clipping": 0.0}, {}),
    ({"torch_autocast": {"enabled": True, "dtype": "bfloat16"}, "zero_optimization": {"stage": 1}}, {"stage": 1}),
    ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}, {"dtype": BF16, "state_dtype": BF16}),
    ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, {"dtype": BF16, "reduce_dtype": torch.float32}),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "mics_shard_size": 4}}, {"stage": 3}),
])
def test_configs_as_others_write_them(config: Any, arguments: Any) -> None:
    taken = castor.from_deepspeed(config)
    assert taken.arguments == arguments
    keys = {f"{section}.{key}" if key else section for section, value in config.items() for key in (value if isinstance(value, dict) else [""])}
    listed = {*taken.mapped, *taken.ignored}
    assert all(any(name == key or name.startswith(f"{key}.") for name in listed) for key in keys), keys
    assert ("gradient_clipping" in taken.ignored) == (config.get("gradient_clipping", "auto") == "auto")
    model = torch.nn.Linear(8, 4)
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB", **arguments)
    assert model.weight.dtype is arguments.get("dtype", torch.float32)


@pytest.mark.parametrize("config, words", [
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "bf16.enabled and fp16.enabled are both true"),
    ({"bf16": {"enabled": "maybe"}}, "bf16.enabled is 'maybe' in the DeepSpeed config: give true or false"),
    ({"gradient_clipping": "little"}, "gradient_clipping is 'little' in the DeepSpeed config: give a number"),
    ({"zero_optimization": {"stage": "three"}}, "zero_optimization.stage is 'three'"),
    ({"data_types": {"grad_accum_dtype": "fp64"}}, "data_types.grad_accum_dtype is 'fp64'"),
])
def test_values_without_a_meaning_are_named(config: Any, words: str) -> None:
    with pytest.raises(castor.InvalidArgument, match=words):
        castor.from_deepspeed(config)


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
