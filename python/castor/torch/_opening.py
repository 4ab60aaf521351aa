# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a model's engine is made by, at `wrap` and where a script's groups need another one."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import torch
from torch import nn

from castor._derive import moments_of, uses_of
from castor.torch import _record
from castor.torch._card._first_forward import FirstForward
from castor.torch._card._sharing import Shared
from castor.torch._machine._budgets import Budget, Budgets
from castor.torch._machine._device import Gpu
from castor.torch._machine._placement import Placement
from castor.torch._model import WATCHED, Moments, Owner
from castor.torch._optimizers._rule import Rule


class Opening:
    """What `castor.wrap` was told. It keeps no part of the model alive."""

    def __init__(self, device: Budget, host: Budget, folders: Sequence[str], stage: int, max_norm: float, initial_scale: Optional[float], chunk: Any,
                 updates_early: bool, units: Sequence[Union[nn.Module, type]], ignore: Sequence[nn.Module], config: dict[str, Any], shared: Optional[Shared] = None) -> None:
        """`config`: keys that go before what is made of the other arguments. `shared`: by ``card=``."""
        self._device, self._host = device, host
        self.folders = folders
        self._stage, self._max_norm, self._initial_scale, self._chunk = stage, max_norm, initial_scale, chunk
        self.updates_early = updates_early
        self._units = [unit if isinstance(unit, type) else weakref.ref(unit) for unit in units]
        self._ignore = [weakref.ref(module) for module in ignore]
        self._config = config
        self.card = None if shared is None else shared.choice
        self._recomputed = [] if shared is None else [weakref.ref(module) for module in shared.recomputed]
        self.scales = bool(initial_scale)  # losses are multiplied by a loss scale
        self.guesses = False  # updates may begin in the backward, as guesses
        # Of all gradients; None: each as its parameter.
        self.reduce_dtype = torch.float32 if config.get("grad_mode") == "fp32" else None
        self.budgets: Budgets  # of the engine that there is
        self.held: Moments = []  # at once in a step, as the model tells
        self.placement: Optional[Placement] = None  # while budgets may change
        self.first: Optional[FirstForward] = None  # a forward that the card waits for

    def choose_budgets(self, params: Iterable[tuple[int, torch.dtype, bool]], rule: Rule, processor: Any, optimizer: str) -> None:
        """`params`: elements, type, and whether it is frozen, of each. `optimizer`: its name. DoesNotFit where the optimizer leaves the engine nothing."""
        budgets = Budgets(self._device, self._host, _resident_bytes(params, len(rule.states)), processor if isinstance(processor, Gpu) else None,
                          None if self.card is None else self.card.card_bytes)
        budgets.set_aside(rule.other_bytes, optimizer)
        self.budgets = budgets

    def await_forward(self, runtime: Owner, model: nn.Module, first: FirstForward) -> None:
        """The model's forwards say what the card is to hold beside chunks."""
        of_runtime, of_model = weakref.ref(runtime), weakref.ref(model)

        def share(shared: Shared) -> None:
            owner, wrapped = of_runtime(), of_model()
            if owner is None or wrapped is None:
                return
            before, budgets = dict(vars(self)), dict(vars(self.budgets))
            try:
                self.card, self._recomputed = shared.choice, [weakref.ref(module) for module in shared.recomputed]
                self._device, self._host = shared.choice.device_bytes, shared.host_bytes
                self.budgets.share(shared.choice.card_bytes, shared.choice.device_bytes, shared.host_bytes)
                self.held = self._held(owner, None if self.budgets.fits else wrapped)
                placement = Placement(owner, self.budgets)
                placement.share(self.held)
            except BaseException:
                vars(self).update(before)
                vars(self.budgets).update(budgets)
                raise
            self.placement = placement if placement.watches else None
            self.first = None

        self.first = first
        def may_again() -> bool:
            # Ranks see batches of different lengths, and place chunks together.
            owner = of_runtime()
            return owner is not None and not owner.engine.several and not owner.steps.begun

        first.watch(model, may_again, share)

    def take_back(self, budgets: Budgets) -> None:
        """The engine is made as it was."""
        self.budgets = budgets

    def after_step(self) -> None:
        if self.placement is not None:
            self.placement.after_step()
            if not self.placement.watches:
                self.placement = None

    def config(self, rule: Rule) -> dict[str, Any]:
        """The engine's."""
        more = dict(self._config)
        optimizer = rule.config()
        # Processors that compute the backward have no time for updates meanwhile, unless these wait for a drive. An optimizer's own code
        # writes over its states.
        gains = self.budgets.on_gpu or bool(self.folders)
        may = not self.updates_early and optimizer.get("kind") != "custom"
        self.guesses = may and more.get("guess_updates", gains)
        config: dict[str, Any] = {
            "stage": self._stage,
            "device_budget_bytes": self.budgets.device,
            "host_budget_bytes": self.budgets.host,
            "average_micro_batches": False,
            "own_lease_ends": True,
            "borrow_grads": self._may_reside(),
            "guess_updates": self.guesses,
            "optimizer": optimizer,
            "groups": rule.groups(),
        }
        if self.folders:
            config["nvme"] = [{"directory": path} for path in self.folders]
        if self._max_norm:
            config["clip_norm"] = self._max_norm
        if self._initial_scale:
            config["loss_scale"] = {"kind": "dynamic", "initial": self._initial_scale}
        if self._chunk:
            config["chunk"] = {"bytes": self._chunk}
        if "moment_dtype" in more:
            config["optimizer"]["moment_dtype"] = more.pop("moment_dtype")
        config.update(more)
        return config

    def seal(self, runtime: Owner, model: Optional[nn.Module]) -> None:
        """The engine has all parameters of the model, and takes its memory."""
        self.held = self._held(runtime, None if self.budgets.fits else model)
        runtime.engine.seal(self.held, estimate=not self.budgets.fits)

    def _held(self, runtime: Owner, model: Optional[nn.Module]) -> Moments:
        """What a step holds at once, moment by moment; without a model all of it."""
        numbers = {id(p.tensor): p.number for p in runtime.params}
        trained = [id(p.tensor) for p in runtime.params if not p.frozen]
        if model is None:
            return [(list(numbers.values()), [numbers[tensor] for tensor in trained])]
        units = [unit if isinstance(unit, type) else unit() for unit in self._units]
        ignored, again = ([module() for module in modules] for modules in (self._ignore, self._recomputed))
        uses = moments_of(uses_of(model, trained, units=units, ignore=ignored, recomputed=again, ranks=runtime.engine.world.size))
        return [([numbers[t] for t in use.hold if t in numbers], [numbers[t] for t in use.grads]) for use in uses]

    def _may_keep_views(self) -> bool:
        """A record has each use. A chunk that is updated in the backward, or has its gradients in the place of its parameters, is not to be held then. With
        poison each use has a copy of its own."""
        return not self.updates_early and not _record.records() and self._config.get("grad_mode") != "reuse" and not self._config.get("poison")

    def _may_reside(self) -> bool:
        """Of one rank. Gradients at parameters are added up in their own type, and nobody has divided them by a loss scale."""
        return self._may_keep_views() and self._config.get("grad_mode", "separate") == "separate" and not self._initial_scale and "loss_scale" not in self._config

    def place(self, runtime: Owner) -> None:
        """Behind a seal: whether the first step shows where states are best, and whether parameters keep views."""
        placement = Placement(runtime, self.budgets)
        self.placement = placement if placement.watches else None
        uses, ranks = runtime.uses, runtime.engine.world.size
        # Where a placement after the first step chooses, no view stays before.
        uses.allow(self._may_keep_views() and (ranks == 1 or self._config.get("stage", self._stage) < 3))
        runtime.residents.allow(self._may_reside() and ranks == 1)
        for p in runtime.params:
            p.watched = WATCHED
        if self.budgets.fits:
            runtime.choose_residents()


def _resident_bytes(params: Iterable[tuple[int, torch.dtype, bool]], states: int) -> int:
    """What it takes to keep everything on the device, with room for chunks that are not full."""
    total = 0
    for count, dtype, frozen in params:
        size = dtype.itemsize
        total += count * size
        if not frozen:
            total += count * (size + (4 if size < 4 else 0) + 4 * states)
    return int(total * 1.15) + (32 << 20)
