# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trains a model plainly and under Castor, with the same seeds, and compares what comes out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import nn

import castor.torch as castor

Make = Callable[[], nn.Module]
Loss = Callable[[nn.Module, int], torch.Tensor]  # of a model, in a step
Optimizer = Callable[[Any], torch.optim.Optimizer]


def adamw(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-3)


class Run:
    """What a training has shown."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.gradients: dict[str, torch.Tensor] = {}  # of the first step
        self.weights: dict[str, torch.Tensor] = {}
        self.stats: dict[str, int] = {}


def train(
    make: Make,
    loss_of: Loss,
    wrap: Optional[dict[str, Any]] = None,
    *,
    steps: int = 5,
    micro_batches: int = 1,
    optimizer: Optimizer = adamw,
    around: Optional[Callable[[nn.Module, int], None]] = None,
) -> Run:
    """Trains plainly where `wrap` is None; `around` is called before each step's first micro-batch."""
    torch.manual_seed(7)
    random.seed(7)
    model = make()
    made = optimizer([p for p in model.parameters() if p.requires_grad])
    if wrap is not None:
        model, made = castor.wrap(model, made, **wrap)
    run = Run()
    for step in range(steps):
        torch.manual_seed(100 + step)
        if around is not None:
            around(model, step)
        made.zero_grad()
        total = 0.0
        for micro_batch in range(micro_batches):
            loss = loss_of(model, step * micro_batches + micro_batch)
            loss.backward()
            total += loss.item()
        if step == 0:
            for name, p in model.named_parameters():
                if not p.requires_grad:
                    continue
                if wrap is None:
                    run.gradients[name] = torch.zeros_like(p) if p.grad is None else p.grad.clone()
        made.step()
        run.losses.append(total)
    run.weights = {name: values.clone() for name, values in model.state_dict().items()}
    if wrap is not None:
        run.stats = made.runtime.engine.stats()
    return run


def close(got: Run, want: Run, relative: float = 1e-5) -> None:
    """Losses are equal within a relative error."""
    for step, (mine, theirs) in enumerate(zip(got.losses, want.losses)):
        assert abs(mine - theirs) <= relative * abs(theirs), f"step {step}: {mine} and not {theirs}"
