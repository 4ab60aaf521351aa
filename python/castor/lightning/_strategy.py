# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor as a strategy of Lightning's Trainer."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from lightning.pytorch.trainer.states import TrainerFn

from castor.errors import FailedPrecondition, InvalidArgument
from castor.lightning._card import with_step_of
from castor.lightning._options import OptionsOfWrap
from castor.torch._wrap import wrap


class CastorStrategy(OptionsOfWrap, DDPStrategy):
    """Ranks as with DDP, whose place Castor takes: parameters, gradients and optimizer states live in chunks.

    Args:
      device: and all others: as for `castor.wrap`. A file may give torch's types by name, such as ``bfloat16``. ``on`` is Lightning's device where
        nobody gives one.

    With ``card``, the step that nobody gives is ``training_step`` with the trainer's precision, where ``log`` and ``log_dict`` do nothing. A batch that
    nobody gives is the first of the fit's own data, which are read again from the first one on. ``training_step`` then reads no values of tensors, and
    writes to no logger by itself; a module for which this does not hold gives ``step`` and ``batch``.

    One optimizer; its scheduler, clipping, accumulation, validation and checkpoints are Lightning's.

    Raises:
      InvalidArgument: an unknown name, with the nearest one; a size that is none; a type or a module by a name that says nothing.
    """

    strategy_name = "castor"

    def __repr__(self) -> str:
        return "<CastorStrategy, for lightning.pytorch.Trainer: Fabric takes castor.lightning.CastorFabricStrategy>"

    def setup(self, trainer: Trainer) -> None:
        if self.world_size == 1:
            # Else Lightning puts a sampler of its own into the loaders, which shuffles those for training whatever they say.
            trainer._accelerator_connector.use_distributed_sampler = False
        if getattr(self.lightning_module, "_castor", None) is None:
            super().setup(trainer)
            return
        # The module is in chunks since it was trained, the same on all ranks.
        assert self.accelerator is not None
        self.accelerator.setup(trainer)
        if trainer.state.fn == TrainerFn.FITTING:
            raise FailedPrecondition("the module is in Castor's chunks already: train on with the same Trainer.fit, or load its checkpoint into a new module")
        self.setup_precision_plugin()

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        if len(self.optimizers) != 1:
            raise InvalidArgument(f"the module configures {len(self.optimizers)} optimizers, and Castor trains with one: put them into groups of one")
        assert self.lightning_module is not None
        _, optimizer = wrap(self.lightning_module, self.optimizers[0], **with_step_of(trainer, self.arguments_on(self.root_device)))
        self.optimizers = [optimizer]
        for config in self.lr_scheduler_configs:
            config.scheduler.optimizer = optimizer

    def model_to_device(self) -> None:
        """The whole model may be more than a GPU holds: `wrap` moves it into chunks, where it is to be trained."""
        assert self.lightning_module is not None
        if self.lightning_module.trainer.state.fn != TrainerFn.FITTING:
            super().model_to_device()

    def configure_ddp(self) -> None:
        """Castor reduces gradients itself."""

    def _register_ddp_hooks(self) -> None:
        """There is no DDP to have any."""

    def teardown(self) -> None:
        """Lightning would move all states of optimizers to the CPU, where they are read from chunks one by one."""
        optimizers, self.optimizers = self.optimizers, []
        super().teardown()
        self.optimizers = optimizers

    def pre_backward(self, closure_loss: Any) -> None:
        """There is no DDP to prepare."""


for _stage in (1, 2, 3):
    StrategyRegistry.register(f"castor_stage_{_stage}", CastorStrategy, description=f"Castor, ZeRO stage {_stage}", stage=_stage)
