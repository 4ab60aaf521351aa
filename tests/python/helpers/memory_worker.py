# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""One training of test_memory.py, in a process of its own: prints the bytes of states, of budgets, of a chunk, and of its peak."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor


def peak() -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def main(autocast: bool, nvme: str, share: float) -> None:
    """`share`: of the states that the budgets hold together."""
    config = GPT2Config(vocab_size=4096, n_positions=128, n_embd=768, n_layer=5, n_head=8, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0, bos_token_id=0,
                        eos_token_id=0)
    torch.set_num_threads(2)
    with castor.lazy_init() if nvme else contextlib.nullcontext():
        model: Any = GPT2LMHeadModel(config)
    states = sum(p.numel() for p in model.parameters()) * 16
    budgets = [int(states * share * 0.55), int(states * share * 0.45)]
    chunk = 0
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if nvme:
        model, optimizer = castor.wrap(model, optimizer, device=budgets[0], host=budgets[1], nvme=nvme)
        chunk = optimizer.runtime.engine.stats()["chunk_bytes"]
    length, steps = (32, 3) if autocast else (128, 6)  # processors without bf16 take minutes for more
    for step in range(steps):
        tokens = torch.randint(4096, (1, length), generator=torch.Generator().manual_seed(step))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(states, sum(budgets), chunk, peak())


if __name__ == "__main__":
    main(sys.argv[1] == "autocast", sys.argv[2] if len(sys.argv) > 2 else "", float(sys.argv[3]) if len(sys.argv) > 3 else 0)
