# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks begin with rank 0's values, as they do under DistributedDataParallel."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._machine._world import said_by_all
from castor.torch._parameters._memory import device_digest_of

log = logging.getLogger("castor")


def align(modules: Iterable[tuple[str, nn.Module]], seed: int) -> int:
    """Gives every rank the parameters and buffers of rank 0, where ranks have others. All ranks call this.

    Args:
      seed: for parameters that have no values yet.

    Returns:
      Rank 0's seed.

    Raises:
      InvalidArgument: ranks have different parameters or buffers.
    """
    tensors = dict(_tensors(modules))
    mine = {name: [str(t.dtype), list(t.shape), device_digest_of(t)] for name, t in tensors.items()}
    all_of_them = [json.loads(said) for said in said_by_all(json.dumps([seed, mine]))]
    first = all_of_them[0][1]
    for rank, (_, others) in enumerate(all_of_them):
        odd = sorted(name for name in first.keys() | others.keys() if first.get(name, [])[:2] != others.get(name, [])[:2])
        if odd:
            raise InvalidArgument(f"ranks 0 and {rank} have different parameters or buffers: {', '.join(odd[:3])}. Build the same model on every rank")
    differ = [name for name in first if any(others[name] != first[name] for _, others in all_of_them)]
    for name in differ:
        _broadcast(tensors[name])
    if differ:
        log.info("castor: %d parameters and buffers differed between ranks (%s first), and have rank 0's values now", len(differ), differ[0])
    return all_of_them[0][0]


def _tensors(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in modules:
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if not tensor.is_meta:
                yield f"{prefix}.{name}" if prefix else name, tensor.detach()


def _broadcast(tensor: Tensor) -> None:
    """By whatever device torch's group computes on."""
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    values = tensor.to(device).contiguous()
    dist.broadcast(values, 0)
    with torch.no_grad():
        tensor.copy_(values)
