# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`with_castor`: a trainer of transformers' family with its model and optimizer in chunks."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Mapping
from typing import Any, Optional

import torch
import transformers
from accelerate import Accelerator

from castor.errors import DoesNotFit, InvalidArgument
from castor.hf._arguments import checked
from castor.hf._card import training, with_step_of
from castor.hf._checkpoints import STATES, load_states, refuse, save_states, take_renamed_weights, why_not_resumed
from castor.hf._frozen import budgets_of_frozen, left_over, wrap_frozen
from castor.torch._checkpoints._state import load
from castor.torch._counts import Counts
from castor.torch._optimizer import CastorOptimizer
from castor.torch._wrap import wrap

log = logging.getLogger("castor")


class _WithCastor:
    """What `with_castor` puts before a trainer's own methods."""

    def __init__(self, *args: Any, castor: Optional[Mapping[str, Any]] = None, **more: Any) -> None:
        self._wrap_arguments = checked(castor or {})
        self._frozen_arguments = self._wrap_arguments.pop("frozen", None)
        self._of_all_models = dict(self._wrap_arguments)
        self._optimizer_file = bool(self._wrap_arguments.pop("optimizer_file", True))
        self._counts = Counts() if self._wrap_arguments.pop("log", True) else None
        super().__init__(*args, **more)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        accelerator = self.accelerator

        def prepare_model(model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
            if getattr(model, "_castor", None) is None and not (evaluation_mode and self._freeze(model)):
                model.to(self.args.device)  # it is evaluated as it is
            # As for evaluation, where accelerate leaves DistributedDataParallel away.
            return Accelerator.prepare_model(accelerator, model, device_placement=False, evaluation_mode=True)

        accelerator.prepare_model = prepare_model

    def _freeze(self, model: Any) -> bool:
        """Whether a model that is only evaluated, as a reference or a reward, went into chunks."""
        trained = {id(p) for p in self.model.parameters()}
        if any(id(p) in trained for p in model.parameters()):
            return False
        arguments = budgets_of_frozen(model, self._of_all_models, self._frozen_arguments)
        if arguments is None:
            return False
        left = left_over(self._wrap_arguments, arguments)
        try:
            wrap_frozen(model, {"on": self.args.device} | arguments)
        except DoesNotFit as error:
            if self._frozen_arguments is not None:
                raise
            # Ranks have the same share, so all of them leave the model alone.
            log.warning("castor: a model that the trainer only evaluates stays as plain PyTorch has it, beside the budgets: in its fifth of them, %s. "
                        "castor={..., 'frozen': {'device': ...}} sets another share", error)
            return False
        self._wrap_arguments = left
        return True

    def _move_model_to_device(self, model: Any, device: torch.device) -> None:
        """The whole model may be more than a GPU holds: `wrap` moves it into chunks."""

    def create_optimizer(self, *args: Any, **more: Any) -> torch.optim.Optimizer:
        if not isinstance(self._castor_optimizer(), CastorOptimizer):
            super().create_optimizer(*args, **more)  # type: ignore[misc]
            assert self.model is not None and self.optimizer is not None
            arguments = with_step_of(self, {"on": self.args.device} | self._wrap_arguments)
            with training(self.model) if arguments.get("card") is not None else contextlib.nullcontext():
                self.model, self.optimizer = wrap(self.model, self.optimizer, **arguments)
            self.model_wrapped = self.model
        return self.optimizer

    def log(self, logs: dict[str, float], *arguments: Any, **more: Any) -> None:
        optimizer = self._castor_optimizer()
        if isinstance(optimizer, CastorOptimizer) and optimizer.skipped and "loss" in logs:
            logs["skipped_steps"] = optimizer.skipped  # whose gradients were not finite
        if self._counts is not None and "loss" in logs:
            # Here and not in a callback, which would come behind the history and the callbacks that write TensorBoard's files and others.
            logs.update(self._counts.since_last(self.model))
        super().log(logs, *arguments, **more)  # type: ignore[misc]

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        weights = self.model.state_dict()  # on all ranks; rank 0 gets them
        if self.args.should_save:
            self._save(output_dir, state_dict=weights)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        save_states(output_dir, self.model, self._castor_optimizer(), self.lr_scheduler, self.args.process_index, self._optimizer_file)

    def _load_best_model(self) -> None:
        """From Castor's own part of the checkpoint, where there is one. Every rank takes part, and its names are the model's; files of weights may have others."""
        states = os.path.join(self.state.best_model_checkpoint or "", STATES)
        if getattr(self.model, "_castor", None) is None or not os.path.isdir(states):
            super()._load_best_model()  # type: ignore[misc]
            take_renamed_weights(self.state.best_model_checkpoint or "", self.model)
            return
        load(states, self.model, weights_only=True)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        refuse(resume_from_checkpoint, why_not_resumed(resume_from_checkpoint))  # before weights change
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        take_renamed_weights(resume_from_checkpoint, self.model if model is None else model)

    def _load_optimizer_and_scheduler(self, checkpoint: Optional[str]) -> None:
        if checkpoint is not None:
            load_states(checkpoint, self.model, self._castor_optimizer(), self.lr_scheduler)

    def _castor_optimizer(self) -> Any:
        return getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate's has it inside


@functools.lru_cache(maxsize=None)
def with_castor(trainer: type) -> Any:
    """A class of this trainer with its model and optimizer in chunks: of ``trl.SFTTrainer``, say, one that takes ``castor=`` too.

    ``castor`` has the arguments of `castor.torch.wrap`. Optimizers are those that it takes (``optim="adamw_torch"``). Castor averages gradients, and
    no DistributedDataParallel is around the model. All ranks take part in saving; checkpoints are resumed at any number of ranks.

    Models that the trainer only evaluates, such as the reference of DPO, go into frozen chunks where ``device`` is a size. They take a fifth of
    ``device`` and ``host``, and the trained model has the rest. ``castor={"frozen": {"device": "2GiB"}}`` gives them other arguments.

    A plain trainer resumes the checkpoints, and this one resumes those of a plain one. ``castor={"optimizer_file": False}`` leaves moments out of
    ``optimizer.pt``; a plain trainer then refuses the checkpoint.

    Logs of training losses have what Castor did too, as ``castor_stall_s``; ``castor={"log": False}`` leaves these entries out.

    With ``card``, a batch that nobody gives is the first of the trainer's own data, and the data are read again from the first one on. The step is then a
    forward under the trainer's autocast, whose loss is the model's own. What label smoothing, ``compute_loss_func`` or a trainer's own loss take
    in addition is beside ``card``; ``step`` and ``batch`` in ``castor`` say more.

    Args:
      trainer: `transformers.Trainer` or a class made of it.

    Returns:
      The class, the same for the same trainer. Its arguments are the trainer's, and ``castor``, a dictionary.

    Raises:
      InvalidArgument: the class is not of transformers' family.
    """
    if not (isinstance(trainer, type) and issubclass(trainer, transformers.Trainer)):
        raise InvalidArgument(f"with_castor got {trainer!r}: give transformers.Trainer or a class made of it")
    if issubclass(trainer, _WithCastor):
        return trainer
    name = f"Castor{trainer.__name__}"
    return type(name, (_WithCastor, trainer), {"__module__": "castor.hf", "__qualname__": name, "__doc__": with_castor.__doc__})


CastorTrainer = with_castor(transformers.Trainer)
