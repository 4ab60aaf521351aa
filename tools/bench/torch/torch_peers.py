# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The same GPT-2 on two ranks of this machine: plain scripts side by side, DDP, FSDP2, DeepSpeed where it is, and Castor, in turn.

    .venv/bin/python tools/bench/torch/torch_peers.py --nvme /scratch                  # 30M parameters
    .venv/bin/python tools/bench/torch/torch_peers.py --nvme /scratch --width 768 --layers 12 --rounds 2

A round starts each once; what counts is the median over rounds of tokens/s against that round's plain scripts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TOKENS = 256
BATCH = 4
WARM_UP = 3  # Castor's first step shows what is held, and its second makes plans


def model_of(options: argparse.Namespace) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(n_embd=options.width, n_layer=options.layers, n_head=options.width // 64, n_positions=TOKENS, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0)
    )


def prepared(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Model, optimizer, and what a backward is."""
    model = model_of(options)
    plainly = lambda loss: loss.backward()  # noqa: E731
    if options.worker == "deepspeed" or options.worker == "deepspeed_nvme":
        import deepspeed

        zero: dict[str, Any] = {"stage": 3}
        if options.worker == "deepspeed_nvme":
            zero["offload_optimizer"] = {"device": "nvme", "nvme_path": options.nvme}
        config = {"train_micro_batch_size_per_gpu": BATCH, "zero_optimization": zero, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}
        engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        return engine, engine, engine.backward
    if options.worker == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    if options.worker == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if options.worker.startswith("castor"):
        import castor.torch as castor

        states = sum(p.numel() for p in model.parameters()) * 16
        tight = {"device": states * 2 // 5, "host": states * 9 // 20, "nvme": options.nvme}
        model, optimizer = castor.wrap(model, optimizer, **(tight if options.worker == "castor_nvme" else {"device": states, "host": states}))
    return model, optimizer, plainly


def work(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    if options.worker != "plain":
        dist.init_process_group("gloo")
    model, optimizer, backward = prepared(options)
    rank = int(os.environ["RANK"])
    for step in range(WARM_UP + options.steps):
        if step == WARM_UP:
            begin = time.perf_counter()
        tokens = torch.randint(50257, (BATCH, TOKENS), generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(input_ids=tokens, labels=tokens).loss
        backward(loss)
        optimizer.step()
        if hasattr(optimizer, "zero_grad"):
            optimizer.zero_grad()
    speed = options.steps * BATCH * TOKENS / (time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(options.answer, str(rank)).write_text(json.dumps({"speed": speed, "peak": peak}))
    if dist.is_initialized() and not options.worker.startswith("castor"):
        dist.destroy_process_group()


def run(who: str, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as answer:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "--worker", who, "--answer", answer,
                   "--nvme", options.nvme, "--width", str(options.width), "--layers", str(options.layers), "--steps", str(options.steps)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        ranks = [json.loads(file.read_text()) for file in Path(answer).iterdir()]
        if len(ranks) < 2:
            said = [line for line in done.stderr.splitlines() if "Error" in line or "castor" in line]
            raise RuntimeError(f"{who} does not run here: " + "; ".join(said[:3]))
    return {"speed": sum(rank["speed"] for rank in ranks) / 2, "peak": max(rank["peak"] for rank in ranks)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nvme", required=True, help="a directory on a drive")
    options.add_argument("--width", type=int, default=384)
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--steps", type=int, default=6)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", default=["plain", "ddp", "fsdp2", "deepspeed", "deepspeed_nvme", "castor", "castor_nvme"])
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options.add_argument("--answer", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.worker:
        work(chosen)
        return
    with torch.device("meta"):
        print(f"GPT-2 of {sum(p.numel() for p in model_of(chosen).parameters()) / 1e6:.1f}M parameters, {BATCH} x {TOKENS} tokens a rank, two ranks")
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(chosen.rounds):
        for who in chosen.only:
            try:
                seen.setdefault(who, []).append(run(who, chosen))
            except RuntimeError as error:
                print(error)
    for who, made in seen.items():
        if len(made) < chosen.rounds:
            continue
        ratio = statistics.median(one["speed"] / plain["speed"] for one, plain in zip(made, seen["plain"]))
        print(f"{who:15} {statistics.median(one['speed'] for one in made):8.0f} tokens/s a rank, {ratio:.2f} of plain, peak {max(one['peak'] for one in made) / 2**30:.2f} GiB a rank")


if __name__ == "__main__":
    main()
