# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A transformer encoder that tells two kinds of text apart, in Lightning, as the DeepSpeed tutorial for it does.

Debian installs both kinds: licences, and modules of Perl. No download is needed.

    python classifier.py                                       # one rank, strategy by name
    python classifier.py --devices 2 --config zero.json        # strategy by the configuration of DeepSpeed that one has
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

import castor.torch as castor
from castor.lightning import CastorStrategy

KINDS = [Path("/usr/share/common-licenses"), next(Path("/usr/lib").glob("*/perl-base"))]
LENGTH = 96
PADDING = 0


class Texts(Dataset):
    """Pieces of some words each, a token for each byte, with the number of their kind."""

    def __init__(self, pieces: int) -> None:
        self.data: list[tuple[torch.Tensor, int]] = []
        for kind, folder in enumerate(KINDS):
            files = [file for file in sorted(folder.iterdir()) if file.is_file()]
            text = b"".join(file.read_bytes() for file in files)
            for i in range(pieces):
                piece = text[i * len(text) // pieces:][:LENGTH // 2 + i % (LENGTH // 2)]
                self.data.append((torch.tensor(list(piece), dtype=torch.long), kind))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.data[index]


def collate(batch: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    texts, kinds = zip(*batch)
    return nn.utils.rnn.pad_sequence(list(texts), batch_first=True, padding_value=PADDING), torch.tensor(kinds)


class Positions(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x + self.table[: x.shape[1]])


class Classifier(lightning.LightningModule):
    def __init__(self, width: int, layers: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Embedding(256, width), Positions(width, dropout))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4 * width, 2))
        self.loss_fn = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embed(x), src_key_padding_mask=x == PADDING)
        return self.classifier(hidden.mean(dim=1))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.6)]

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = self.loss_fn(self(x), y)
        self.log("train_loss", loss)
        return loss

    def _evaluate(self, batch: Any, what: str) -> None:
        x, y = batch
        guessed = self(x)
        self.log(f"{what}_loss", self.loss_fn(guessed, y), sync_dist=True)
        self.log(f"{what}_acc", (guessed.argmax(1) == y).float().mean(), sync_dist=True)

    def validation_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: Any, index: int) -> None:
        self._evaluate(batch, "test")


class Speed(lightning.Callback):
    """How long a batch takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self.begin = time.perf_counter()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.perf_counter() - self.begin)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--devices", type=int, default=1)
    options.add_argument("--strategy", default="castor_stage_3", help="any of Lightning's too")
    options.add_argument("--config", help="of DeepSpeed; what it asks for is asked of Castor")
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--pieces", type=int, default=400, help="of text of each kind")
    options.add_argument("--width", type=int, default=64)
    options.add_argument("--layers", type=int, default=2)
    chosen = options.parse_args()
    strategy: Any = chosen.strategy
    if chosen.config:
        taken = castor.from_deepspeed(chosen.config)
        print(taken)
        strategy = CastorStrategy(**taken.arguments)

    lightning.seed_everything(0, verbose=False)
    texts = Texts(chosen.pieces)
    train, validate, test = random_split(texts, [0.8, 0.1, 0.1])
    loaders = [DataLoader(part, 32, collate_fn=collate, shuffle=part is train) for part in (train, validate, test)]
    speed = Speed()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=chosen.devices, strategy=strategy, max_epochs=chosen.epochs, callbacks=[speed], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    model = Classifier(chosen.width, chosen.layers)
    trainer.fit(model, loaders[0], loaders[1])
    validated = float(trainer.callback_metrics["val_acc"])
    (tested,) = trainer.test(model, loaders[2], verbose=False)
    if trainer.is_global_zero:
        middle = sorted(speed.seconds)[len(speed.seconds) // 2]
        print(f"validation accuracy {validated:.3f}, test accuracy {tested['test_acc']:.3f}, {1000 * middle:.0f} ms a batch")


if __name__ == "__main__":
    main()
