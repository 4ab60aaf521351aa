# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The optimizer of a wrapped model: torch's by its looks, Castor's by its work."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch

from castor import _abi
from castor._abi import lib
from castor._interrupts import uninterrupted, whole
from castor.errors import CastorError, FailedPrecondition, InvalidArgument
from castor.torch._autograd._compile import uncompiled
from castor.torch._model import Param, read
from castor.torch._optimizers._bare import HOOKS
from castor.torch._optimizers._groups import Grouping, params_of
from castor.torch._optimizers._rule import Groups, Rule
from castor.torch._optimizers._states import States
from castor.torch._parameters._ignored import norm_of, scale
from castor.torch._regroup import regroup
from castor.torch._runtime import Runtime
from castor.torch._torch_internals import plain_functions

log = logging.getLogger("castor")
_NO_LIMIT = 1e300  # of a norm
_MANY_SKIPS = 20  # in a row, which a growing loss scale does not make


class CastorOptimizer(torch.optim.Optimizer):
    """What `castor.wrap` returns. Schedulers, `zero_grad` and `state_dict` are as with any other.

    A group's lr, betas or momentum, eps and weight_decay are obeyed at each step. On several ranks, all call `step`, `state_dict` and
    `load_state_dict`.
    """

    def __init__(self, inner: Sequence[torch.optim.Optimizer], rule: Rule, runtime: Runtime, max_skips: int) -> None:
        self._castor_ready = False
        super().__init__([group for one in inner for group in one.param_groups], inner[0].defaults if len(inner) == 1 else {})
        self._states = States(self)
        self.rule = rule
        for one in inner:
            for name in HOOKS:
                getattr(self, name).update(getattr(one, name))
        self.runtime = runtime
        self.grad_norm: Optional[float] = None  # of the last step, where it was counted
        self.skipped = 0  # steps whose gradients were not finite
        self.max_skips = max_skips  # such in a row; 0: as many as come
        self._skips_in_a_row = 0
        self._grouping = Grouping(self.param_groups, runtime.params.by_tensor)
        self._castor_ready = True

    def __setattr__(self, name: str, value: Any) -> None:
        # What a script sets between steps is meant for the optimizer that it made.
        if not (self.__dict__.get("_castor_ready") and name not in self.__dict__ and not hasattr(type(self), name) and self.rule.set_number(name, value)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Schedule-free optimizers swap the weights for training with those for evaluation.
        if name in ("train", "eval") and self.__dict__.get("rule") is not None and self.rule.has(name):
            return lambda: self._switch(name)
        return object.__getattribute__(self, name)  # which says that there is none

    def __copy__(self) -> CastorOptimizer:
        """Of the same groups, states and model, and without hooks, as a copy of torch's."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__["_states"] = States(made)
        made.__dict__.update({name: OrderedDict() for name in HOOKS})
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise FailedPrecondition("the optimizer's states are in chunks, so it cannot be pickled or copied deeply: "
                                 "save optimizer.state_dict(), or call castor.save")

    def _switch(self, word: str) -> None:
        self.runtime.steps.settle()
        self.runtime.values.settle()
        self.rule.call(word, self.groups)

    @property
    def state(self) -> Any:  # type: ignore[override]
        """States by the parameter, read when asked for. What is written to them is kept."""
        return self._states

    @state.setter
    def state(self, value: Any) -> None:
        if self._castor_ready:
            self._states.become(value)

    @uncompiled
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Updates the parameters. A closure that computes the loss and goes backward is called first, and its answer returned."""
        self._opt_called = True  # which schedulers ask for
        answer = None
        if closure is not None:
            with torch.enable_grad():
                answer = closure()
        self._update()
        return answer

    @whole
    def _update(self) -> None:
        with self.runtime.forwards.turn:
            self.runtime.steps.require("optimizer.step()")
            self._update_alone()

    def _update_alone(self) -> None:
        runtime = self.runtime
        self.follow_groups()
        runtime.residents.gradients.hand_over()
        runtime.residents.find_writes()
        if not runtime.steps.begun:
            runtime.flush()
            runtime.values.given.settle()
            runtime.check_names()
            with uninterrupted():
                self.rule.idle(self.groups)
            return
        if runtime.opening.first is not None:
            raise FailedPrecondition("card= without batch= waits for a training forward of the model itself, and this step had none: call the model, or give "
                                     "castor.wrap batch= as well, and step=")
        runtime.uses.let_go()
        runtime.values.given.settle()
        runtime.check_names()
        if runtime.values.unsettled or runtime.engine.several:
            if runtime.engine.several:
                # Of layers that some ranks have left out, too: what ranks agree on comes behind that on each.
                _abi.check(lib.castor_engine_finish_gradients(runtime.engine.handle))
            runtime.values.settle()
        runtime.gradients.values.part()
        runtime.gradients.values.settle()
        self._leave_out()
        with uninterrupted():  # what the engine has made is the optimizer's, too
            made = self._make_step()
            self.grad_norm = None if runtime.opening.updates_early else made.grad_norm
            self.skipped += not made.applied
            self._skips_in_a_row = 0 if made.applied else self._skips_in_a_row + 1
            runtime.steps.end()
        runtime.forwards.check.after_step(bool(made.applied))
        if not made.applied:
            self._say_skip(made)
        runtime.opening.after_step()

    def _leave_out(self) -> None:
        """What a script has taken out of all groups is not updated."""
        for p in self._grouping.without:
            self.runtime.gradients.values.set(p, None)

    def follow_groups(self) -> None:
        """Takes ``param_groups`` as the script has them now. All ranks call it."""
        self._grouping.look(self.param_groups)
        if self._grouping.due:
            self.runtime.residents.gradients.hand_over()  # a step with gradients has begun, wherever they are
            if self.runtime.steps.begun:
                self._grouping.check_within_step()
            else:
                groups = self._grouping.for_engine(self.param_groups)
                self.rule = regroup(self.runtime, self.rule, self.groups, groups, self._grouping.thawed)
                self._grouping = Grouping(groups, self.runtime.params.by_tensor)
                self._grouping.look(self.param_groups)

    def thaw(self) -> None:
        """A parameter that the engine has as frozen requires a gradient now."""
        self._grouping.look_again()

    def check_early(self) -> None:
        """Before a backward that updates."""
        self.follow_groups()
        if self._grouping.without:
            raise FailedPrecondition(f"parameter {self._grouping.without[0].name} was taken out of param_groups, and update_in_backward=True updates all that "
                                     "have gradients: set its requires_grad to False instead")

    def _say_skip(self, made: _abi.Step) -> None:
        """The step has changed nothing, which is said of the first, and of many in a row."""
        runtime, count = self.runtime, self._skips_in_a_row
        if self.skipped != 1 and count != _MANY_SKIPS and not 0 < self.max_skips <= count:
            return
        name = next((p.name for p in runtime.params if p.number == made.not_finite), "not known")
        found = ("no operation of a checked step has read a parameter without values" if runtime.forwards.check.cleared
                 else "the next step is checked for operations that read parameters without values")
        if self.skipped == 1 and runtime.opening.scales:
            log.warning("castor: step %d has changed nothing: gradients overflow at a loss scale of %g, the first is that of %s. The scale is lowered; "
                        "optimizer.skipped counts such steps", made.step, made.loss_scale, name)
        elif self.skipped == 1:
            log.warning("castor: step %d has changed nothing: gradients are not finite, the first is that of %s, and %s. Lower the learning rate, or look "
                        "at the data; optimizer.skipped counts such steps", made.step, name, found)
        elif count == _MANY_SKIPS:
            log.warning("castor: gradients were not finite in %d steps in a row, and these steps changed nothing; the first is that of %s, and %s", count, name, found)
        if 0 < self.max_skips <= count:
            self._skips_in_a_row = 0
            raise FailedPrecondition(
                f"gradients were not finite in {count} steps in a row, which changed nothing; the first parameter of such a gradient is {name}, and {found}: "
                "lower the learning rate, look at the data, or give castor.wrap max_skips=0 to go on all the same"
            )

    def _make_step(self) -> _abi.Step:
        rule, groups = self.rule, self.groups
        rule.begin(groups)
        try:
            made = self.runtime.engine.step(self._rate())
        except CastorError as error:
            rule.end(groups, False)
            if rule.error is None:
                raise
            self.runtime.steps.end()  # its gradients are dropped
            raise error from rule.error
        rule.end(groups, bool(made.applied))
        return made

    def _rate(self) -> float:
        return max(float(self.groups[0].get("lr", 0.0)), 0.0)

    @whole
    def update_early(self) -> None:
        """What the backward hands back from now on may be updated at once."""
        self.rule.begin(self.groups)
        self.runtime.engine.update_early(self._rate())

    def guess_updates(self) -> None:
        """The same, beside the old states, of which the step takes new ones only where these are its own."""
        self.rule.begin(self.groups)
        self.runtime.engine.guess_updates(self._rate())

    @whole
    @uncompiled
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients that no step has used."""
        with self.runtime.forwards.turn:
            self.runtime.backwards.forget_if_failed()
            self.runtime.steps.require("optimizer.zero_grad()")
            self.runtime.steps.drop_gradients()

    @uncompiled
    def backward(self, loss: torch.Tensor, **arguments: Any) -> None:
        """``loss.backward()``, multiplied by the loss scale."""
        self.scale(loss).backward(**arguments)

    @uncompiled
    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, which `step` divides by."""
        self.runtime.steps.scale()
        return loss * self.runtime.engine.loss_scale().scale

    @uncompiled
    def clip_grad_norm_(self, max_norm: float, beside: Optional[Sequence[torch.Tensor]] = None) -> torch.Tensor:
        """Clips this step's gradients to a global norm, over all parameters and ranks, and returns the norm before.

        `beside`: parameters that are not in chunks and count too; None: those of modules that `wrap` was told to ignore.
        """
        if self.runtime.opening.updates_early:
            raise FailedPrecondition("update_in_backward=True updates before the norm is known: leave it away, or do not clip")
        self.runtime.leases.end_those_over()
        self.runtime.residents.gradients.hand_over()
        device = self.runtime.device.torch_device
        others = self.runtime.modules.ignored.tensors if beside is None else beside
        norm = norm_of(others)
        values = self.runtime.gradients.values
        values.settle()
        if not self.runtime.steps.begun:
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
        """As torch's. Parameters that were frozen at `wrap` are trained from the next forward on, if they require gradients."""
        if self._castor_ready:
            params = group["params"]
            group["params"] = [params] if isinstance(params, torch.Tensor) else list(params)  # an iterator is read once
            for tensor in params_of(group):
                self._grouping.known(tensor)
        super().add_param_group(group)

    @property
    def groups(self) -> Groups:
        """For each group of the engine, the script's group with its numbers, as the last step found them."""
        return self._grouping.ordered

    def _params(self) -> list[Param]:
        with plain_functions():
            return [self.runtime.params.by_tensor[id(tensor)] for group in self.param_groups for tensor in group["params"]]

    def _numbered_groups(self) -> list[dict[str, Any]]:
        """With numbers in place of parameters, as torch counts."""
        index = 0
        groups = []
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": list(range(index, index + count))})
            index += count
        return groups

    def state_dict(self, *, keep: Optional[Callable[[dict[str, Any]], dict[str, Any]]] = None) -> dict[str, Any]:
        """torch's format, on the CPU. All ranks call it; rank 0 gets the states, and the others none.

        `keep`: is given each parameter's states as soon as they are read, and answers what the dictionary has of them, in a file say.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        self.follow_groups()
        states: dict[Any, Any] = {}
        for number, p in enumerate(self._params()):
            state = None if p.frozen else self.rule.state_of(p, self.groups)
            if state is not None:
                states[number] = state if keep is None else keep(state)
        states.update(self.rule.of_all())
        answer: dict[str, Any] = {"state": states if self.runtime.engine.world.rank == 0 else {}, "param_groups": self._numbered_groups()}
        answer = self.rule.to_own_form(answer, self._params())
        for hook in self._optimizer_state_dict_post_hooks.values():
            answer = hook(self, answer) or answer
        return answer

    def state_of(self, p: Param) -> dict[str, Any]:
        """By torch's names."""
        return self.rule.state_of(p, self.groups) or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes torch's format. All ranks give the same."""
        self.runtime.steps.settle()
        self.follow_groups()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = hook(self, state_dict) or state_dict
        state_dict = self.rule.from_own_form(state_dict, self._numbered_groups(), self._params())
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise InvalidArgument("the state is of an optimizer with other parameter groups")
        for mine, group in zip(self.param_groups, groups):
            mine.update({k: v for k, v in group.items() if k != "params"})
        numbers = [number for group in groups for number in group["params"]]
        for number, p in zip(numbers, self._params()):
            state = state_dict["state"].get(number)
            if p.frozen:
                continue
            with uninterrupted():  # its states and their count stay together
                if state is not None:
                    self.rule.take_state(p, state)
                else:
                    self.rule.forget(p)
        of_params = set(numbers)  # or their names, as torch.distributed.checkpoint gives them
        self.rule.take_of_all({name: value for name, value in state_dict["state"].items() if not isinstance(name, int) and name not in of_params})
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)


# A scheduler then leaves `step` as it is.
CastorOptimizer.step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
CastorOptimizer.step._castor_wrapped = True  # type: ignore[attr-defined]
