# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A trainer's checkpoints: Castor's states, and beside them the ``optimizer.pt`` that a plain Trainer resumes. Both are resumed."""

from __future__ import annotations

import glob
import os
from typing import Any, Optional

import torch
import transformers

from castor.errors import InvalidArgument
from castor.torch._checkpoints._on_disk import on_disk
from castor.torch._checkpoints._state import load, save
from castor.torch._checkpoints._weight_files import places_of
from castor.torch._optimizer import CastorOptimizer
from castor.torch._optimizers._fused import Fused

STATES = "castor"  # the folder in one of a trainer's checkpoints
OPTIMIZER = "optimizer.pt"
SCHEDULER = "scheduler.pt"
SCALER = "scaler.pt"


def save_states(checkpoint: str, model: Any, optimizer: CastorOptimizer, scheduler: Any, rank: int, optimizer_file: bool) -> None:
    """Writes all that training goes on with, but weights and random states. All ranks call it.

    Args:
      optimizer_file: whether ``optimizer.pt`` has the moments, 8 bytes for each parameter of AdamW. Without them the file is one that a plain
        Trainer refuses.
    """
    os.makedirs(checkpoint, exist_ok=True)
    save(os.path.join(checkpoint, STATES), model)
    states: dict[str, Any] = {"state": {}, "param_groups": []}
    if optimizer_file:
        states = optimizer.state_dict(keep=lambda state: on_disk(state, checkpoint) if rank == 0 else {})
    if rank == 0:
        torch.save(states, os.path.join(checkpoint, OPTIMIZER))
        torch.save(scheduler.state_dict(), os.path.join(checkpoint, SCHEDULER))


def why_not_resumed(checkpoint: str) -> Optional[str]:
    """Why files of a checkpoint do not continue a training; None: they do."""
    if os.path.isdir(os.path.join(checkpoint, STATES)):
        return None
    if glob.glob(os.path.join(checkpoint, "global_step*")):
        return "its states are DeepSpeed's"
    if os.path.isdir(os.path.join(checkpoint, "optimizer_0")) or glob.glob(os.path.join(checkpoint, "pytorch_model_fsdp*")):
        return "its states are FSDP's"
    if os.path.isfile(os.path.join(checkpoint, SCALER)):
        return "its run had a GradScaler, as fp16=True makes, and Castor has none"
    lacks = [name for name in (OPTIMIZER, SCHEDULER) if not os.path.isfile(os.path.join(checkpoint, name))]
    return f"it has no {' and no '.join(lacks)}, as save_only_model=True leaves it" if lacks else None


def refuse(checkpoint: str, why: Optional[str]) -> None:
    """Says why a checkpoint cannot be resumed, where there is a reason."""
    if why is not None:
        raise InvalidArgument(f"{checkpoint} cannot be resumed under Castor: {why}. Resume it with the trainer that saved it, or begin a new run from its "
                              "weights by from_pretrained")


def load_states(checkpoint: str, model: Any, optimizer: CastorOptimizer, scheduler: Any) -> None:
    """Takes what `save_states` or a plain Trainer saved. All ranks call it."""
    refuse(checkpoint, why_not_resumed(checkpoint))
    own = os.path.join(checkpoint, STATES)
    if os.path.isdir(own):
        load(own, model)
    else:
        states = torch.load(os.path.join(checkpoint, OPTIMIZER), map_location="cpu", mmap=True, weights_only=True)
        refuse(checkpoint, _why_not_taken(states, optimizer))
        optimizer.load_state_dict(states)
    scheduler.load_state_dict(torch.load(os.path.join(checkpoint, SCHEDULER), weights_only=True))


def take_renamed_weights(checkpoint: str, model: Any) -> None:
    """Takes the weights of a plain Trainer's checkpoint whose files have other names than the model, as those of a Mixtral's experts.

    Such a Trainer reads files by the model's names, and leaves the rest of the model as it was. ``from_pretrained`` knows both names; its copy of the
    model is in host memory for that time. All ranks call it.
    """
    if not isinstance(model, transformers.PreTrainedModel) or os.path.isdir(os.path.join(checkpoint, STATES)):
        return
    found = places_of(checkpoint).keys()
    known = {name for name, _ in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))}
    if {name for name, _ in model.named_parameters()} - found and found - known:
        model.load_state_dict(type(model).from_pretrained(checkpoint, dtype="auto").state_dict())


def _why_not_taken(states: dict[str, Any], optimizer: CastorOptimizer) -> Optional[str]:
    """What differs between a plain optimizer's states and the optimizer that is to take them."""
    theirs, ours = ([len(group["params"]) for group in groups] for groups in (states["param_groups"], optimizer.param_groups))
    if theirs != ours:
        return f"its optimizer has groups of {theirs} parameters, and this one of {ours}"
    numbers = [number for group in states["param_groups"] for number in group["params"]]
    shapes = [p.shape for p in optimizer._params()]
    for number, shape in zip(numbers, shapes):
        found = {name: value for name, value in states["state"].get(number, {}).items() if isinstance(value, torch.Tensor) and name != "step"}
        if found and isinstance(optimizer.rule, Fused) and set(found) != set(optimizer.rule.states):
            return f"its optimizer keeps {', '.join(found)}, and this one {', '.join(optimizer.rule.states) or 'nothing'}"
        for name, value in found.items():
            if name in optimizer.rule.states and value.shape != shape:
                return f"its parameter {number} has {name} of shape {list(value.shape)}, and this one's has {list(shape)}"
    return None
