# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A rank of a script of accelerate's: plain, or with `castor.wrap` before ``accelerator.prepare``. Rank 0 writes losses as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import castor.torch as castor


def prepared(wrap: Any, save: str = "") -> tuple[Any, Any, Any, Any]:
    """An accelerator, and a model with dropout, its AdamW and its scheduler, by accelerate. `save`: a folder of castor.save to load before."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    for list_of in (accelerator._models, accelerator._optimizers, accelerator._schedulers):
        list_of.clear()
    if wrap is not None:
        model, optimizer = castor.wrap(model, optimizer, **wrap)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    if save:
        scheduler.load_state_dict(castor.load(save, model))
    return accelerator, *accelerator.prepare(model, optimizer, scheduler)


def steps(accelerator: Any, model: Any, optimizer: Any, scheduler: Any, begin: int, end: int) -> list[float]:
    """The losses of each half step, with data of their own on each rank."""
    losses = []
    for number in range(2 * begin, 2 * end):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(number * 10 + accelerator.process_index))
        with accelerator.accumulate(model):
            loss = model(x).float().pow(2).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    return losses


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = {}
    tight = {"device": "64MiB", "host": "64MiB", "place": {"*": "host"}}
    for how, wrap in (("plain", None), ("castor", tight)):
        there = prepared(wrap)
        found[how] = steps(*there, 0, 3)
        there[0].save_state(str(folder / how))
        if wrap is not None:
            castor.save(str(folder / "own"), there[1], extra=there[3].scheduler.state_dict())
        found[how] += steps(*there, 3, 6)
    for how in ("castor", "plain"):
        there = prepared(tight)
        found["ddp"] = isinstance(there[1], torch.nn.parallel.DistributedDataParallel)
        there[0].load_state(str(folder / how))
        found[f"from {how}"] = steps(*there, 3, 6)
    there = prepared(tight, save=str(folder / "own"))
    found["prepared after castor.load"] = steps(*there, 3, 6)
    there = prepared(None)
    try:
        castor.wrap(there[1], there[2].optimizer)
    except castor.FailedPrecondition as error:
        found["after prepare"] = str(error)
    if there[0].is_main_process:
        out.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads of DistributedDataParallel abort the process now and then


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
