# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Adam, AdamW and SGD as the engine computes them: one fused pass, to torch's formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch

from castor import _abi
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._model import Owner, Param
from castor.torch._optimizers._rule import Groups

_KINDS = {torch.optim.Adam: "adam", torch.optim.AdamW: "adamw", torch.optim.SGD: "sgd"}
# Words that the engine's formulas do not have.
_OTHERS = ("amsgrad", "maximize", "differentiable")
_STATES = {"adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}


def fused_kind(optimizer: torch.optim.Optimizer) -> Optional[str]:
    """``adam``, ``adamw`` or ``sgd`` where the engine has all of what this one does."""
    kind = _KINDS.get(type(optimizer))
    return kind if kind is not None and _serves(kind, optimizer.param_groups) else None


def _serves(kind: str, groups: Groups) -> bool:
    alike = ("dampening", "nesterov") if kind == "sgd" else ()
    return not any(group.get(word) for group in groups for word in _OTHERS) and all(group[word] == groups[0][word] for group in groups for word in alike)


class Fused:
    """The engine's own update."""

    error = None
    other_bytes = 0
    update_bytes = device_update_bytes = 0

    def __init__(self, groups: Groups, kind: str) -> None:
        self.kind = kind
        self._groups = groups
        self._engine: Any = None
        self._sent: dict[int, dict[str, float]] = {}
        self._lists_first = False
        words = ("decoupled_weight_decay", *_OTHERS, "nesterov", "dampening")
        self._flags = [{word: group[word] for word in words if word in group} for group in groups]
        momentum = kind != "sgd" or any(group["momentum"] for group in groups)
        self.states = _STATES[kind] if momentum else ()

    def regrouped(self, groups: Groups, before: Groups) -> Fused:
        made = Fused(groups, self.kind)
        if not _serves(self.kind, groups) or made.states != self.states:
            words = ", ".join((*_OTHERS, *(("momentum", "dampening", "nesterov") if self.kind == "sgd" else ())))
            raise FailedPrecondition(f"a group was put into the optimizer after castor.wrap with words that the other groups have not ({words}): give it "
                                     "theirs, or put it in before castor.wrap")
        made._lists_first = self._lists_first
        return made

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"kind": self.kind}
        groups = self._groups
        first = groups[0]
        config.update({name: value for name, value in self._numbers(first).items() if name != "lr"})
        if self.kind == "sgd":
            config["momentum"] = max((self._numbers(group)["momentum"] for group in groups), key=bool)
            config.update({word: first[word] for word in ("dampening", "nesterov")})
        return config

    def groups(self) -> Groups:
        groups: Groups = [{"name": f"g{index}"} for index in range(len(self._groups))]
        for mine, group in zip(groups, self._groups):
            if self.kind == "sgd":
                mine["momentum"] = float(group["momentum"])
            else:
                mine["kind"] = "adamw" if group.get("decoupled_weight_decay", self.kind == "adamw") else "adam"
        return groups

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        """As the engine names them."""
        numbers = {"lr": float(group["lr"]), "weight_decay": float(group["weight_decay"])}
        if self.kind == "sgd":
            numbers["momentum"] = float(group["momentum"])
        else:
            numbers["beta1"], numbers["beta2"] = (float(beta) for beta in group["betas"])
            numbers["eps"] = float(group["eps"])
        return numbers

    def bind(self, runtime: Owner) -> None:
        self._engine = runtime.engine
        self._sent.clear()
        for group in self._groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"] = float(group["lr"])

    def begin(self, groups: Groups) -> None:
        for index, (group, flags) in enumerate(zip(groups, self._flags)):
            for word, value in flags.items():
                if group.get(word) != value:
                    raise FailedPrecondition(f"group {index} of the optimizer has {word}={group.get(word)!r}, and had {value!r} at castor.wrap, which stays")
            numbers = self._numbers(group)
            if self._sent.get(index) != numbers:
                self._engine.set_hyper_parameters(f"g{index}", **numbers)
                self._sent[index] = numbers

    def end(self, groups: Groups, applied: bool) -> None:
        """The engine has counted the step."""

    def state_of(self, p: Param, groups: Groups) -> Optional[dict[str, Any]]:
        updates = self._engine.param(p.number).updates
        if updates == 0 and not self._lists_first:
            return None
        state: dict[str, Any] = {} if self.kind == "sgd" else {"step": torch.tensor(float(updates), device="cpu")}
        for index, name in enumerate(self.states):
            if self.kind != "sgd" or groups[int(p.group[1:])]["momentum"]:
                state[name] = torch.empty(p.shape, device="cpu")
                self._engine.read(p.number, _abi.OPTIMIZER_STATE + index, state[name].data_ptr(), p.elements)
        return state or None

    def take_state(self, p: Param, state: dict[str, Any], updates: Optional[int] = None) -> None:
        for name in self.states:
            if state.get(name) is not None and state[name].shape != p.shape:
                raise InvalidArgument(f"the state {name} of {p.name} has the shape {list(state[name].shape)}, and the parameter {list(p.shape)}: load the state "
                                      "of an optimizer of this model")
        for index, name in enumerate(self.states):
            if state.get(name) is not None:
                values = state[name].detach().to("cpu", torch.float32).contiguous()
                self._engine.write(p.number, _abi.OPTIMIZER_STATE + index, values.data_ptr(), p.elements)
        self._engine.set_updates(p.number, int(state.get("step", 1)) if updates is None else updates)

    def has_state(self, p: Param) -> bool:
        return self._engine.param(p.number).updates > 0

    def list_first(self) -> None:
        self._lists_first = True

    def forget(self, p: Param) -> None:
        if self._engine.param(p.number).updates:
            zeros = torch.zeros(p.shape, device="cpu")
            self.take_state(p, {name: zeros for name in self.states}, 0)

    def begin_anew(self, groups: Groups) -> None:
        """The engine has done so."""

    def of_all(self) -> dict[Any, Any]:
        return {}

    def take_of_all(self, entries: dict[Any, Any]) -> None:
        """There are none."""

    def idle(self, groups: Groups) -> None:
        """Torch's do nothing then."""

    def set_number(self, name: str, value: Any) -> bool:
        return False

    def to_own_form(self, state_dict: dict[str, Any], params: Sequence[Param]) -> dict[str, Any]:
        return state_dict

    def from_own_form(self, state_dict: dict[str, Any], groups: Groups, params: Sequence[Param]) -> dict[str, Any]:
        return state_dict

    def has(self, word: str) -> bool:
        return False

    def call(self, word: str, groups: Groups) -> None:
        """There is none."""

    def loaded(self) -> None:
        self._sent.clear()

    def rest(self) -> None:
        return None

    def check_rest(self, rest: Any) -> None:
        """The engine compares moments itself."""

    def take_rest(self, rest: Any) -> None:
        """The engine's checkpoint has all."""
