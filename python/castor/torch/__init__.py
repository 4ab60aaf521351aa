# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor in PyTorch: one line around a model and its optimizer.

    import castor.torch as castor
    model, optimizer = castor.wrap(model, optimizer, device="8GiB", host="64GiB", nvme="/scratch")
"""

from castor import *  # noqa: F403
from castor import __all__ as _names
from castor.torch._autograd._activations import offload_activations
from castor.torch._checkpoints._load_weights import LoadedWeights, load_weights
from castor.torch._checkpoints._save_on import SaveOn, save_on
from castor.torch._checkpoints._sleep import sleep, wake, weights
from castor.torch._checkpoints._state import checkpoints, exact, gathered, gradient, load, save
from castor.torch._dry._memory import StepMemory
from castor.torch._dry._step import dry_step
from castor.torch._machine._join import join
from castor.torch._optimizer import CastorOptimizer
from castor.torch._others import Taken, from_deepspeed, from_gemini
from castor.torch._parameters._lazy import lazy_init
from castor.torch._record import record
from castor.torch._wrap import wrap

__all__ = [
    *_names, "CastorOptimizer", "LoadedWeights", "SaveOn", "StepMemory", "Taken", "checkpoints", "dry_step", "exact", "from_deepspeed", "from_gemini", "gathered", "gradient",
    "join", "lazy_init", "load", "load_weights",
    "offload_activations", "record", "save", "save_on", "sleep", "wake", "weights", "wrap",
]
