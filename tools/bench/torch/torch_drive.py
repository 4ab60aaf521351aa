# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A step bound by the drive: a Llama of 1.12 billion parameters, with AdamW, over three tiers.

    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --update-in-backward
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --max-norm 100                # not reached: updates are guessed right
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --max-norm 100 --no-guesses   # updates wait for the norm
    .venv/bin/python tools/bench/torch/torch_drive.py --computing                                   # the plain model, without an optimizer
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --device 1GiB --host 2GiB --record run.rec
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --dtype bfloat16 --state-dtype 8bit
    .venv/bin/torchrun --standalone --nproc-per-node 2 tools/bench/torch/torch_drive.py --nvme /scratch
    .venv/bin/python tools/bench/torch/torch_drive.py --nvme /scratch --deepspeed          # ZeRO-3, parameters and states on NVMe

OMP_WAIT_POLICY=passive keeps threads of OpenMP that wait from counting as processors that work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import castor.torch as castor

VOCABULARY = 32000


def model_of(layers: int) -> Any:
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, use_cache=False))


def with_castor(given: argparse.Namespace) -> tuple[Any, Any, Any]:
    """A model, its optimizer, and what a backward is."""
    with castor.lazy_init():
        model = model_of(given.layers)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = castor.wrap(
        model, optimizer, device=given.device, host=given.host, nvme=given.nvme, update_in_backward=given.update_in_backward, max_norm=given.max_norm,
        dtype=getattr(torch, given.dtype), state_dtype=given.state_dtype if given.state_dtype in (None, "8bit") else getattr(torch, given.state_dtype),
        config={"guess_updates": False} if given.no_guesses else {})
    return model, optimizer, lambda loss: loss.backward()


class Nothing:
    """In place of an optimizer: a step drops the gradients."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)


def computing(given: argparse.Namespace) -> tuple[Any, Any, Any]:
    model = model_of(given.layers).to(getattr(torch, given.dtype))
    return model, Nothing(model), lambda loss: loss.backward()


def with_deepspeed(given: argparse.Namespace) -> tuple[Any, Any, Any]:
    import deepspeed

    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}.items():
        os.environ.setdefault(name, value)
    drive = {"device": "nvme", "nvme_path": given.nvme, "pin_memory": False}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {
            "stage": 3, "offload_param": {**drive, "buffer_count": 16, "buffer_size": 66_000_000}, "offload_optimizer": {**drive, "buffer_count": 5},
            "sub_group_size": 70_000_000, "stage3_max_live_parameters": 100_000_000, "stage3_max_reuse_distance": 100_000_000},
        "aio": {"block_size": 1048576, "queue_depth": 32, "thread_count": 1, "single_submit": False, "overlap_events": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_clipping": given.max_norm,
    }
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = model_of(given.layers)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    return engine, engine, engine.backward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvme", help="a directory on the drive")
    parser.add_argument("--device", default="2GiB")
    parser.add_argument("--host", default="4GiB")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--tokens", type=int, default=128, help="in a step; with few the drive bounds it")
    parser.add_argument("--steps", type=int, default=6, help="the first two are not counted")
    parser.add_argument("--update-in-backward", action="store_true")
    parser.add_argument("--max-norm", type=float, default=0.0, help="the gradient is clipped to this norm; 0: not at all")
    parser.add_argument("--no-guesses", action="store_true", help="updates wait for the norm")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of parameters, with masters in float32 beside them")
    parser.add_argument("--state-dtype", choices=["bfloat16", "8bit"], help="of moments, in place of float32")
    parser.add_argument("--record", help="for castor report")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--deepspeed", action="store_true", help="its ZeRO-3 with NVMe in Castor's place")
    kind.add_argument("--computing", action="store_true", help="forward and backward of the plain model alone")
    given = parser.parse_args()
    if given.nvme is None and not given.computing:
        parser.error("--nvme says where the drive is")
    make = with_deepspeed if given.deepspeed else computing if given.computing else with_castor
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ and not given.deepspeed:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    with castor.record(given.record) if given.record else contextlib.nullcontext():
        model, optimizer, backward = make(given)
        seconds = []
        for number in range(given.steps):
            tokens = torch.randint(VOCABULARY, (1, given.tokens), generator=torch.Generator().manual_seed(1000 * rank + number))
            begin, used = time.perf_counter(), time.process_time()
            loss = model(input_ids=tokens, labels=tokens).loss
            forward = time.perf_counter()
            backward(loss)
            done = time.perf_counter()
            optimizer.step()
            if hasattr(optimizer, "zero_grad"):
                optimizer.zero_grad()
            seconds.append(time.perf_counter() - begin)
            print(f"step {number + 1}  loss {loss.item()!r}  forward {forward - begin:.2f} s  backward {done - forward:.2f} s  "
                  f"all {seconds[-1]:.2f} s, of processors {time.process_time() - used:.2f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"rank {rank}: median {statistics.median(seconds[2:]):.2f} s, the process had {peak:.1f} GiB")
    if make is with_castor:
        moved = {word: optimizer.runtime.engine.stats()[f"nvme_{word}_bytes"] / given.steps / 2**30 for word in ("read", "written")}
        print(f"NVMe, a step, the first included: {moved['read']:.2f} GiB read, {moved['written']:.2f} GiB written")
        print(model.memory_summary())


if __name__ == "__main__":
    main()
