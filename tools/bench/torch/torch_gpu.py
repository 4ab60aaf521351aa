# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What the PyTorch package shows on a GPU, one subject a run; gpu_check.sh runs each as a row. Each line is CHECK|VERDICT|FIGURES.

    python torch_gpu.py right        tests/python's models: losses of the plain script, and the same bits resident and offloaded
    python torch_gpu.py ways         what scripts do beside plain steps: the same losses to the bit, and compiled those of the compiled plain script
    python torch_gpu.py small        GPT-2 medium in bf16: memory stays within the budget and what the plain script needs without states
    python torch_gpu.py auto         the same with the budget that the first step measures
    python torch_gpu.py xl WHO       GPT-2 XL in bf16; WHO is plain, fsdp2, resident or offloaded: tokens/s and peak memory
    python torch_gpu.py seven        a model of 7B parameters in bf16, 28 GiB of the device

With --device cpu, models are small and the figures mean nothing: that shows that the script runs.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import castor.torch as castor

STEPS = 6  # of which the first two are not timed: Castor's first step shows what is held, and its second makes plans


def said(check: str, holds: Any, figures: str) -> None:
    verdict = "measured" if holds is None else "ok" if holds else "FAILED"
    print(f"{check}|{verdict}|{figures}", flush=True)


class Gpu:
    """What is measured of it, or nothing on the CPU."""

    def __init__(self, device: str) -> None:
        self.name = device
        self.real = device == "cuda"

    def begin(self) -> None:
        gc.collect()
        if self.real:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.real else 0

    def wait(self) -> None:
        if self.real:
            torch.cuda.synchronize()


def right(gpu: Gpu) -> None:
    from harness import train
    from models import PLAIN, of_transformers

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_default_device(gpu.name)
    for case in PLAIN + of_transformers():
        try:
            want = train(case.make, case.loss, steps=8)
            resident = train(case.make, case.loss, {"device": "256MiB", "host": "256MiB"}, steps=8)
            tight = {"device": "512KiB", "host": "768KiB", "nvme": "/tmp", "chunk": "8KiB", "config": {"poison": True}}
            offloaded = train(case.make, case.loss, tight, steps=8)
        except Exception as error:  # the other cases are still of interest
            said(case.name, False, f"{type(error).__name__}: {error}"[:300].replace("\n", " "))
            continue
        far = max(abs(mine - theirs) / abs(theirs) for mine, theirs in zip(resident.losses, want.losses))
        same = resident.losses == offloaded.losses and all(torch.equal(offloaded.weights[name], values) for name, values in resident.weights.items())
        said(case.name, same and far <= case.relative * 10, f"losses within {far:.1e}, bits {'equal' if same else 'DIFFER'}")


def ways(gpu: Gpu) -> None:
    from harness import train
    from models import gpt2, language

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_default_device(gpu.name)
    resident = {"device": "256MiB", "host": "256MiB"}
    tight = {"device": "512KiB", "host": "768KiB", "nvme": "/tmp", "chunk": "8KiB", "config": {"poison": True}}

    def compiled() -> Any:
        model = gpt2()
        model.transformer.h[0] = torch.compile(model.transformer.h[0], backend="inductor" if gpu.real else "aot_eager")
        return model

    def with_activations_on_the_host(model: Any, step: int) -> torch.Tensor:
        with saver:
            return language(model, step)

    def on_streams_by_turns(model: Any, step: int) -> torch.Tensor:
        if not gpu.real:
            return language(model, step)
        now, other = torch.cuda.current_stream(), streams[step % 2]
        other.wait_stream(now)
        with torch.cuda.stream(other):
            loss = language(model, step)
        now.wait_stream(other)
        return loss

    def evaluated_between(model: Any, step: int) -> torch.Tensor:
        with torch.no_grad(), torch.random.fork_rng(devices=[0] if gpu.real else []):
            before = language(model, step)
        loss = language(model, step)
        assert before.item() == loss.item(), "an evaluation has another loss"
        return loss

    saver = castor.offload_activations("64MiB", least=1)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if gpu.real else []
    cases = (("activations on the host", gpt2, with_activations_on_the_host), ("two streams by turns", gpt2, on_streams_by_turns),
             ("evaluated between", gpt2, evaluated_between), ("compiled", compiled, language))
    for name, make, loss_of in cases:
        for dtype in (torch.float32,) if make is compiled else (torch.float32, torch.bfloat16):
            for where, budgets in (("resident", resident), ("offloaded", tight)):
                check = f"{name}, {where}, {str(dtype)[6:]}"
                try:
                    want = train(make, language, None if make is compiled else {**budgets, "dtype": dtype}, steps=8)
                    got = train(make, loss_of, {**budgets, "dtype": dtype}, steps=8)
                except Exception as error:  # the others are still of interest
                    said(check, False, f"{type(error).__name__}: {error}"[:300].replace("\n", " "))
                    continue
                far = max(abs(mine - theirs) / abs(theirs) for mine, theirs in zip(got.losses, want.losses))
                said(check, far <= (1e-5 if make is compiled else 0), f"losses within {far:.1e}")


def gpt2_of(gpu: Gpu, layers: int, width: int, heads: int, positions: int) -> Any:
    import transformers

    if not gpu.real:
        layers, width, heads = 2, 64, 2
    config = transformers.GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=positions, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0, use_cache=False)
    return transformers.GPT2LMHeadModel(config)


