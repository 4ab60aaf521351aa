# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What an optimizer of a wrapped model does its work by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

import torch

from castor.torch._model import Owner, Param

Groups = list[dict[str, Any]]


class Rule(Protocol):
    """How parameters are updated. It knows the optimizer's numbers and the names of its states, and the engine has the states."""

    states: tuple[str, ...]  # the engine's names of them, in its order
    other_bytes: int  # of host memory, for what states hold beside those
    update_bytes: int  # of host memory beside budgets, for what an update there has at once
    device_update_bytes: int  # of a GPU's memory, where states are on it
    error: Optional[BaseException]  # that ended the last step, where the optimizer's own code raised it

    def config(self) -> dict[str, Any]:
        """The engine's ``optimizer``."""

    def groups(self) -> Groups:
        """The engine's ``groups``: ``g0``, ``g1`` and so on, as the optimizer has them."""

    def regrouped(self, groups: Groups, before: Groups) -> Rule:
        """The same rule for other groups of the optimizer, to be bound to an engine. `before`: the groups until now, as the engine had them.
        FailedPrecondition where these groups want states that the engine has not."""

    def bind(self, runtime: Owner) -> None:
        """The engine is there, and all parameters are registered. Once for each engine."""

    def begin(self, groups: Groups) -> None:
        """Updates of a step may come from now on, with the numbers that the groups have now. More than once in a step changes nothing."""

    def end(self, groups: Groups, applied: bool) -> None:
        """All updates of the step are made; or the step changed nothing. Without `begin` nothing is done."""

    def state_of(self, p: Param, groups: Groups) -> Optional[dict[str, Any]]:
        """Of one parameter, by torch's names, on the CPU; None: no entry. All ranks call it."""

    def take_state(self, p: Param, state: dict[str, Any], updates: Optional[int] = None) -> None:
        """The same the other way. `updates`: how many made it; None: as its ``step`` says."""

    def has_state(self, p: Param) -> bool:
        """Whether a parameter has states, by an update as a rule."""

    def list_first(self) -> None:
        """`state_of` gives a parameter that has no states those before its first update, from now on."""

    def forget(self, p: Param) -> None:
        """As if it had none. All ranks call it."""

    def begin_anew(self, groups: Groups) -> None:
        """The engine has loaded weights alone, after which no step counts that was before."""

    def loaded(self) -> None:
        """The engine has loaded a checkpoint, and the numbers of groups with it, such as the learning rate of the last step before it."""

    def of_all(self) -> dict[Any, Any]:
        """What the optimizer's state has under names, not under parameters."""

    def take_of_all(self, entries: dict[Any, Any]) -> None:
        """The same the other way."""

    def idle(self, groups: Groups) -> None:
        """A step in which nothing has a gradient."""

    def set_number(self, name: str, value: Any) -> bool:
        """An attribute of the optimizer that a script sets; False: the optimizer has none of this name."""

    def to_own_form(self, state_dict: dict[str, Any], params: Sequence[Param]) -> dict[str, Any]:
        """What the optimizer's own ``state_dict`` makes of torch's on rank 0. `params`: by their numbers in it. All ranks call it."""

    def from_own_form(self, state_dict: dict[str, Any], groups: Groups, params: Sequence[Param]) -> dict[str, Any]:
        """The same the other way: its own ``load_state_dict`` takes what is its own. `groups`: as they are, with numbers in place of parameters."""

    def has(self, word: str) -> bool:
        """Whether an optimizer has a method of this name that changes weights between steps."""

    def call(self, word: str, groups: Groups) -> None:
        """Calls it. All ranks do."""

    def rest(self) -> Any:
        """What a checkpoint needs beside the engine's states and the groups."""

    def check_rest(self, rest: Any) -> None:
        """Refuses what `rest` gave of another kind of optimizer."""

    def take_rest(self, rest: Any) -> None:
        """What `rest` gave, of this model, at any number of ranks. It has been checked."""
