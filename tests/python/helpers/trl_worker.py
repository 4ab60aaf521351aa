# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A rank of TRL's trainers and of transformers' with gradient checkpointing: a small Llama, plain and by Castor. Rank 0 writes losses as JSON."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import torch

os.environ["HF_HUB_OFFLINE"] = "1"
torch.set_num_threads(1)

import datasets  # noqa: E402
import transformers  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer  # noqa: E402

from castor.hf import CastorTrainer  # noqa: E402

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
WORDS = 64


def tokenizer() -> Any:
    words = SPECIAL + [f"w{number}" for number in range(WORDS - len(SPECIAL))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2))


def text(chance: random.Random, count: int) -> str:
    return " ".join(f"w{chance.randrange(WORDS - len(SPECIAL))}" for _ in range(count))


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(len(SPECIAL), WORDS, (20,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def trainer(what: str, folder: str) -> tuple[Any, dict[str, Any]]:
    """The plain class and its arguments, defaults as they are."""
    common: dict[str, Any] = {
        "output_dir": folder, "max_steps": 4, "per_device_train_batch_size": 2, "logging_steps": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True,
        "save_strategy": "no", "learning_rate": 1e-3, "bf16": False, "ddp_backend": "gloo" if "RANK" in os.environ else None,
    }
    chance = random.Random(0)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    kind, _, with_lora = what.partition(" ")
    more: dict[str, Any] = {"peft_config": lora} if with_lora else {}
    if kind == "sft":
        data = datasets.Dataset.from_list([{"text": text(chance, 20)} for _ in range(32)])
        return SFTTrainer, {"model": llama(), "args": SFTConfig(**common, max_length=32), "train_dataset": data, "processing_class": tokenizer(), **more}
    if kind == "dpo":
        rows = [{"prompt": text(chance, 6) + " ", "chosen": text(chance, 8), "rejected": text(chance, 8)} for _ in range(32)]
        more = more or {"ref_model": llama()}
        return DPOTrainer, {"model": llama(), "args": DPOConfig(**common, max_length=32), "train_dataset": datasets.Dataset.from_list(rows),
                            "processing_class": tokenizer(), **more}
    model = llama()
    if with_lora:
        model = get_peft_model(model, lora)
        model.enable_input_require_grads()
    return transformers.Trainer, {"model": model, "args": transformers.TrainingArguments(**common, gradient_checkpointing=True), "train_dataset": Tokens()}


def main() -> None:
    folder, out, whats = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    ranks = "RANK" in os.environ
    budgets = {"roomy": {"device": "128MiB", "host": "128MiB"},
               "tight": {"device": "5MiB" if ranks else "300KiB", "host": "64MiB", "chunk": "16KiB", "config": {"poison": True}}}
    found: dict[str, Any] = {}
    for what in whats:
        for how in ("plain", *budgets):
            kind, arguments = trainer(what, folder)
            if how != "plain":
                kind, arguments = type("Trainer", (CastorTrainer, kind), {}), {**arguments, "castor": budgets[how]}
            made = kind(**arguments)
            assert made.args.gradient_checkpointing
            made.train()
            optimizer = getattr(made.optimizer, "optimizer", made.optimizer)
            found.setdefault(what, {})[how] = {"losses": [log["loss"] for log in made.state.log_history if "loss" in log],
                                               "skipped": getattr(optimizer, "skipped", 0)}
    if int(os.environ.get("RANK", 0)) == 0:
        out.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # DDP keeps gloo's threads to the end of the process, where the last tensors they let go of abort it now and then


if __name__ == "__main__":
    main()
