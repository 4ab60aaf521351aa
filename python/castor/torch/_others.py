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


_AUTO = "'auto' is what Hugging Face's trainer puts in of its own arguments: "
_DEEPSPEED_AUTO = {
    "bf16.enabled": _AUTO + "give dtype=torch.bfloat16 where its bf16 is true",
    "bfloat16.enabled": _AUTO + "give dtype=torch.bfloat16 where its bf16 is true",
    "fp16.enabled": _AUTO + "give dtype=torch.float16 and initial_scale= where its fp16 is true",
    "gradient_clipping": _AUTO + "give max_norm= its max_grad_norm",
    "zero_optimization.stage": "'auto' is no stage: give stage=",
}
_DEEPSPEED_SPECIAL = {
    "torch_autocast.enabled": "call the model under torch.autocast",
    "torch_autocast.dtype": "call the model under torch.autocast",
    "bf16.bf16_master_weights_and_grads": "Castor keeps float32 masters of bfloat16 parameters",
    "zero_optimization.mics_shard_size": "give shard= the same number, or shard='host'",
    "zero_optimization.zero_hpz_partition_size": "give shard= the same number, or shard='host', and shard_states='world'",
}
_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _switch(key: str, value: Any) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if value is None or isinstance(value, (bool, int)):
        return bool(value)
    raise InvalidArgument(f"{key} is {value!r} in the DeepSpeed config: give true or false")


def _number(key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{key} is {value!r} in the DeepSpeed config: give a number") from None


def from_deepspeed(config: Union[Mapping[str, Any], str, Path]) -> Taken:
    """Takes a DeepSpeed config, as a dict or the path of its JSON; what it lists as ignored has its reason beside it.

    Raises:
      Malformed: the file is no JSON.
      InvalidArgument: a value has no meaning; the text names its key.
    """
    if not isinstance(config, Mapping):
        try:
            config = json.loads(Path(config).read_text())
        except ValueError as error:
            raise Malformed(f"{config} is no DeepSpeed config: {error}") from None
    taken = Taken()
    flat = _flat(config)
    halves = [key for key in ("bf16.enabled", "bfloat16.enabled", "fp16.enabled") if flat.get(key) != "auto" and _switch(key, flat.get(key))]
    if "fp16.enabled" in halves and len(halves) > 1:
        raise InvalidArgument(f"{halves[0]} and fp16.enabled are both true in the DeepSpeed config: leave one of them")
    nvme: list[str] = []
    for key, value in flat.items():
        if value == "auto":
            taken.ignored[key] = _DEEPSPEED_AUTO.get(key, _AUTO + "nothing is to be given here")
        elif not _take_deepspeed(taken, key, value, flat, halves, nvme):
            taken.ignored[key] = _why_not(key)
    if "gradient_clipping" not in flat:
        taken.ignored["gradient_clipping"] = "the config does not say: DeepSpeed 0.19.8 clips at 1.0 then, for which give max_norm=1.0, and 0.19.0 does not clip"
    return taken


def _take_deepspeed(taken: Taken, key: str, value: Any, flat: Mapping[str, Any], halves: list[str], nvme: list[str]) -> bool:
    """Whether it was understood. `halves`: the types in half precision that are on. `nvme`: folders so far."""
    section, _, word = key.rpartition(".")
    if key == "zero_optimization.stage":
        taken._take(key, "stage", int(_number(key, value)))
    elif key == "gradient_clipping":
        if value is not None and _number(key, value) > 0:
            taken._take(key, "max_norm", float(value))
        else:
            taken.mapped[key] = "no clipping"
    elif key in ("bf16.enabled", "bfloat16.enabled", "fp16.enabled"):
        if key in halves:
            taken._take(key, "dtype", torch.float16 if section == "fp16" else torch.bfloat16)
        else:
            taken.mapped[key] = f"not in {section}"
    elif key == "fp16.initial_scale_power" and "fp16.enabled" in halves and not flat.get("fp16.loss_scale"):
        taken._take(key, "initial_scale", 2.0 ** int(_number(key, value)))
    elif key == "bf16.bf16_optimizer_states" and _switch(key, value):
        taken._take(key, "state_dtype", torch.bfloat16)
    elif key == "data_types.grad_accum_dtype" and value is not None:
        if value not in _TYPES:
            raise InvalidArgument(f"{key} is {value!r} in the DeepSpeed config: give one of {', '.join(_TYPES)}")
        if value != "fp32":
            return False
        taken._take(key, "reduce_dtype", torch.float32)
    elif word == "nvme_path" and section in ("zero_optimization.offload_param", "zero_optimization.offload_optimizer"):
        if flat.get(f"{section}.device") != "nvme":
            taken.ignored[key] = f"the device beside it is {flat.get(f'{section}.device')!r}"
            return True
        nvme.append(str(value))
        taken._take(key, "nvme", sorted(set(nvme)))
    else:
        return False
    return True


def _why_not(key: str) -> str:
    section, _, word = key.rpartition(".")
    first = key.split(".")[0]
    if key in _DEEPSPEED_SPECIAL:
        return _DEEPSPEED_SPECIAL[key]
    if word == "device" and section.startswith("zero_optimization.offload_"):
        return "Castor places states by the budgets: give device= and host="
    if first in _DEEPSPEED_ELSEWHERE:
        return _DEEPSPEED_ELSEWHERE[first]
    if section == "fp16":
        return "give config={'loss_scale': {...}}"
    if key.startswith(("zero_optimization.", "bf16.", "bfloat16.", "aio.")):
        return _BY_PLAN
    if first == "data_types":
        return "gradients are in the parameters' type"
    return "Castor has nothing of the kind"


_GEMINI = {
    "chunk_init_device": _BY_PLAN,
    "placement_policy": "Castor places states by the budgets, and keeps on the device what spares most: give device= and host=",
    "enable_gradient_accumulation": "backwards before a step are summed up",
    "shard_param_frac": "give stage=3, or stage=2 for parameters that every rank keeps",
    "pin_memory": "host memory of chunks is pinned",
    "max_prefetch": "give config={'prefetch': ...}",
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
