# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Losses of one model under AdamW whose moments are kept in less and less: torch's, Castor's, torchao's and bitsandbytes'.

    pip install torchao==0.18.0 bitsandbytes==0.50.2
    .venv/bin/python tools/bench/torch/torch_moments.py
    .venv/bin/python tools/bench/torch/torch_moments.py --steps 2000 --seeds 3 --only castor/8bit,torchao/8bit

The model reads the pages of docs, byte by byte, from the same start and in the same order for all. The table has the mean loss of the last tenth of the
steps, over all seeds, and bytes of moments for each parameter. What is not installed, or does not run here, is left out with its reason.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor

SEQUENCE, BATCH = 64, 16
RATE = 1e-3


def text() -> torch.Tensor:
    pages = sorted((Path(__file__).parents[3] / "docs").glob("*.md"))
    return torch.frombuffer(bytearray(b"".join(page.read_bytes() for page in pages)), dtype=torch.uint8).long()


def model_of(seed: int) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=SEQUENCE, n_embd=256, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def plain(model: Any) -> tuple[Any, Any]:
    return model, torch.optim.AdamW(model.parameters(), lr=RATE)


def with_castor(state_dtype: Any) -> Callable[[Any], tuple[Any, Any]]:
    return lambda model: castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=RATE), device="1GiB", host="1GiB", state_dtype=state_dtype)


def torchao(model: Any) -> tuple[Any, Any]:
    from torchao.optim import AdamW8bit

    return model, AdamW8bit(model.parameters(), lr=RATE, weight_decay=1e-2)


def bitsandbytes(model: Any) -> tuple[Any, Any]:
    from bitsandbytes.optim import AdamW8bit

    return model, AdamW8bit(model.parameters(), lr=RATE, weight_decay=1e-2)


WAYS: dict[str, tuple[Callable[[Any], tuple[Any, Any]], str]] = {
    "torch/float32": (plain, "8"),
    "castor/float32": (with_castor(None), "8"),
    "castor/bfloat16": (with_castor(torch.bfloat16), "4"),
    "castor/8bit": (with_castor("8bit"), "2.06"),
    "torchao/8bit": (torchao, "2.03"),
    "bitsandbytes/8bit": (bitsandbytes, "2.03"),
}


def loss_of(make: Callable[[Any], tuple[Any, Any]], seed: int, steps: int, data: torch.Tensor) -> float:
    model, optimizer = make(model_of(seed))
    drawn = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(data) - SEQUENCE, (BATCH,), generator=drawn)
        tokens = torch.stack([data[start:start + SEQUENCE] for start in starts.tolist()])
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return statistics.mean(losses[-max(1, steps // 10):])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS), help="names of the table, with commas between")
    given = parser.parse_args()
    data = text()
    print("| moments | bytes a parameter | loss by seed | mean |\n|---|---|---|---|", flush=True)
    for name in given.only.split(","):
        make, size = WAYS[name]
        try:
            losses = [loss_of(make, seed, given.steps, data) for seed in range(given.seeds)]
        except (ImportError, NotImplementedError, RuntimeError) as error:
            print(f"| {name} | {size} | left out: {str(error).splitlines()[0]} | |", flush=True)
            continue
        print(f"| {name} | {size} | {', '.join(f'{loss:.4f}' for loss in losses)} | {statistics.mean(losses):.4f} |", flush=True)


if __name__ == "__main__":
    main()
