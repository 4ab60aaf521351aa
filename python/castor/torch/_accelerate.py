# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor replaces in accelerate's ``Accelerator`` for wrapped models: no DistributedDataParallel, and whole checkpoints.

Without a wrapped model each method is accelerate's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._checkpoints._on_disk import on_disk
from castor.torch._checkpoints._state import load, save
from castor.torch._optimizer import CastorOptimizer
from castor.torch._parameters._guards import refuse_grad_scaler

STATES = "castor"  # the folder of a model's states in a folder of save_state; the second model's is castor_1
_OTHERS = ("FSDP", "DEEPSPEED", "MEGATRON_LM")


def attend() -> None:
    """Replaces the methods once: now, or when the script imports accelerate."""
    kind = getattr(sys.modules.get("accelerate.accelerator"), "Accelerator", None)
    if kind is None:
        if not any(isinstance(one, _Finder) for one in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    elif not hasattr(kind.prepare, "_castor"):
        for ours in (prepare, prepare_model, prepare_optimizer, save_state, load_state):
            setattr(kind, ours.__name__, _around(ours, getattr(kind, ours.__name__)))


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for accelerate: an import of accelerate in `wrap` would take a second of scripts that have no use for it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "accelerate.accelerator":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                attend()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _around(ours: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return ours(plain, self, *arguments, **keywords)

    method._castor = True  # type: ignore[attr-defined]
    return method


def refuse_prepared(model: nn.Module, optimizers: Sequence[Any]) -> None:
    """Raises FailedPrecondition where `accelerator.prepare` came before `wrap`."""
    accelerated = getattr(sys.modules.get("accelerate.optimizer"), "AcceleratedOptimizer", ())
    if isinstance(model, DistributedDataParallel) or any(isinstance(one, accelerated) for one in optimizers):
        what = "the model is inside DistributedDataParallel" if isinstance(model, DistributedDataParallel) else "the optimizer is accelerate's"
        raise FailedPrecondition(f"{what}, as accelerator.prepare makes it: call castor.wrap(model, optimizer) first, and then accelerator.prepare with what "
                                 "castor.wrap returned")


def _wrapped(model: Any) -> bool:
    return getattr(model, "_castor", None) is not None


def prepare(plain: Callable[..., Any], self: Any, *objects: Any, **more: Any) -> Any:
    """Refuses wrapped models where accelerate is to part states itself."""
    if self.distributed_type in _OTHERS and any(_wrapped(one) or isinstance(one, CastorOptimizer) for one in objects):
        raise FailedPrecondition(f"the model is wrapped by Castor, and accelerate is set to {self.distributed_type.value}, which parts states too: leave the "
                                 "plugin of Accelerator away, or run accelerate launch without it")
    return plain(self, *objects, **more)


def prepare_model(plain: Callable[..., Any], self: Any, model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
    """As for evaluation, where accelerate leaves DistributedDataParallel away: Castor averages gradients."""
    return plain(self, model, device_placement=device_placement, evaluation_mode=evaluation_mode or _wrapped(model))


def prepare_optimizer(plain: Callable[..., Any], self: Any, optimizer: Any, device_placement: Any = None) -> Any:
    """Leaves states where Castor has them: ranks but the first have none to move to another device."""
    if isinstance(optimizer, CastorOptimizer):
        if self.scaler is not None and self.scaler.is_enabled():
            refuse_grad_scaler()
        device_placement = False
    return plain(self, optimizer, device_placement=device_placement)


def _places(accelerator: Any) -> list[tuple[str, Any]]:
    """Of each wrapped model that is prepared, the name of its folder."""
    return [(f"{STATES}_{index}" if index else STATES, model) for index, model in enumerate(accelerator._models) if _wrapped(model)]


def save_state(plain: Callable[..., Any], self: Any, output_dir: Any = None, *arguments: Any, **more: Any) -> Any:
    """Accelerate's files, and beside them what `castor.save` saves of each wrapped model. All ranks call it."""
    ours = _places(self)
    if not ours:
        return plain(self, output_dir, *arguments, **more)
    named = self.project_configuration.automatic_checkpoint_naming
    folder = Path(self.project_dir, "checkpoints") if named else Path(output_dir)
    if not named and self.is_main_process:
        for name, _ in ours:  # of an earlier save, whose states would go with the new files otherwise
            shutil.rmtree(folder / name, ignore_errors=True)
    self.wait_for_everyone()
    with _states_by_disk(self._optimizers, folder, self.is_main_process):
        answer = plain(self, output_dir, *arguments, **more)
    for name, model in ours:
        save(os.path.join(answer, name), model)
    return answer


@contextlib.contextmanager
def _states_by_disk(optimizers: Sequence[Any], folder: Path, has_states: bool) -> Iterator[None]:
    """Host memory need not hold the moments of all parameters at once."""

    def keep(state: dict[str, Any]) -> dict[str, Any]:
        return on_disk(state, str(folder)) if has_states else {}

    with contextlib.ExitStack() as replaced:
        for one in optimizers:
            if isinstance(one.optimizer, CastorOptimizer):
                replaced.enter_context(mock.patch.object(one, "state_dict", functools.partial(one.optimizer.state_dict, keep=keep)))
        yield


def load_state(plain: Callable[..., Any], self: Any, *arguments: Any, **more: Any) -> Any:
    """Takes what `save_state` saved, at any number of ranks, or accelerate's own files of a plain run. All ranks call it."""
    ours = _places(self)
    if not ours:
        return plain(self, *arguments, **more)
    module = sys.modules["accelerate.accelerator"]
    states = functools.partial(_load_states, module.load_accelerator_state, ours)  # type: ignore[attr-defined]
    with mock.patch.object(module, "load_accelerator_state", states):
        return plain(self, *arguments, **more)


def _load_states(plain: Callable[..., Any], ours: list[tuple[str, Any]], folder: Any, models: list[Any], optimizers: list[Any], *rest: Any, **more: Any) -> Any:
    lacks = [name for name, _ in ours if not os.path.isdir(os.path.join(folder, name))]
    if len(lacks) == len(ours):
        return plain(folder, models, optimizers, *rest, **more)  # of a plain run
    if lacks:
        raise InvalidArgument(f"{folder} has no {lacks[0]}, where accelerator.save_state puts the states of a wrapped model: prepare the models that were "
                              "prepared before save_state, in the same order")
    alone = all(map(_wrapped, models)) and all(isinstance(one.optimizer, CastorOptimizer) for one in optimizers)
    if alone:
        _load_ours(folder, ours)
        return plain(folder, [], [], *rest, **more)
    # Accelerate counts its files by the place of each model, and reads all of them.
    answer = plain(folder, models, optimizers, *rest, **more)
    _load_ours(folder, ours)
    return answer


def _load_ours(folder: Any, ours: list[tuple[str, Any]]) -> None:
    for name, model in ours:
        load(os.path.join(folder, name), model)
