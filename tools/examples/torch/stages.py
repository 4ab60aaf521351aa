# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trains by ZeRO's stages and evaluates without another configuration, as OneFlow's tutorial does.

    python stages.py --stage 3
    torchrun --nproc-per-node 2 stages.py --stage 1
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

import castor.torch as castor


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stage", type=int, default=1, choices=(1, 2, 3))
    options.add_argument("--steps", type=int, default=100)
    chosen = options.parse_args()
    rank, world = castor.join()

    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    loss_fn = nn.CrossEntropyLoss()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer = castor.wrap(model, optimizer, stage=chosen.stage)

    generator = torch.Generator().manual_seed(1)
    model.train()
    for _ in range(chosen.steps):
        x = torch.randn(128, 256, generator=generator)
        y = torch.ones(128, dtype=torch.long)
        mine = slice(rank * 128 // world, (rank + 1) * 128 // world)  # as a split of both along the batch
        loss = loss_fn(model(x[mine]), y[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        right = (model(torch.randn(128, 256, generator=generator)).argmax(1) == 1).float().mean().item()
    if rank == 0:
        print(f"stage {chosen.stage}, {world} ranks: {right:.0%} right, weights add up to {sum(p.double().sum() for p in model.state_dict().values()):.9f}")
    else:
        model.state_dict()  # all ranks take part


if __name__ == "__main__":
    main()
