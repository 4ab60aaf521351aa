# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What each rank of test_ranks.py does. Rank 0 writes what it saw as JSON to the file named by the last argument."""

from __future__ import annotations

import gc
import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)

import castor.torch as castor  # noqa: E402
from models import PLAIN, Case  # noqa: E402

CASES = {case.name: case for case in PLAIN}


def digest(weights: dict[str, torch.Tensor]) -> str:
    text = hashlib.sha256()
    for name in sorted(weights):
        text.update(weights[name].contiguous().numpy().tobytes())
    return text.hexdigest()


def train(case: Case, wrap: Optional[dict[str, Any]], steps: int, first: int = 0, folder: str = "", random_gc: bool = False) -> dict[str, Any]:
    """Each rank has a batch of its own; plainly, DDP averages."""
    torch.manual_seed(7)
    rank, size = dist.get_rank(), dist.get_world_size()
    model: Any = case.make()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if wrap is None:
        model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        model, optimizer = castor.wrap(model, optimizer, timeout_s=60, **wrap)
    if first:
        assert castor.load(folder, model) == {"data": first}
    chance = random.Random(rank)
    losses, kept = [], []
    for step in range(first, steps):
        torch.manual_seed(100 + step)
        optimizer.zero_grad()
        loss = case.loss(model, step * size + rank)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if random_gc:
            # All ranks look at the same values, and each lets go of them when its collector finds out.
            cycle: list[Any] = [seen for seen in [p.detach() for p in model.parameters()] if chance.random() < 0.3]
            cycle.append(cycle)
            kept = [one for one in [*kept, cycle] if chance.random() < 0.6]
            if chance.random() < 0.3:
                gc.collect()
    if wrap is None:
        return {"losses": losses}
    kept.clear()
    gc.collect()
    weights = model.state_dict()
    assert bool(weights) == (rank == 0)
    if folder and not first:
        castor.save(folder, model, extra={"data": steps})
    return {"losses": losses, "digest": digest(weights) if rank == 0 else "", "stats": optimizer.runtime.engine.stats()}


def equal(folder: str) -> list[dict[str, Any]]:
    """Every stage and placement next to DDP."""
    gc.disable()
    seen = []
    for name in ("tied", "low_rank") if dist.get_world_size() == 2 else ("tied",):
        of_case = {"name": name, "plain": train(CASES[name], None, 6), "castor": []}
        roomy = {"device": "64MiB", "host": "64MiB"}
        # Castor's buffers between ranks take 4 MiB of the device.
        tight = {"device": "4600KiB", "host": "1MiB", "nvme": folder, "chunk": "4KiB", "config": {"poison": True}}
        for stage in range(4):
            of_case["castor"].append(train(CASES[name], roomy | {"stage": stage}, 6))
            of_case["castor"].append(train(CASES[name], tight | {"stage": stage}, 6, random_gc=True))
        seen.append(of_case)
    return seen


def save(folder: str) -> dict[str, Any]:
    return train(CASES["lstm"], {"device": "64MiB", "host": "64MiB"}, 4, folder=folder)


def load(folder: str) -> dict[str, Any]:
    return train(CASES["lstm"], {"device": "6MiB", "host": "64MiB", "stage": 2}, 8, first=4, folder=folder)


def alone(folder: str) -> str:
    """Rank 0 alone asks for the state."""
    model: Any = CASES["lstm"].make()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=3)
    if dist.get_rank() != 0:
        import time

        time.sleep(8)
        return ""
    try:
        model.state_dict()
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


def differ(folder: str) -> str:
    """Ranks that have other models."""
    model: Any = torch.nn.Linear(4, 4 + dist.get_rank())
    try:
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=20)
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = globals()[sys.argv[1]](sys.argv[2])
    if dist.get_rank() == 0:
        Path(sys.argv[3]).write_text(json.dumps(found))
    gc.collect()
    dist.destroy_process_group()