def train(gpu: Gpu, model: Any, optimizer: Any, batch: int, length: int, backward: Any = None) -> float:
    """Tokens a second, the median of the last steps."""
    times = []
    vocabulary = model.config.vocab_size
    for step in range(STEPS):
        ids = torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(step)).to(gpu.name)
        gpu.wait()
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpu.wait()
        times.append(time.perf_counter() - begin)
    assert loss.item() == loss.item(), "the loss is no number"
    return batch * length / statistics.median(times[2:])


def adamw(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-5)


def small(gpu: Gpu, budget: str) -> None:
    batch, length = (8, 512) if gpu.real else (2, 16)
    gpu.begin()
    model = gpt2_of(gpu, 24, 1024, 16, length).to(gpu.name, torch.bfloat16)
    states = sum(p.numel() for p in model.parameters())
    speed = train(gpu, model, adamw(model), batch, length)
    beside = gpu.peak() - states * 8  # parameters, gradients and two moments, all of them bf16
    said("plain", None, f"{speed:.0f} tokens/s, peak {gpu.peak() / 2**30:.2f} GiB, {beside / 2**30:.2f} GiB beside its states")
    del model
    gpu.begin()
    model = gpt2_of(gpu, 24, 1024, 16, length)
    model, optimizer = castor.wrap(model, adamw(model), device=budget, host="32GiB" if gpu.real else "1GiB", dtype=torch.bfloat16, on=gpu.name)
    speed = train(gpu, model, optimizer, batch, length)
    stats = optimizer.runtime.engine.stats()
    most = stats["device_budget_bytes"] + beside * 1.1
    said(f"Castor, device {budget}", gpu.peak() <= most if gpu.real else None, f"{speed:.0f} tokens/s, peak {gpu.peak() / 2**30:.2f} GiB (at most {most / 2**30:.2f}), "
         f"device {stats['device_peak_bytes'] / 2**30:.2f} of {stats['device_budget_bytes'] / 2**30:.2f} GiB")


def xl(gpu: Gpu, who: str) -> None:
    batch, length = (4, 1024) if gpu.real else (2, 16)
    gpu.begin()
    if who in ("plain", "fsdp2"):
        model = gpt2_of(gpu, 48, 1600, 25, length).to(torch.bfloat16)
        if who == "fsdp2":
            import torch.distributed as dist
            from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

            for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29511"), ("RANK", "0"), ("WORLD_SIZE", "1")):
                os.environ.setdefault(name, value)
            dist.init_process_group("cpu:gloo,cuda:nccl" if gpu.real else "gloo")
            mesh = dist.device_mesh.init_device_mesh(gpu.name, (1,))
            policy = {"offload_policy": CPUOffloadPolicy()} if gpu.real else {}
            for block in model.transformer.h:
                fully_shard(block, mesh=mesh, **policy)
            fully_shard(model, mesh=mesh, **policy)
        else:
            model.to(gpu.name)
        speed = train(gpu, model, adamw(model), batch, length)
    else:
        with castor.lazy_init():
            model = gpt2_of(gpu, 48, 1600, 25, length)
        budget = {"resident": "40GiB", "offloaded": "6GiB"}[who] if gpu.real else "64MiB"
        model, optimizer = castor.wrap(model, adamw(model), device=budget, host="64GiB" if gpu.real else "1GiB", dtype=torch.bfloat16, on=gpu.name)
        speed = train(gpu, model, optimizer, batch, length)
    said(f"GPT-2 XL, {who}", None, f"{speed:.0f} tokens/s, peak {gpu.peak() / 2**30:.2f} GiB" + (
        "" if who in ("plain", "fsdp2") else f"; waited {optimizer.runtime.engine.stats()['stall_ns'] / 1e9:.2f} s"))


def seven(gpu: Gpu) -> None:
    import transformers

    size = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32} if gpu.real else {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    batch, length = (2, 1024) if gpu.real else (2, 16)
    gpu.begin()
    with castor.lazy_init():
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32000, use_cache=False, **size))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    begin = time.perf_counter()
    model, optimizer = castor.wrap(
        model, adamw(model), device="28GiB" if gpu.real else "64MiB", host="80GiB" if gpu.real else "1GiB", nvme="/tmp", dtype=torch.bfloat16, on=gpu.name)
    begun = time.perf_counter() - begin
    speed = train(gpu, model, optimizer, batch, length)
    stats = optimizer.runtime.engine.stats()
    said(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f}B parameters", None,
         f"{speed:.0f} tokens/s, peak {gpu.peak() / 2**30:.2f} GiB, wrapped in {begun:.0f} s, waited {stats['stall_ns'] / 1e9:.2f} s, host {stats['host_peak_bytes'] / 2**30:.1f} GiB, "
         f"NVMe {stats['nvme_peak_bytes'] / 2**30:.1f} GiB")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("subject", choices=["right", "ways", "small", "auto", "xl", "seven"])
    options.add_argument("who", nargs="?", choices=["plain", "fsdp2", "resident", "offloaded"], default="plain")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    chosen = options.parse_args()
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(folder) for folder in (here / "tests", here.parents[2] / "tests" / "python" / "helpers") if folder.is_dir()]
    gpu = Gpu(chosen.device)
    if gpu.real and not torch.cuda.is_available():
        said("torch", None, "torch sees no GPU")
        sys.exit(5)
    if chosen.subject == "right":
        right(gpu)
    elif chosen.subject == "ways":
        ways(gpu)
    elif chosen.subject in ("small", "auto"):
        small(gpu, "auto" if chosen.subject == "auto" else "1GiB" if gpu.real else "16MiB")
    elif chosen.subject == "xl":
        xl(gpu, chosen.who)
    else:
        seven(gpu)


if __name__ == "__main__":
    main()
