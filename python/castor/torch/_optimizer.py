# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The optimizer of a wrapped model: torch's by its looks, Castor's by its work."""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from castor import _abi
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._model import Param, read
from castor.torch._parameters._ignored import norm_of, scale
from castor.torch._runtime import Runtime

log = logging.getLogger("castor")
_NO_LIMIT = 1e300  # of a norm
_MANY_SKIPS = 20  # in a row, which a growing loss scale does not make

# What torch calls the states of each kind.
_STATES = {
    "adam": {"exp_avg": _abi.OPTIMIZER_STATE, "exp_avg_sq": _abi.OPTIMIZER_STATE + 1},
    "adamw": {"exp_avg": _abi.OPTIMIZER_STATE, "exp_avg_sq": _abi.OPTIMIZER_STATE + 1},
    "sgd": {"momentum_buffer": _abi.OPTIMIZER_STATE},
}


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """``adam``, ``adamw`` or ``sgd``; InvalidArgument names what Castor does not do."""
    kinds = {torch.optim.Adam: "adam", torch.optim.AdamW: "adamw", torch.optim.SGD: "sgd"}
    kind = kinds.get(type(optimizer))
    if kind is None:
        raise InvalidArgument(
            f"castor.wrap takes torch.optim.Adam, AdamW and SGD, not {type(optimizer).__name__}: give it one of these, or train without it"
        )
    for group in optimizer.param_groups:
        for word in ("amsgrad", "maximize", "differentiable"):
            if group.get(word):
                raise InvalidArgument(f"{type(optimizer).__name__}({word}=True) is not what Castor does: leave {word} away")
        if isinstance(group["lr"], torch.Tensor):
            group["lr"] = float(group["lr"])
    if optimizer.state:
        raise InvalidArgument("the optimizer has made steps already: wrap it before, and load its state into the one that castor.wrap returns")
    return kind


def numbers_of(kind: str, group: dict[str, Any]) -> dict[str, float]:
    """A group's numbers, as the engine names them."""
    numbers = {"lr": float(group["lr"]), "weight_decay": float(group["weight_decay"])}
    if kind == "sgd":
        numbers["momentum"] = float(group["momentum"])
    else:
        numbers["beta1"], numbers["beta2"] = (float(beta) for beta in group["betas"])
        numbers["eps"] = float(group["eps"])
    return numbers


