# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A wrapped model that gives up the device for a while, and whole weights for whoever needs them elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Optional, Union

import torch
from torch import nn

from castor import _abi
from castor._interrupts import uninterrupted
from castor.errors import DoesNotFit, FailedPrecondition, InvalidArgument
from castor.torch._checkpoints._state import runtime_of
from castor.torch._model import read
from castor.torch._runtime import Runtime

_TIERS = {"host": _abi.HOST, "nvme": _abi.NVME}


class Asleep:
    """As a context: the model wakes at its end."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __enter__(self) -> None:
        """The model sleeps already."""

    def __exit__(self, *_: object) -> None:
        wake(self._model)


def sleep(model: nn.Module, to: str = "host") -> Asleep:
    """Moves all that a model has on the device to host memory or NVMe, and gives the device's memory back to torch, between steps.

    Values can be read meanwhile; everything else waits for `wake`, which is called at the end of ``with castor.sleep(model):``. All ranks call both.

    Raises:
      DoesNotFit: there is no room, with the bytes that lack. The model is as it was.
    """
    runtime = runtime_of(model)
    if to not in _TIERS:
        raise InvalidArgument(f"castor.sleep moves to {to!r}: give 'host' or 'nvme'")
    runtime.steps.settle()
    runtime.steps.require("castor.sleep")
    runtime.values.settle()
    for collects in (False, True):
        if collects:
            gc.collect()
        runtime.let_go()
        try:
            with uninterrupted():
                remaining, shortfall = runtime.engine.park(_TIERS[to])
                runtime.steps.sleep(not remaining)
            break
        except FailedPrecondition:
            if collects:
                runtime.choose_residents()
                raise
    if remaining:
        runtime.engine.resume()
        runtime.choose_residents()
        raise DoesNotFit(f"the model cannot sleep: {shortfall}")
    runtime.device.release_cached()
    return Asleep(model)


def wake(model: nn.Module) -> None:
    """Takes the device's memory again, and moves back what was there."""
    runtime = runtime_of(model)
    with uninterrupted():
        runtime.engine.resume()
        runtime.steps.sleep(False)
        runtime.forwards.check.begin_anew()
        runtime.choose_residents()


def weights(model: nn.Module, *, dtype: Optional[torch.dtype] = None, device: Union[str, torch.device, None] = None) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters' names and whole values, one after another in the model's order: for a rollout engine, an export, an average.

    Each tensor is the caller's own, and nothing of Castor's holds it: whoever drops one before the next needs memory for one. Masters give the values
    where there are any. While the model sleeps, too. All ranks go through all of them.

    Args:
      dtype: None: the parameters' own.
      device: None: where the model computes.
    """
    runtime: Runtime = runtime_of(model)
    to = torch.device(device) if device is not None else runtime.device.torch_device
    for name, tensor in model.named_parameters():
        p = runtime.params.by_tensor.get(id(tensor))
        values = tensor.detach() if p is None else read(p)
        made = values.to(to, dtype or tensor.dtype)
        yield name, made.clone() if p is None and made.data_ptr() == tensor.data_ptr() else made
