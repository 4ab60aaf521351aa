# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor as a strategy of Lightning's Fabric."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

from lightning.fabric.strategies import STRATEGY_REGISTRY, DDPStrategy
from lightning.fabric.strategies.strategy import _BackwardSyncControl
from torch import nn
from torch.optim import Optimizer

from castor.errors import FailedPrecondition, InvalidArgument
from castor.lightning._options import OptionsOfWrap
from castor.torch._wrap import wrap


class CastorFabricStrategy(OptionsOfWrap, DDPStrategy):
    """Ranks as with DDP, whose place Castor takes: ``fabric.setup(model, optimizer)`` moves both into chunks.

    Args:
      device: and all others: as for `CastorStrategy`.

    A module that is set up without an optimizer stays plain, as a reference model.

    Raises:
      InvalidArgument: as for `CastorStrategy`; several optimizers.
      FailedPrecondition: an optimizer is set up without its model.
    """

    def __repr__(self) -> str:
        return "<CastorFabricStrategy, for lightning.fabric.Fabric: Trainer takes castor.lightning.CastorStrategy>"

    @property
    def distributed_sampler_kwargs(self) -> Any:
        """None on one rank, where data come in the order of the script's own sampler."""
        return None if self.world_size == 1 else super().distributed_sampler_kwargs

    def setup_environment(self) -> None:
        super().setup_environment()
        self._backward_sync_control = _SyncOfCastor()

    def module_to_device(self, module: nn.Module) -> None:
        """The whole model may be more than a GPU holds: `wrap` moves the model into chunks, and `setup_module` a plain one."""

    def setup_module(self, module: nn.Module) -> Any:
        return module.to(self.root_device)

    def setup_optimizer(self, optimizer: Optimizer) -> Optimizer:
        raise FailedPrecondition("an optimizer is set up without its model, and Castor puts both into chunks: call fabric.setup(model, optimizer)")

    def setup_module_and_optimizers(self, module: nn.Module, optimizers: list[Optimizer], scheduler: Optional[Any] = None) -> Any:
        if len(optimizers) != 1:
            raise InvalidArgument(f"fabric.setup got {len(optimizers)} optimizers, and Castor trains with one: put them into groups of one")
        module, optimizer = wrap(module, optimizers[0], **self.arguments_on(self.root_device))
        if scheduler is not None:
            scheduler.optimizer = optimizer
        return module, [optimizer], scheduler


class _SyncOfCastor(_BackwardSyncControl):
    """``fabric.no_backward_sync`` around all backwards of a step but the last one."""

    def no_backward_sync(self, module: Any, enabled: bool) -> AbstractContextManager[None]:
        return module.no_sync() if enabled else nullcontext()


for _stage in (1, 2, 3):
    STRATEGY_REGISTRY.register(f"castor_stage_{_stage}", CastorFabricStrategy, description=f"Castor, ZeRO stage {_stage}", stage=_stage)
