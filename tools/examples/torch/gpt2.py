# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trains GPT-2 on random tokens, as Colossal-AI's Gemini tutorial does, plainly or under Castor's budgets.

    python gpt2.py --device 2GiB --host 8GiB
    python gpt2.py --small                      # plainly, then under a fifth of the states' memory: seconds on a laptop
    torchrun --nproc-per-node 2 gpt2.py         # two ranks
"""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import Optional

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor


def train(config: GPT2Config, batch: int, steps: int, budgets: Optional[dict], lazy: bool = False) -> list[float]:
    """Losses of some steps; `budgets` None: plain PyTorch; `lazy`: the model is never whole in this process's memory."""
    rank, _ = castor.join()
    torch.manual_seed(0)
    with castor.lazy_init() if lazy else contextlib.nullcontext():
        model = GPT2LMHeadModel(config)
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()  # its newer name
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if budgets is not None:
        model, optimizer = castor.wrap(model, optimizer, max_norm=1.0, initial_scale=2**5, **budgets)
    losses = []
    begin = time.perf_counter()
    for step in range(steps):
        torch.manual_seed(1000 * rank + step)
        tokens = torch.randint(config.vocab_size, (batch, config.n_positions))
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        optimizer.zero_grad()
        if budgets is not None:
            optimizer.backward(loss)  # scales it
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(f"{'castor' if budgets is not None else 'plain':<7} losses {losses[0]:.6f} to {losses[-1]:.6f}, "
              f"{batch * config.n_positions * steps / seconds:.0f} tokens/s")
        if budgets is not None:
            print(model.memory_summary())
    return losses


def main() -> None:
    options = argparse.ArgumentParser(description="GPT-2 medium on random tokens")
    options.add_argument("--device", default="auto", help="budget of the device, such as 2GiB")
    options.add_argument("--host", default="auto", help="budget of host memory")
    options.add_argument("--nvme", help="directory for what fits nowhere else")
    options.add_argument("--stage", type=int, default=3, choices=range(4))
    options.add_argument("--batch", type=int, default=1)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--layers", type=int, default=24)
    options.add_argument("--width", type=int, default=1024)
    options.add_argument("--tokens", type=int, default=1024, help="of a sequence")
    options.add_argument("--small", action="store_true", help="a model of 1.6 million parameters, plainly and under a fifth of its states")
    chosen = options.parse_args()
    if chosen.small:
        config = GPT2Config(vocab_size=1024, n_positions=64, n_embd=128, n_layer=8, n_head=4, bos_token_id=0, eos_token_id=0)
        states = sum(p.numel() for p in GPT2LMHeadModel(config).parameters()) * 16
        plain = train(config, 4, chosen.steps, None)
        budgets = {"device": states // 5, "host": "auto", "nvme": chosen.nvme, "stage": chosen.stage,
                   "config": {"chunk": {"min_bytes": "256KiB", "max_bytes": "512KiB"}}}
        offloaded = train(config, 4, chosen.steps, budgets)
        print(f"a device of {castor.format_size(states // 5)} trains states of {castor.format_size(states)}")
        assert all(abs(mine - theirs) <= 1e-5 * theirs for mine, theirs in zip(offloaded, plain)), "the losses differ"
        return
    config = GPT2Config(n_embd=chosen.width, n_layer=chosen.layers, n_head=16, n_positions=chosen.tokens)
    train(config, chosen.batch, chosen.steps, {"device": chosen.device, "host": chosen.host, "nvme": chosen.nvme, "stage": chosen.stage}, lazy=True)


if __name__ == "__main__":
    main()
