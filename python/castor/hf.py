# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor in transformers' Trainer, on one rank or on several.

    from castor.hf import CastorTrainer
    trainer = CastorTrainer(model=model, args=args, train_dataset=data, castor={"device": "8GiB", "nvme": "/scratch"})
"""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
import transformers
from accelerate import Accelerator

from castor.torch._checkpoints._state import load, save
from castor.torch._optimizer import CastorOptimizer
from castor.torch._wrap import wrap

_STATES = "castor"  # the folder in one of the Trainer's checkpoints
_SCHEDULER = "scheduler.pt"


class CastorTrainer(transformers.Trainer):
    """A Trainer whose model and optimizer are in chunks. No DistributedDataParallel is around the model: Castor averages gradients.

    ``castor`` has the arguments of `castor.torch.wrap`. Optimizers are those that it takes (``optim="adamw_torch"``). All ranks take part
    in saving; checkpoints are resumed at any number of ranks.
    """

    def __init__(self, *args: Any, castor: Optional[dict[str, Any]] = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._wrap_arguments = castor or {}
        accelerator = self.accelerator

        def prepare_model(model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
            if getattr(model, "_castor", None) is None:
                model.to(self.args.device)  # it is evaluated as it is
            # As for evaluation, where accelerate leaves DistributedDataParallel away.
            return Accelerator.prepare_model(accelerator, model, device_placement=False, evaluation_mode=True)

        accelerator.prepare_model = prepare_model

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        """The whole model may be more than a GPU holds: `wrap` moves it into chunks."""

    def create_optimizer(self, *args: Any, **more: Any) -> torch.optim.Optimizer:
        if not isinstance(getattr(self.optimizer, "optimizer", self.optimizer), CastorOptimizer):
            super().create_optimizer(*args, **more)
            assert self.model is not None and self.optimizer is not None
            self.model, self.optimizer = wrap(self.model, self.optimizer, **({"on": self.args.device} | self._wrap_arguments))
            self.model_wrapped = self.model
        return self.optimizer

    def log(self, logs: dict[str, float], *arguments: Any, **more: Any) -> None:
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        if isinstance(optimizer, CastorOptimizer) and optimizer.skipped and "loss" in logs:
            logs["skipped_steps"] = optimizer.skipped  # whose gradients were not finite
        super().log(logs, *arguments, **more)

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        weights = self.model.state_dict()  # on all ranks; rank 0 gets them
        if self.args.should_save:
            self._save(output_dir, state_dict=weights)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        os.makedirs(output_dir, exist_ok=True)
        save(os.path.join(output_dir, _STATES), self.model)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, _SCHEDULER))

    def _load_best_model(self) -> None:
        """From Castor's own part of the checkpoint, where there is one. Every rank takes part, and its names are the model's; files of weights may have others."""
        states = os.path.join(self.state.best_model_checkpoint or "", _STATES)
        if getattr(self.model, "_castor", None) is None or not os.path.isdir(states):
            super()._load_best_model()
            return
        load(states, self.model, weights_only=True)

    def _load_optimizer_and_scheduler(self, checkpoint: Optional[str]) -> None:
        if checkpoint is None:
            return
        load(os.path.join(checkpoint, _STATES), self.model)
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(checkpoint, _SCHEDULER), weights_only=True))
