# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks in groups that share one set of shards. Hosts are names that ranks of one machine are given."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

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
    """Each rank has batches of its own. The digest is of the float32 weights."""
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


def shards(folder: str) -> dict[str, dict[str, Any]]:
    """What steps leave, by stage, `shard`, `shard_states` and hosts."""
    cases: list[tuple[int, Any, str, str]] = [(stage, shard, "group", "aabb") for stage in (1, 3) for shard in (None, "host", 1)]
    cases += [(stage, "host", "world", "aabb") for stage in (1, 2, 3)]
    cases += [(3, 2, "group", "aabb"), (0, "host", "group", "aabb"), (3, "host", "group", "aaaa"), (3, "host", "group", "abcd")]
    found = {}
    for stage, shard, states, names in cases:
        with on_hosts(names):
            model, optimizer = wrapped(stage=stage, shard=shard, shard_states=states)
        found[f"{stage} {shard} {states} {names}"] = steps(model, optimizer, 0, 4)
        del model, optimizer
    return found


def shards_saved(folder: str) -> dict[str, Any]:
    """Digests of runs that were saved under one grouping and resumed under another, next to a run that was not."""
    ways: list[dict[str, Any]] = [{}, {"shard": "host"}, {"shard": 2, "shard_states": "world"}]
    with on_hosts("aabb"):
        resumed = {}
        for number, before in enumerate(ways):
            model, optimizer = wrapped(**before)
            steps(model, optimizer, 0, 2)
            castor.save(f"{folder}/{number}", model)
            for other, after in enumerate(ways):
                model, optimizer = wrapped(**after)
                castor.load(f"{folder}/{number}", model)
                resumed[f"{number} to {other}"] = steps(model, optimizer, 2, 4)["digest"]
        model, optimizer = wrapped()
        return {"resumed": resumed, "went on": steps(model, optimizer, 0, 4)["digest"]}


def shards_refused(folder: str) -> dict[str, str]:
    mine = 4 if dist.get_rank() == 3 else 2
    return {
        "other sizes": _refusal("aaab", shard="host"),
        "not next to each other": _refusal("abab", shard="host"),
        "does not divide": _refusal("aabb", shard=3),
        "ranks differ": _refusal("aabb", shard=mine),
        "nothing is cut": _refusal("aabb", shard=2, stage=0, shard_states="world"),
    }


def _refusal(names: str, **wrap: Any) -> str:
    """The words that all ranks have."""
    said = ""
    with on_hosts(names):
        try:
            wrapped(**wrap)
        except castor.CastorError as error:
            said = f"{type(error).__name__}: {error}"
    all_say: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_say, said)
    assert len(set(all_say)) == 1, all_say
    return said