def config_of(kind: str, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The config's optimizer; its groups get their numbers before each step."""
    config: dict[str, Any] = {"kind": kind}
    first = optimizer.param_groups[0]
    config.update({name: value for name, value in numbers_of(kind, first).items() if name != "lr"})
    if kind == "sgd":
        config["momentum"] = max((numbers_of(kind, group)["momentum"] for group in optimizer.param_groups), key=bool)
        for word in ("dampening", "nesterov"):
            if any(group[word] != first[word] for group in optimizer.param_groups):
                raise InvalidArgument(f"the groups of SGD have different {word}: give all the same")
            config[word] = first[word]
    return config


def groups_of(kind: str, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The config's groups, with what never changes."""
    groups: list[dict[str, Any]] = [{"name": f"g{index}"} for index in range(len(optimizer.param_groups))]
    for mine, group in zip(groups, optimizer.param_groups):
        if kind == "sgd":
            mine["momentum"] = float(group["momentum"])
        else:
            mine["kind"] = "adamw" if group.get("decoupled_weight_decay", kind == "adamw") else "adam"
    return groups


class _States(dict):  # type: ignore[type-arg]
    """States of parameters, read when somebody asks for one parameter's: fp32 on the CPU. All ranks ask alike. It lists none."""

    def __init__(self, optimizer: CastorOptimizer) -> None:
        super().__init__()
        self._optimizer = weakref.ref(optimizer)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise FailedPrecondition("states are in chunks, and optimizer.state gives copies: write states by optimizer.load_state_dict(...)")

    __setitem__ = __delitem__ = clear = pop = popitem = update = setdefault = _refuse  # type: ignore[assignment]

    def __missing__(self, tensor: torch.Tensor) -> dict[str, Any]:
        optimizer = self._optimizer()
        p = getattr(tensor, "_castor", None)
        return {} if optimizer is None or p is None or p.frozen else optimizer.state_of(p)


class CastorOptimizer(torch.optim.Optimizer):
    """What `castor.wrap` returns. Schedulers, `zero_grad` and `state_dict` are as with any other.

    A group's lr, betas or momentum, eps and weight_decay are obeyed at each step. On several ranks, all call `step`, `state_dict` and
    `load_state_dict`.
    """

    def __init__(self, inner: torch.optim.Optimizer, kind: str, runtime: Runtime, max_skips: int) -> None:
        self._castor_ready = False
        super().__init__(inner.param_groups, inner.defaults)
        self._castor_ready = True
        self._states = _States(self)
        self.kind = kind
        self.runtime = runtime
        self.grad_norm: Optional[float] = None  # of the last step, where it was counted
        self.skipped = 0  # steps whose gradients were not finite
        self.max_skips = max_skips  # such in a row; 0: as many as come
        self._skips_in_a_row = 0
        self._sent: dict[int, dict[str, float]] = {}
        words = ("decoupled_weight_decay", "amsgrad", "maximize", "nesterov", "dampening")
        self._flags = [{word: group[word] for word in words if word in group} for group in self.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        """States by the parameter, read when asked for."""
        return self._states

    @state.setter
    def state(self, _value: Any) -> None:
        if self._castor_ready:
            self._states._refuse()

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Updates the parameters. A closure that computes the loss and goes backward is called first, and its answer returned."""
        self._opt_called = True  # which schedulers ask for
        answer = None
        if closure is not None:
            with torch.enable_grad():
                answer = closure()
        self._update()
        return answer

    def _update(self) -> None:
        runtime = self.runtime
        if not runtime.in_step:
            runtime.flush()
            runtime.check_holes()
            return  # nothing has a gradient, and torch does nothing then
        runtime.let_go()
        runtime.check_holes()
        if runtime.values.unsettled or runtime.engine.world.size > 1:
            runtime.values.settle()
        runtime.gradient_values.part()
        runtime.gradient_values.settle()
        self._send_numbers()
        culprit = self._not_finite() if 0 < self.max_skips <= self._skips_in_a_row + 1 else None
        made = runtime.engine.step(float(self.param_groups[0]["lr"]))
        self.grad_norm = None if runtime.updates_early else made.grad_norm
        self.skipped += not made.applied
        self._skips_in_a_row = 0 if made.applied else self._skips_in_a_row + 1
        runtime.end_step()
        if self._skips_in_a_row:
            self._say_skips(culprit)
        if runtime.placement is not None:
            runtime.placement.after_step()

    def _not_finite(self) -> Optional[str]:
        """The first parameter whose gradient is not finite. All ranks call it."""
        for p in self.runtime.params:
            if p.frozen or not p.elements or not self.runtime.has_gradient(p):
                continue
            try:
                values = read(p, _abi.GRAD)
            except FailedPrecondition:
                continue  # a part of its chunk has no gradient yet
            if not bool(torch.isfinite(values).all()):
                return p.name
        return None

    def _say_skips(self, culprit: Optional[str]) -> None:
        count = self._skips_in_a_row
        if count == _MANY_SKIPS:
            log.warning("castor: gradients were not finite in %d steps in a row, and these steps changed nothing", count)
        if 0 < self.max_skips <= count:
            self._skips_in_a_row = 0
            raise FailedPrecondition(
                f"gradients were not finite in {count} steps in a row, which changed nothing; the first parameter of such a gradient is "
                f"{culprit or 'not known'}: lower the learning rate, look at the data, or give castor.wrap max_skips=0 to go on all the same"
            )

    def _send_numbers(self) -> None:
        for index, (group, flags) in enumerate(zip(self.param_groups, self._flags)):
            for word, value in flags.items():
                if group.get(word) != value:
                    raise FailedPrecondition(f"group {index} of the optimizer has {word}={group.get(word)!r}, and had {value!r} at castor.wrap, which stays")
            numbers = numbers_of(self.kind, group)
            if self._sent.get(index) != numbers:
                self.runtime.engine.set_hyper_parameters(f"g{index}", **numbers)
                self._sent[index] = numbers

    def update_early(self) -> None:
        """What the backward hands back from now on may be updated at once."""
        self._send_numbers()
        self.runtime.engine.update_early(float(self.param_groups[0]["lr"]))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients that no step has used."""
        self.runtime.forget_backward_that_failed()
        if self.runtime.has_gradients():
            self.runtime.abandon()

    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        """``loss.backward()``, multiplied by the loss scale."""
        self.scale(loss).backward(**arguments)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, which `step` divides by."""
        self.runtime.scaled += 1
        return loss * self.runtime.engine.loss_scale().scale

    def clip_grad_norm_(self, max_norm: float, beside: Optional[Sequence[torch.Tensor]] = None) -> torch.Tensor:
        """Clips this step's gradients to a global norm, over all parameters and ranks, and returns the norm before.

        `beside`: parameters that are not in chunks and count too; None: those of modules that `wrap` was told to ignore.
        """
        if self.runtime.updates_early:
            raise FailedPrecondition("update_in_backward=True updates before the norm is known: leave it away, or do not clip")
        self.runtime.leases.end_those_over()
        device = self.runtime.device.torch_device
        others = self.runtime.ignored.tensors if beside is None else beside
        norm = norm_of(others)
        values = self.runtime.gradient_values
        values.settle()
        if not self.runtime.in_step:
            scale(others, min(1.0, max_norm / (norm + 1e-6)))
            return torch.tensor(norm, device=device)
        # Of gradients as they were, which the engine multiplies once.
        raw = self.runtime.engine.clip(values.limit if values.limit < math.inf else float(max_norm) if norm == 0.0 else _NO_LIMIT)
        own = raw * values.factor
        together = math.hypot(own, norm)
        if math.isfinite(together) and max_norm < together + 1e-6:  # else the step changes nothing
            factor = max_norm / (together + 1e-6)
            values.limit = factor * values.factor * (raw + 1e-6)
            self.runtime.engine.clip(values.limit)
            values.clipped(factor * values.factor)
            scale(others, factor)
        return torch.tensor(together, device=device)

    def add_param_group(self, group: dict[str, Any]) -> None:
        if self._castor_ready:
            raise FailedPrecondition("parameters are in chunks by now: add the group to the optimizer before castor.wrap")
        super().add_param_group(group)

    def _params(self) -> list[Param]:
        with torch._C.DisableTorchFunctionSubclass():
            return [self.runtime.by_tensor[id(tensor)] for group in self.param_groups for tensor in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """torch's format, on the CPU. All ranks call it; rank 0 gets the states, and the others none."""
        index = 0
        groups = []
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": list(range(index, index + count))})
            index += count
        engine, states = self.runtime.engine, {}
        for number, p in enumerate(self._params()):
            if not p.frozen and engine.param(p.number).updates:
                states[number] = self.state_of(p)
        return {"state": states if engine.world.rank == 0 else {}, "param_groups": groups}

    def state_of(self, p: Param) -> dict[str, Any]:
        """By torch's names."""
        engine = self.runtime.engine
        updates = engine.param(p.number).updates
        if updates == 0:
            return {}
        state: dict[str, Any] = {} if self.kind == "sgd" else {"step": torch.tensor(float(updates), device="cpu")}
        for name, kind in _STATES[self.kind].items():
            if self.kind != "sgd" or self.param_groups[int(p.group[1:])]["momentum"]:
                state[name] = torch.empty(p.shape, device="cpu")
                engine.read(p.number, kind, state[name].data_ptr(), p.elements)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes torch's format. All ranks give the same."""
        self.runtime.settle()
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise InvalidArgument("the state is of an optimizer with other parameter groups")
        for mine, group in zip(self.param_groups, groups):
            mine.update({k: v for k, v in group.items() if k != "params"})
        numbers = [number for group in groups for number in group["params"]]
        engine = self.runtime.engine
        for number, p in zip(numbers, self._params()):
            state = state_dict["state"].get(number)
            if state is None:
                continue
            for name, kind in _STATES[self.kind].items():
                if state.get(name) is not None:
                    values = state[name].detach().to("cpu", torch.float32).contiguous()
                    engine.write(p.number, kind, values.data_ptr(), p.elements)
            engine.set_updates(p.number, int(state.get("step", 1)))


# A scheduler then leaves `step` as it is.
CastorOptimizer.step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
