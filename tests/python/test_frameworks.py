# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Wrapped models in trainers that know nothing of Castor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import castor.torch as castor
from models import gpt2

transformers = pytest.importorskip("transformers")


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


def trained(folder: Path, wrap: bool, workers: int) -> tuple[list[Any], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = gpt2(resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if wrap:
        model, optimizer = castor.wrap(model, optimizer, device="600KiB", host="64MiB", chunk="16KiB")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, report_to=[],
        use_cpu=True, max_grad_norm=0.5, save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True,
        dataloader_num_workers=workers,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens(), optimizers=(optimizer, scheduler)
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))
    seen = [(log.get("loss", log.get("eval_loss")), log.get("grad_norm")) for log in trainer.state.log_history[:-1]]
    return seen, transformers.GPT2LMHeadModel.from_pretrained(folder / "model").state_dict()


def test_the_trainer_of_transformers_trains_clips_evaluates_and_saves(tmp_path: Path) -> None:
    want, plain = trained(tmp_path / "plain", False, 0)
    # Loader processes are forked in the middle of the training.
    got, weights = trained(tmp_path / "castor", True, 2)
    for mine, theirs in zip(got, want, strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=1e-5)
        assert (mine[1] is None) == (theirs[1] is None)
        if mine[1] is not None:
            assert float(mine[1]) == pytest.approx(float(theirs[1]), rel=1e-4)
    for name, values in plain.items():
        torch.testing.assert_close(weights[name], values, rtol=1e-4, atol=1e-6, msg=name)
