# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``card=`` of a trainer: the batch is the trainer's first one, and the step is the forward of the trainer's model."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from accelerate.utils.operations import convert_to_fp32
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._card._first_batch import first_batch


def with_step_of(trainer: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments of `castor.torch.wrap`, with a batch and a step for ``card=`` where nobody gave them.

    Raises:
      InvalidArgument: the data can be read once only, or the model does not take the batch.
    """
    made = dict(arguments)
    if made.get("card") is None:
        return made
    if made.get("batch") is None:
        made["batch"] = _first_of(trainer)
    if made.get("step") is None:
        _refuse_unknown(trainer.model, made["batch"])
        made["step"] = _Step(trainer.accelerator)
    return made


@contextlib.contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """The trainer trains in this mode, where dropout and checkpointing take memory. Behind, all modules are as before."""
    before = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _first_of(trainer: Any) -> Any:
    accelerator = trainer.accelerator
    known = list(accelerator._dataloaders)
    loader = trainer.get_train_dataloader()
    try:
        return first_batch(loader, trainer.train_dataset, trainer.data_collator)
    finally:
        # accelerate counts the loaders that it has made, and the batches of those that are being read.
        accelerator._dataloaders[:] = known
        accelerator.gradient_state._remove_dataloader(loader)


def _refuse_unknown(model: nn.Module, batch: Any) -> None:
    missing = f"the type {type(batch).__name__}"
    if isinstance(batch, Mapping):
        try:
            inspect.signature(model.forward).bind(**batch)
            return
        except TypeError as error:
            missing = f"the keys {', '.join(map(str, batch))} ({error})"
    raise InvalidArgument(f"card= needs a step, and the model's forward does not take the first training batch, which has {missing}: give step= and batch= beside "
                          "card=, where step is a function of the model and the batch that returns the loss")


class _Step:
    """A forward as the trainer's own, whose loss is the model's: label smoothing, ``compute_loss_func`` and a trainer's own loss are left out."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __call__(self, model: Any, batch: Mapping[str, Any]) -> Tensor:
        with self._accelerator.autocast():
            result = model(**batch)
        if self._accelerator.native_amp:
            result = convert_to_fp32(result)  # as accelerate does behind each forward: a second copy of the logits
        loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
        if not isinstance(loss, Tensor):
            raise InvalidArgument(f"card= needs the loss of a step, and the model returned {type(result).__name__} without one: give step= and batch= beside card=, "
                                  "where step is a function of the model and the batch that returns the loss")
        return loss
