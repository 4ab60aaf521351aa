# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``card=`` of a strategy: the batch is the first of the fit's own data, and the step is the module's ``training_step``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor

from castor.errors import InvalidArgument
from castor.torch._card._first_batch import first_batch, kept


def with_step_of(trainer: Trainer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments of `castor.torch.wrap`, with a batch and a step for ``card=`` where nobody gave them.

    Raises:
      InvalidArgument: the data can be read once only, or the module optimizes by hand.
    """
    made = dict(arguments)
    if made.get("card") is None:
        return made
    if made.get("step") is None:
        if not trainer.lightning_module.automatic_optimization:
            raise InvalidArgument("card= runs training_step, and the module optimizes by hand in training_step: give step= and batch= beside card=, where step is "
                                  "a function of the module and the batch that returns the loss")
        made["step"] = _Step(trainer)
    if made.get("batch") is None:
        made["batch"] = _first_of(trainer)
    return made


def _first_of(trainer: Trainer) -> Any:
    """As Lightning hands the batch to ``training_step``, on the CPU."""
    source = trainer.fit_loop._data_source
    read = (trainer.datamodule, getattr(source, "instance", None))
    with kept(*read):
        loader = source.dataloader()
        if isinstance(loader, torch.utils.data.DataLoader):
            batch = first_batch(loader, *read)
        else:
            batch, _, _ = first_batch(loader if isinstance(loader, CombinedLoader) else CombinedLoader(loader, "max_size_cycle"), *read)
        module = trainer.lightning_module
        batch = trainer.precision_plugin.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        return trainer.strategy.batch_to_device(batch, torch.device("cpu"), dataloader_idx=0)


class _Step:
    """``training_step`` of the first batch, under the precision of the trainer, without logging."""

    def __init__(self, trainer: Trainer) -> None:
        self._precision = trainer.precision_plugin

    def __call__(self, module: Any, batch: Any) -> Tensor:
        # A dry step gives all modules their own attributes back.
        vars(module).update(log=_log_nothing, log_dict=_log_nothing)
        with self._precision.train_step_context():
            result = module.training_step(batch, 0)
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if not isinstance(loss, Tensor):
            raise InvalidArgument(f"card= needs the loss of a step, and training_step returned {type(result).__name__} without one: give step= and batch= beside "
                                  "card=, where step is a function of the module and the batch that returns the loss")
        return loss


def _log_nothing(*_arguments: Any, **_more: Any) -> None:
    """What a dry step would log has no values."""
