# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Groups of a script's that the engine cannot follow as it is: they train parameters that were frozen, or part what one group had.

The engine is made anew for these groups, and the states go there by way of a checkpoint. Memory never holds them twice. Where the new states do not fit,
the engine is made as it was, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from castor._interrupts import uninterrupted
from castor.errors import CastorError, DoesNotFit, FailedPrecondition
from castor.torch._machine._budgets import Budgets
from castor.torch._model import Owner, Param
from castor.torch._optimizers._rule import Groups, Rule
from castor.torch._parameters._params import OWN_GRAD
from castor.torch._parameters._stored import stored
from castor.torch._torch_internals import plain_functions


class _Before(NamedTuple):
    """What the engine was made by."""

    rule: Rule
    budgets: Budgets
    device: int  # bytes, as the last placement left them
    host: int
    groups: list[tuple[str, bool]]  # of each parameter: its group, and whether it is frozen


def regroup(runtime: Owner, rule: Rule, before: Groups, groups: Groups, thawed: Sequence[Param]) -> Rule:
    """Between steps: an engine of other groups, with the same values and states. All ranks call it. Returns the rule for these groups.

    Args:
      before: the groups until now, ``g0`` first.
      thawed: parameters that are trained from now on. Their states begin anew.

    Raises:
      DoesNotFit: the budgets cannot serve the new states. All is as it was.
      FailedPrecondition: a tensor over a parameter is kept, or the optimizer cannot take the groups. All is as it was.
    """
    new = rule.regrouped(groups, before)
    runtime.steps.settle()
    runtime.values.given.settle()
    runtime.values.settle()
    rest = rule.rest()
    opening, stats = runtime.opening, runtime.engine.stats()
    was = _Before(rule, opening.budgets, stats["device_budget_bytes"] + stats["exchange_bytes"], stats["host_budget_bytes"], [(p.group, p.frozen) for p in runtime.params])
    with _folder(runtime) as folder, uninterrupted():
        runtime.engine.save(folder, b"")
        _close(runtime)
        try:
            _arrange(runtime, groups, thawed)
            opening.choose_budgets([(p.elements, p.dtype, p.frozen) for p in runtime.params], new, runtime.device, type(runtime.optimizer).__name__)
            _open(runtime, new)
        except CastorError as error:
            runtime.engine.close()
            _go_back(runtime, was)
            runtime.engine.load(folder)
            rule.take_rest(rest)
            _finish(runtime)
            if isinstance(error, DoesNotFit):
                error.args = (f"{len(thawed)} parameters are to be trained that were frozen at castor.wrap, {thawed[0].name} the first, and stay frozen: {error}",
                              ) if thawed else error.args
            raise
        runtime.engine.load(folder, begin_missing=True)
        new.take_rest(rest)
        for p in thawed:
            with plain_functions():
                OWN_GRAD.__set__(p.tensor, None)
                runtime.gradients.attend(p)
        runtime.modules.ignored.leave([p.tensor for p in runtime.params if p.frozen])
        _finish(runtime)
    return new


@contextlib.contextmanager
def _folder(runtime: Owner) -> Iterator[str]:
    """For states on their way, on a drive of the model's where there is one. All ranks have the same."""
    world, folders = runtime.engine.world, runtime.opening.folders
    made = [tempfile.mkdtemp(prefix="castor-groups-", dir=folders[0] if folders else None) if world.rank == 0 else ""]
    try:
        if world.size > 1:
            dist.broadcast_object_list(made, src=0)
        yield made[0]
    finally:
        if world.rank == 0:
            shutil.rmtree(made[0], ignore_errors=True)


def _close(runtime: Owner) -> None:
    """FailedPrecondition, with the engine as it was, where somebody keeps a tensor over a parameter, on any rank."""
    runtime.let_go()
    try:
        runtime.engine.close()
        return
    except FailedPrecondition:
        gc.collect()
        runtime.flush()
    try:
        runtime.engine.close()
    except FailedPrecondition as error:
        raise FailedPrecondition("param_groups have changed, which takes a new engine, and a tensor over a parameter's values is kept, as by a "
                                 f"forward hook: drop it before the next forward ({error})") from None


def _arrange(runtime: Owner, groups: Groups, thawed: Sequence[Param]) -> None:
    names = {id(tensor): f"g{index}" for index, group in enumerate(groups) for tensor in group["params"]}
    for p in runtime.params:
        p.group = names.get(id(p.tensor), "")
    for p in thawed:
        p.frozen = False


def _open(runtime: Owner, rule: Rule) -> None:
    runtime.engine.create(runtime.opening.config(rule), runtime.device.handle)
    runtime.device.bind(runtime.engine.handle)
    for p in runtime.params:
        dtype, shape = stored(p.dtype, p.shape)
        runtime.engine.register(p.name, shape, dtype, p.frozen, p.group, None)
    rule.bind(runtime)
    runtime.opening.seal(runtime, runtime.modules.model())


def _go_back(runtime: Owner, was: _Before) -> None:
    for p, (group, frozen) in zip(runtime.params, was.groups):
        p.group, p.frozen = group, frozen
    runtime.opening.take_back(was.budgets)
    was.budgets.go_back(was.device, was.host)
    _open(runtime, was.rule)


def _finish(runtime: Owner) -> None:
    runtime.forwards.check.begin_anew()
    runtime.opening.place(runtime)
    runtime.steps.change_weights()
    runtime.values.refresh()
