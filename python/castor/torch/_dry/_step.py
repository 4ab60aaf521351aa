# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A training step on tensors without memory, which says what the step needs of a device before the step runs."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union

import torch
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._dry._aliases import aliased
from castor.torch._dry._counter import OtherLeaves, StorageCounter
from castor.torch._dry._fakes import Fakes, exchanged, fake_batch, tensors_of_batch
from castor.torch._dry._known import KnownValues
from castor.torch._dry._memory import StepMemory
from castor.torch._dry._values import values_are_named
from castor.torch._torch_internals import fake_tensors, may_be_compiled

Step = Callable[[Any, Any], Optional[Tensor]]


def dry_step(
    model: nn.Module, step: Step, batch: Any, device: Union[str, torch.device] = "cpu", dtype: Optional[torch.dtype] = None, *, as_wrapped: bool = False
) -> StepMemory:
    """Bytes that one training step holds besides parameters, without memory for any tensor and without a computation.

    `step(model, batch)` is a forward and a loss of any shape of yours: it returns the loss, whose backward follows, or runs the backward itself. The model
    may be on any device, on meta or made inside `castor.lazy_init`; its parameters, gradients and buffers stay as they are, and so do random states.
    The batch may be a tensor, or lists, mappings, dataclasses and other objects with tensors, on meta too.

    Args:
      device: ``"cpu"``, or ``"cuda"`` where torch finds a GPU: operators choose their kernels by it.
      dtype: of parameters and of floating tensors of the batch; None leaves theirs.
      as_wrapped: modules compute with parameters as `castor.wrap` gives them where parameters come and go: the gradients of a module are alive until the
        backward of the whole module is over.

    Raises:
      InvalidArgument: the step needs values of tensors, with the line that does; the model is wrapped or has parameters without shapes; `step` returns
        neither a tensor nor None; or the device is not there.
    """
    on = torch.device(device)
    if on.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"device is {str(device)!r}, on which no step computes: give castor.torch.dry_step 'cpu' or 'cuda'")
    if on.type == "cuda" and not torch.cuda.is_available():
        raise InvalidArgument(f"device is {str(device)!r}, and torch finds no GPU here: give castor.torch.dry_step device='cpu'")
    if getattr(model, "_castor", None) is not None:
        raise InvalidArgument("castor.torch.dry_step takes models that castor.wrap has not wrapped: call it before")
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise InvalidArgument(f"parameter {name} has no shape yet: run the lazy module once before castor.torch.dry_step")
    known, others = KnownValues(), OtherLeaves()
    fakes = Fakes(on, dtype, known)
    try:
        with (
            random_states_kept(), _no_collections(), _uncompiled(), known.are_shown(), values_are_named(), fake_tensors(allow_non_fake_inputs=True),
            exchanged(model, fakes), aliased(model) if as_wrapped else contextlib.nullcontext(),
        ):
            return counted_step(model, step, fake_batch(batch, fakes.of), on.type, others, known)
    finally:
        others.restore()


def counted_step(
    model: nn.Module, step: Step, batch: Any, device: str, others: Optional[OtherLeaves] = None, known: Optional[KnownValues] = None
) -> StepMemory:
    """The same of a step on the tensors that there are, real or fake. Gradients stay in the parameters."""
    counter = StorageCounter(model, tensors_of_batch(batch), device, others, known)
    try:
        with (
            torch.enable_grad(), torch.autograd.set_multithreading_enabled(False), torch.autograd.graph.saved_tensors_hooks(counter.pack, counter.unpack), counter
        ):
            loss = step(model, batch)
            if loss is not None and not isinstance(loss, Tensor):
                raise InvalidArgument(f"step returned {type(loss).__name__}: return the loss, or None where the step runs the backward itself")
            if loss is not None and not counter.backward_ran:
                loss.backward()
        return counter.memory()
    finally:
        counter.close()


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """All generators are behind as before: a step may draw numbers of any."""
    numpy: Any = sys.modules.get("numpy.random")
    of_python, of_numpy = random.getstate(), numpy and numpy.get_state()
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=gpus):
        try:
            yield
        finally:
            random.setstate(of_python)
            if numpy is not None:
                numpy.set_state(of_numpy)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A collection of garbage at some moment would have cycles die there, and the same step have another curve each time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Compiled parts of a model run as they are written."""
    with torch.compiler.set_stance("force_eager") if may_be_compiled() and hasattr(torch.compiler, "set_stance") else contextlib.nullcontext():
        yield
