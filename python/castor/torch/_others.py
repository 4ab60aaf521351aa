# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Configs of DeepSpeed and arguments of Colossal-AI's Gemini, as arguments of `castor.wrap`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import torch

from castor.errors import InvalidArgument, Malformed


@dataclass
class Taken:
    """What became of another system's config: ``castor.wrap(model, optimizer, **taken.arguments)``."""

    arguments: dict[str, Any] = field(default_factory=dict)
    mapped: dict[str, str] = field(default_factory=dict)  # theirs to what it is here
    ignored: dict[str, str] = field(default_factory=dict)  # theirs to why

    def __repr__(self) -> str:
        lines = [f"{theirs}: {mine}" for theirs, mine in self.mapped.items()]
        lines += [f"{theirs}: ignored, {why}" for theirs, why in self.ignored.items()]
        return "\n".join(lines)

    def _take(self, theirs: str, name: str, value: Any) -> None:
        self.arguments[name] = value
        self.mapped[theirs] = f"{name}={value!r}"


_BY_PLAN = "Castor plans this from the recorded step"
_BY_SCRIPT = "the script says this"
_DEEPSPEED_ELSEWHERE = {
    "train_batch_size": _BY_SCRIPT,
    "train_micro_batch_size_per_gpu": _BY_SCRIPT,
    "gradient_accumulation_steps": "backwards before a step are summed up; divide the loss as plain PyTorch does",
    "optimizer": "give castor.wrap the torch.optim optimizer",
    "scheduler": "use a scheduler of torch.optim",
    "steps_per_print": _BY_SCRIPT,
    "wall_clock_breakdown": "castor report shows it",
    "activation_checkpointing": _BY_SCRIPT,
    "zero_allow_untested_optimizer": "Castor refuses what it does not do",
}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def from_deepspeed(config: Union[Mapping[str, Any], str, Path]) -> Taken:
    """Takes a DeepSpeed config, as a dict or the path of its JSON; what it lists as ignored has its reason beside it."""
    if not isinstance(config, Mapping):
        try:
            config = json.loads(Path(config).read_text())
        except ValueError as error:
            raise Malformed(f"{config} is no DeepSpeed config: {error}") from None
    taken = Taken()
    flat = _flat(config)
    nvme = []
    for key, value in flat.items():
        section, _, word = key.rpartition(".")
        if key == "zero_optimization.stage":
            taken._take(key, "stage", int(value))
        elif key == "gradient_clipping":
            if float(value) > 0:
                taken._take(key, "max_norm", float(value))
        elif key in ("bf16.enabled", "bfloat16.enabled", "fp16.enabled"):
            if value:
                taken._take(key, "dtype", torch.float16 if section == "fp16" else torch.bfloat16)
        elif key == "fp16.initial_scale_power":
            if flat.get("fp16.enabled") and not flat.get("fp16.loss_scale"):
                taken._take(key, "initial_scale", 2.0 ** int(value))
        elif word == "nvme_path" and section in ("zero_optimization.offload_param", "zero_optimization.offload_optimizer"):
            if flat.get(f"{section}.device") == "nvme":
                nvme.append(str(value))
                taken._take(key, "nvme", sorted(set(nvme)))
            else:
                taken.ignored[key] = f"the device beside it is {flat.get(f'{section}.device')!r}"
        elif word == "device" and section.startswith("zero_optimization.offload_"):
            taken.ignored[key] = "Castor places states by the budgets: give device= and host="
        elif key.split(".")[0] in _DEEPSPEED_ELSEWHERE:
            taken.ignored[key] = _DEEPSPEED_ELSEWHERE[key.split(".")[0]]
        elif section == "fp16":
            taken.ignored[key] = "give config={'loss_scale': {...}}"
        elif key.startswith(("zero_optimization.", "bf16.", "bfloat16.", "aio.")):
            taken.ignored[key] = _BY_PLAN
        else:
            taken.ignored[key] = "Castor has nothing of the kind"
    return taken


_GEMINI = {
    "chunk_init_device": _BY_PLAN,
    "placement_policy": "Castor places states by the budgets, and keeps on the device what spares most: give device= and host=",
    "enable_gradient_accumulation": "backwards before a step are summed up",
    "shard_param_frac": "give stage=3, or stage=2 for parameters that every rank keeps",
    "pin_memory": "host memory of chunks is pinned",
    "max_prefetch": "give config={'prefetch_depth': ...}",
    "hidden_dim": "the search needs no hint",
    "search_range_m": "the search is exact",
    "warmup_non_model_data_ratio": _BY_PLAN,
    "steady_cuda_cap_ratio": "give device=",
    "growth_factor": "give config={'loss_scale': {'growth': ...}}",
    "backoff_factor": "give config={'loss_scale': {'backoff': ...}}",
    "growth_interval": "give config={'loss_scale': {'growth_interval': ...}}",
    "hysteresis": "give config={'loss_scale': {'hysteresis': ...}}",
    "master_weights": "low precision always has masters",
}


def from_gemini(**arguments: Any) -> Taken:
    """Takes the arguments of Colossal-AI's GeminiPlugin."""
    taken = Taken()
    for key, value in arguments.items():
        if key == "precision":
            types = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
            if value not in types:
                raise InvalidArgument(f"precision is {value!r}: GeminiPlugin takes {', '.join(types)}")
            taken._take(key, "dtype", types[value])
        elif key == "max_norm":
            taken._take(key, "max_norm", float(value))
        elif key == "initial_scale":
            taken._take(key, "initial_scale", float(value))
        elif key == "min_chunk_size_m":
            taken._take(key, "config", {"chunk": {"min_bytes": int(value * (1 << 20))}})
        else:
            taken.ignored[key] = _GEMINI.get(key, "Castor has nothing of the kind")
    return taken
