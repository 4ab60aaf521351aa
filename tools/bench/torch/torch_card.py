# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Times a step under ``card=`` next to shares of the card that somebody sets by hand.

    .venv/bin/python tools/bench/torch/torch_card.py [--model llama|mixtral] [--share 0.4] [--rounds 3] [--steps 6]

The card is a share of what parameters, gradients, states and the step's own tensors take. By hand each block, each second one or none computes its forward
again or moves its activations to host memory, and chunks get what is left, or a quarter, half or three quarters of the card where that is less. Each round
runs all of them one after another; times are medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import castor.torch as castor
from castor.sizes import format_size
from castor.torch._card._blocks import blocks_of, recompute
from castor.torch._card._choice import with_gaps
from castor.torch._card._moving import DryMoved, Moved, move

HOST = "4GiB"
SHARES = (None, 0.25, 0.5, 0.75)  # of the card for chunks; None: what is left
EVERY: dict[str, tuple[int, int]] = {"kept": (0, 0), "all again": (1, 0), "every second again": (2, 0), "all moved": (0, 1), "every second moved": (0, 2)}


def make(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "llama":
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=384, intermediate_size=1024, num_hidden_layers=12, num_attention_heads=6, vocab_size=4000, pad_token_id=0))
    else:
        model = transformers.MixtralForCausalLM(transformers.MixtralConfig(
            hidden_size=256, intermediate_size=512, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, vocab_size=4000, num_local_experts=4,
            pad_token_id=0))
    return model.to(torch.bfloat16).train()


def step_of(model: Any, batch: Any) -> torch.Tensor:
    return model(**batch).loss


def seconds(model: Any, optimizer: Any, batch: Any, steps: int) -> float:
    """The median of a few steps behind two others."""
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        step_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def chosen(model: Any, again: int, moved: int) -> tuple[list[Any], list[Any]]:
    blocks = blocks_of(model)
    return blocks[::again] if again else [], blocks[::moved] if moved else []


def by_hand(kind: str, batch: Any, card: int) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Settings whose sum is the card at most."""
    found: dict[str, Callable[[], tuple[Any, Any]]] = {}
    for name, (again, moved) in EVERY.items():
        model, saver = make(kind), DryMoved(1)
        recomputed, away = chosen(model, again, moved)
        recompute(model, recomputed)
        move(away, saver)
        size = castor.dry_step(model, step_of, batch, as_wrapped=True).peak_bytes
        for share in SHARES:
            device = card - size if share is None else int(card * share)
            if 0 < device <= card - size:
                label = f"{name}, chunks {'the rest' if share is None else f'{share:.0%}'}"
                found[label] = lambda again=again, moved=moved, device=device, held=saver.peak_bytes: wrapped(kind, again, moved, device, held)
    return found


def wrapped(kind: str, again: int, moved: int, device: int, on_host: int) -> tuple[Any, Any]:
    model = make(kind)
    recomputed, away = chosen(model, again, moved)
    recompute(model, recomputed)
    if away:
        move(away, Moved(with_gaps(on_host)))
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-4), device=device, host=HOST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("llama", "mixtral"), default="llama")
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    asked = parser.parse_args()
    ids = torch.randint(1, 4000, (4, 256), generator=torch.Generator().manual_seed(1))
    batch = {"input_ids": ids, "labels": ids}
    model = make(asked.model)
    needs = 16 * sum(p.numel() for p in model.parameters()) + castor.dry_step(model, step_of, batch).peak_bytes
    card = int(needs * asked.share)
    print(f"{asked.model}: a step takes {format_size(needs)}, the card has {format_size(card)}")

    def by_castor() -> tuple[Any, Any]:
        model = make(asked.model)
        return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-4), card=card, batch=batch, host=HOST)

    settings = {"card=": by_castor, **by_hand(asked.model, batch, card)}
    times: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(asked.rounds):
        for name, make_both in settings.items():
            try:
                model, optimizer = make_both()
            except castor.DoesNotFit:
                continue
            if name == "card=" and not times[name]:
                print(model._castor.opening.card)
            times[name].append(seconds(model, optimizer, batch, asked.steps))
            del model, optimizer
    medians = {name: statistics.median(found) for name, found in times.items() if found}
    best = min(found for name, found in medians.items() if name != "card=")
    for name, found in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{name:<40}{found * 1e3:9.1f} ms  {found / best:5.2f} of the best by hand")
    for name in settings.keys() - medians.keys():
        print(f"{name:<40}  does not fit")


if __name__ == "__main__":
    main()
