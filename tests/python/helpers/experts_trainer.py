# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trainers of a small Mixtral, whose files of weights have other names than the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.arange(8) + index, "labels": torch.arange(8) + index}


CASTOR = {"device": "1MiB", "host": "1MiB"}


def trainer_of_experts(folder: Path, castor: Any = None, steps: int = 2) -> Any:
    """Steps of a small Mixtral, of which each second one is saved; with `castor`, a CastorTrainer."""
    import transformers

    from castor.hf import CastorTrainer

    torch.manual_seed(0)
    config = transformers.MixtralConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                                        num_local_experts=4, max_position_embeddings=32)
    arguments = transformers.TrainingArguments(output_dir=str(folder), report_to="none", use_cpu=True, disable_tqdm=True, learning_rate=0.05, max_steps=steps,
                                               save_steps=2, per_device_train_batch_size=1)
    kind, more = (transformers.Trainer, {}) if castor is None else (CastorTrainer, {"castor": castor})
    return kind(model=transformers.MixtralForCausalLM(config), args=arguments, train_dataset=Rows(), **more)
