# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Optimizers that are not Castor's own, on GPT-2 124M: plain, wrapped in memory, and wrapped with all of their states on a drive.

    .venv/bin/python tools/bench/torch/torch_optimizers.py --nvme /scratch

Each way is a process of its own, and ways take turns. A line has the medians of a step and of its `optimizer.step()`, and the most memory the process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor

OPTIMIZERS = ("AdamW", "NAdam", "Muon and AdamW")
WAYS = ("plain", "in memory", "states on NVMe")
_STEPS = 6


def optimizer_of(name: str, model: Any) -> list[torch.optim.Optimizer]:
    params = list(model.parameters())
    if name == "AdamW":
        return [torch.optim.AdamW(params, lr=1e-4)]
    if name == "NAdam":
        return [torch.optim.NAdam(params, lr=1e-4)]
    vocabulary = model.transformer.wte.weight
    matrices = [p for p in params if p.dim() == 2 and p is not vocabulary]
    rest = [p for p in params if p.dim() != 2 or p is vocabulary]
    return [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(rest, lr=1e-4)]


def run(name: str, way: str, nvme: str, batch: int) -> dict[str, float]:
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(n_positions=512, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
    optimizers: list[Any] = optimizer_of(name, model)
    if way != "plain":
        given = optimizers if len(optimizers) > 1 else optimizers[0]
        more: dict[str, Any] = {}
        if way == "states on NVMe":
            words = ["momentum_buffer_or_exp_avg", "exp_avg_sq"] if len(optimizers) > 1 else ["exp_avg", "exp_avg_sq"]
            more = {"nvme": nvme, "place": {"*": {word: "nvme" for word in words}}, "host": "1GiB"}
        model, wrapped = castor.wrap(model, given, **more)
        optimizers = [wrapped]
    whole, updates, losses = [], [], []
    for number in range(_STEPS):
        tokens = torch.randint(50257, (batch, 512), generator=torch.Generator().manual_seed(number))
        begin = time.perf_counter()
        for one in optimizers:
            one.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        middle = time.perf_counter()
        for one in optimizers:
            one.step()
        end = time.perf_counter()
        losses.append(loss.item())
        if number >= 2:
            whole.append(end - begin)
            updates.append(end - middle)
    return {"step": statistics.median(whole), "update": statistics.median(updates), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "loss": losses[-1]}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nvme", required=True)
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(run(*chosen.one, chosen.nvme, chosen.batch)))
        return
    for name in OPTIMIZERS:
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(chosen.rounds):
            for way in WAYS:
                command = [sys.executable, __file__, "--nvme", chosen.nvme, "--batch", str(chosen.batch), "--one", name, way]
                found[way].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
        for way in WAYS:
            step, update, peak = (statistics.median(one[key] for one in found[way]) for key in ("step", "update", "peak"))
            ratio = statistics.median(mine["step"] / plain["step"] for mine, plain in zip(found[way], found["plain"]))
            print(f"{name}, {way}: {step:.2f} s a step ({ratio:.2f} of plain), of it {update:.2f} s for the update; {peak:.0f} MiB at most; "
                  f"loss {found[way][0]['loss']:.5f}", flush=True)


if __name__ == "__main__":
    main()
