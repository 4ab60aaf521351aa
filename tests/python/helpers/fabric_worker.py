# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A rank of a script with Fabric, by DDP or by Castor: trains, accumulates, clips, saves, and goes on from the file. Rank 0 writes losses as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric

from castor.lightning import CastorFabricStrategy


def made(strategy: Any, devices: int) -> tuple[Any, Any, Any, Any]:
    """Fabric with a model, its AdamW, and a scheduler that was made before Fabric took all three."""
    fabric = Fabric(accelerator="cpu", devices=devices, strategy=strategy)
    fabric.launch()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return fabric, *fabric.setup(model, optimizer, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2))


def steps(fabric: Any, model: Any, optimizer: Any, scheduler: Any, begin: int, end: int) -> list[float]:
    """The losses of each half step, with data of their own on each rank."""
    losses = []
    for number in range(2 * begin, 2 * end):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(number * 10 + fabric.global_rank))
        with fabric.no_backward_sync(model, enabled=number % 2 == 0):
            loss = model(x).pow(2).mean()
            fabric.backward(loss)
        if number % 2:
            fabric.clip_gradients(model, optimizer, max_norm=0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(fabric.all_reduce(loss.detach()).item())
    return losses


def castor() -> CastorFabricStrategy:
    return CastorFabricStrategy(device="64MiB", host="64MiB", place={"*": "host"})


def run(folder: Path, devices: int, plain: str) -> dict[str, Any]:
    """Losses of six steps by `plain` and by Castor, and of the last three again from a file of each."""
    found: dict[str, Any] = {}
    for how, strategy in (("plain", plain), ("castor", castor())):
        fabric, model, optimizer, scheduler = made(strategy, devices)
        found[how] = steps(fabric, model, optimizer, scheduler, 0, 3)
        fabric.save(folder / f"{how}.ckpt", {"model": model, "optimizer": optimizer, "scheduler": scheduler})
        found[how] += steps(fabric, model, optimizer, scheduler, 3, 6)
    for how in ("plain", "castor"):
        fabric, model, optimizer, scheduler = made(castor(), devices)
        fabric.load(folder / f"{how}.ckpt", {"model": model, "optimizer": optimizer, "scheduler": scheduler})
        found[f"castor from {how}"] = steps(fabric, model, optimizer, scheduler, 3, 6)
    return found


if __name__ == "__main__":
    of_ranks = run(Path(sys.argv[1]), 2, "ddp")
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps(of_ranks))
