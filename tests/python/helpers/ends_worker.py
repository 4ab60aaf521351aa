# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A script that trains and then ends as its arguments say (test_ends.py, hosts/). Prints nothing where all goes well."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

import castor.torch as castor
from castor.torch._machine import _world


_kept: list[Any] = []  # models that live as long as the interpreter


def step(model: Any, optimizer: Any) -> None:
    model(torch.randn(4, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def main(*ways: str) -> None:
    """`ways`: what differs from a script of one model that ends without a word."""
    torch.set_num_threads(1)
    if "gloo" in ways:  # as on several hosts
        _world.one_host = lambda: None  # type: ignore[assignment]
    rank, _ = castor.join()
    if "handler" in ways:
        atexit.register(dist.destroy_process_group)
    for stage in (0, 2, 3) if "wraps" in ways else (3,):
        made = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
        model, optimizer = castor.wrap(made, torch.optim.AdamW(made.parameters()), stage=stage, device="16MiB", host="16MiB", timeout_s=20)
        step(model, optimizer)
        if "live" in ways:
            _kept.append((model, optimizer))
    if "fork" in ways:
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if "destroy" in ways:
        dist.destroy_process_group()
    if "trains on" in ways:
        step(model, optimizer)
        assert len(model.state_dict()) == 6
    if "exit" in ways and rank == 1:
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
