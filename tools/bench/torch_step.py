# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor costs in PyTorch: steps of GPT-2 next to the plain script's, in turn, and host time for each module's call.

    .venv/bin/python tools/bench/torch_step.py                    # GPT-2 124M, 4 x 512 tokens, resident
    .venv/bin/python tools/bench/torch_step.py --batch 1 --rounds 9
    .venv/bin/python tools/bench/torch_step.py --device 700MiB --nvme /scratch
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor


def gpt2(wrap: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(n_positions=512, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return castor.wrap(model, optimizer, **wrap) if wrap is not None else (model, optimizer)


def step(model: Any, optimizer: Any, seed: int, batch: int) -> tuple[float, float]:
    """Seconds, and the loss."""
    tokens = torch.randint(50257, (batch, 512), generator=torch.Generator().manual_seed(seed))
    begin = time.perf_counter()
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin, loss.item()


def steps(options: argparse.Namespace) -> None:
    both = [gpt2(None), gpt2({"device": options.device, "host": options.host, "nvme": options.nvme})]
    times: list[list[float]] = [[], []]
    for round_number in range(options.rounds + 2):
        losses = []
        for which, (model, optimizer) in enumerate(both):
            seconds, loss = step(model, optimizer, round_number, options.batch)
            losses.append(loss)
            if round_number >= 2:  # the first shows what is held, the second makes plans
                times[which].append(seconds)
        assert abs(losses[1] - losses[0]) <= 1e-4 * losses[0], losses
    ratios = [mine / plain for plain, mine in zip(*times)]
    print(f"GPT-2 124M, {options.batch} x 512 tokens: plain {statistics.median(times[0]):.3f} s, castor {statistics.median(times[1]):.3f} s, "
          f"median of ratios {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), {options.rounds} rounds in turn")
    print(both[1][0].memory_summary())


def calls(modules: int) -> None:
    """A forward of tiny modules, without gradients and with."""
    for grad in (False, True):
        seconds = []
        for wrap in (False, True):
            torch.manual_seed(0)
            model: Any = nn.Sequential(*(nn.Linear(2, 2) for _ in range(modules)))
            if wrap:
                model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.0), device="64MiB", host="64MiB")
            x = torch.ones(1, 2)
            best = []
            for call in range(49):
                begin = time.perf_counter()
                with torch.set_grad_enabled(grad):
                    model(x)
                if call >= 40:  # a model's first uses are looked at more closely
                    best.append(time.perf_counter() - begin)
            seconds.append(statistics.median(best))
        print(f"{modules} modules of two parameters, {'with' if grad else 'without'} gradients: {(seconds[1] - seconds[0]) / modules * 1e6:.1f} us a call "
              f"more than the plain {seconds[0] / modules * 1e6:.1f} us")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--device", default="auto")
    options.add_argument("--host", default="auto")
    options.add_argument("--nvme")
    chosen = options.parse_args()
    calls(1000)
    steps(chosen)


if __name__ == "__main__":
    main()
