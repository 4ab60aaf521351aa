# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters of modules that `wrap` was told to ignore: torch's own, trained by an optimizer of the script's, and part of the model all the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Ignored:
    """Those of one wrapped model."""

    def __init__(self, model: nn.Module, in_chunks: Iterable[int], untrained: Iterable[Tensor], ranks: int) -> None:
        """`in_chunks`: ids of the parameters that are Castor's. `untrained`: those of them that are in no group of the optimizer: gradients are torch's."""
        mine = set(in_chunks)
        self._named = {name: p for name, p in model.named_parameters() if id(p) not in mine}
        self._untrained = list(untrained)
        self._ranks = ranks

    @property
    def tensors(self) -> list[Tensor]:
        return [*self._named.values(), *(p for p in self._untrained if p.requires_grad)]

    def leave(self, untrained: Iterable[Tensor]) -> None:
        """`untrained`: as above, from now on."""
        self._untrained = list(untrained)

    def values(self) -> dict[str, Tensor]:
        """For checkpoints."""
        return {name: p.detach() for name, p in self._named.items()}

    def take(self, values: dict[str, Tensor]) -> None:
        """What `values` gave."""
        with torch.no_grad():
            for name, p in self._named.items():
                if name in values:
                    p.copy_(values[name])

    def zero_grad(self, set_to_none: bool) -> None:
        for p in self.tensors:
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad.detach_().zero_()

    def average(self) -> None:
        """Gradients over ranks, as DistributedDataParallel's are. All ranks call it; one that lacks a gradient brings zeros."""
        trained = [p for p in self.tensors if p.requires_grad]
        if self._ranks == 1 or not trained:
            return
        with torch.no_grad():
            has = torch.tensor([p.grad is not None for p in trained], dtype=torch.int32, device=trained[0].device)
            dist.all_reduce(has, op=dist.ReduceOp.MAX)
            for p, some in zip(trained, has.tolist()):
                if not some:
                    continue
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                p.grad.div_(self._ranks)
                dist.all_reduce(p.grad)


def norm_of(tensors: Iterable[Tensor]) -> float:
    """The 2-norm of the gradients together."""
    found = [p.grad for p in tensors if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(found)) if found else 0.0


def scale(tensors: Iterable[Tensor], factor: float) -> None:
    """Multiplies the gradients."""
    gradients: list[Any] = [p.grad for p in tensors if p.grad is not None]
    with torch.no_grad():
        for gradient in gradients:
            gradient.mul_(factor)
