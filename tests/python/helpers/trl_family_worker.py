# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Twenty steps of trainers made of transformers' Trainer: plain, and by `with_castor` with about a third of the states on the device. Losses as JSON."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from trl_worker import WORDS, Tokens, llama, text, tokenizer  # isort: skip

import datasets
import torch
import transformers
import trl
from peft import LoraConfig

from castor.hf import with_castor

STEPS = 20


def rows(kind: str) -> list[dict[str, Any]]:
    """Of 40 examples, by the trainer's columns."""
    chance = random.Random(0)
    made = []
    for index in range(40):
        prompt, good, bad = text(chance, 6) + " ", text(chance, 8), text(chance, 8)
        if kind in ("grpo", "rloo"):
            made.append({"prompt": prompt})
        elif kind == "kto":
            made.append({"prompt": prompt, "completion": good, "label": index % 2 == 0})
        elif kind == "sft":
            made.append({"text": prompt + good})
        else:
            made.append({"prompt": prompt, "chosen": good, "rejected": bad})
    return made


def classifier() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForSequenceClassification(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=1))


def length_reward(completions: list[str], **_: Any) -> list[float]:
    """That differs within a group of completions."""
    return [float(len(set(completion))) for completion in completions]


def trainer(what: str, folder: str) -> tuple[Any, dict[str, Any]]:
    """The plain class and its arguments."""
    kind, _, with_lora = what.partition(" ")
    common: dict[str, Any] = {
        "output_dir": folder, "max_steps": STEPS, "per_device_train_batch_size": 2, "logging_steps": 1, "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "save_strategy": "no", "learning_rate": 1e-3, "bf16": False, "gradient_checkpointing": True,
    }
    more: dict[str, Any] = {"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")} if with_lora else {}
    data = datasets.Dataset.from_list(rows(kind))
    if kind == "seq2seq":
        return transformers.Seq2SeqTrainer, {"model": llama(), "args": transformers.Seq2SeqTrainingArguments(**common), "train_dataset": Tokens()}
    if kind == "reward":
        return trl.RewardTrainer, {"model": classifier(), "args": trl.RewardConfig(**common, max_length=32), "train_dataset": data,
                                   "processing_class": tokenizer(), **more}
    if kind in ("grpo", "rloo"):
        Config, Kind = (trl.GRPOConfig, trl.GRPOTrainer) if kind == "grpo" else (trl.RLOOConfig, trl.RLOOTrainer)
        folder_of_model = Path(folder) / "model"
        if not folder_of_model.exists():
            llama().save_pretrained(folder_of_model)
        # The trainer makes its reference model of these files.
        return Kind, {"model": str(folder_of_model), "args": Config(**common, num_generations=2, max_completion_length=8, beta=0.1, model_init_kwargs={"dtype": "float32"}),
                      "train_dataset": data, "processing_class": tokenizer(), "reward_funcs": length_reward, **more}
    Config, Kind = {"sft": (trl.SFTConfig, trl.SFTTrainer), "dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer)}[kind]
    if kind != "sft" and not with_lora:
        more["ref_model"] = llama()
    return Kind, {"model": llama(), "args": Config(**common, max_length=32), "train_dataset": data, "processing_class": tokenizer(), **more}


def main() -> None:
    folder, out, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    found: dict[str, Any] = {}
    for how in ("plain", "castor"):
        kind, arguments = trainer(what, folder)
        if how == "castor":
            kind, arguments = with_castor(kind), {**arguments, "castor": {"device": sys.argv[4], "host": "8MiB", "chunk": "4KiB", "config": {"poison": True}}}
        made = kind(**arguments)
        made.train()
        found[how] = {"losses": [log["loss"] for log in made.state.log_history if "loss" in log],
                      "norms": [log["grad_norm"] for log in made.state.log_history if "loss" in log]}
        if how == "castor":
            reference = getattr(made, "ref_model", None)
            found["reference"] = None if reference is None else hasattr(reference, "_castor")
            stats = made.model._castor.engine.stats()
            of_frozen = reference._castor.engine.stats()["device_peak_bytes"] if found["reference"] else 0
            found["device"] = stats["device_peak_bytes"] + of_frozen
            found["states"] = sum(p.elements * (4 if p.frozen else 16) for p in made.model._castor.params)
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
