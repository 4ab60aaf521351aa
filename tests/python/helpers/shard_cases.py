# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks in groups that share one set of shards. Hosts are names that ranks of one machine are given."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import card_cases
import torch
import torch.distributed as dist
from torch import nn

import castor.torch as castor
from castor.torch._machine import _world

WIDTH, BLOCKS = 64, 8


@contextlib.contextmanager
def on_hosts(names: str) -> Iterator[None]:
    """A letter for each rank's host."""
    before = _world._host
    _world._host = lambda: f"host-{names[dist.get_rank()]} boot"  # type: ignore[assignment]
    try:
        yield
    finally:
        _world._host = before


def wrapped(**wrap: Any) -> tuple[Any, Any]:
    torch.manual_seed(7)
    model: Any = nn.Sequential(*[layer for _ in range(BLOCKS) for layer in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return castor.wrap(model, optimizer, **{"device": "6MiB", "host": "64MiB", "chunk": 4 * WIDTH * WIDTH, "place": {"*": "host"}, "timeout_s": 60} | wrap)


def steps(model: Any, optimizer: Any, first: int, last: int) -> dict[str, Any]:
    """Each rank has batches of its own. The digest is of the exact weights and of the moments."""
    size = dist.get_world_size()
    for step in range(first, last):
        data = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step * size + dist.get_rank()))
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    text = hashlib.sha256()
    for name, weight in model.named_parameters():
        text.update(castor.exact(weight).detach().numpy().tobytes())
    stats = optimizer.runtime.engine.stats()
    return {"digest": text.hexdigest(), "host": stats["host_peak_bytes"], "norm": optimizer.grad_norm}


def told(**wrap: Any) -> str:
    """The words of the refusal, which all ranks have."""
    try:
        wrapped(**wrap)
        said = ""
    except castor.CastorError as error:
        said = f"{type(error).__name__}: {error}"
    all_say: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_say, said)
    assert len(set(all_say)) == 1, all_say
    return said
