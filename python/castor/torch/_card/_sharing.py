# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`castor.wrap`'s ``card=``: from what the caller said to a choice that all ranks share."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.sizes import format_size, parse_size
from castor.torch._card._blocks import Block, blocks_of, recompute
from castor.torch._card._choice import Asked, CardChoice, choose, with_gaps
from castor.torch._card._moving import Moved, move
from castor.torch._card._rates import Rates, measured
from castor.torch._dry._step import Step
from castor.torch._machine._budgets import host_bytes, local_ranks
from castor.torch._machine._world import said_by_all
from castor.torch._parameters._stored import TRAINED
from castor.torch._parameters._types import moments_in

log = logging.getLogger("castor")
_SPARE = 32  # of a GPU's budget one part stays free: torch's allocator rounds sizes up


class Shared(NamedTuple):
    """A card that `share` has shared."""

    choice: CardChoice
    host_bytes: int
    """For chunks."""
    recomputed: list[nn.Module]
    take_back: Callable[[], None]
    """Has the model as it was."""


def card_bytes(card: Union[int, str], device: torch.device) -> int:
    """What of a card is to be shared."""
    size = parse_size(card, "card")
    return size - size // _SPARE if device.type == "cuda" else size


def share(model: nn.Module, optimizer: Any, card: Union[int, str], step: Optional[Step], batch: Any, device: torch.device, dtype: Optional[torch.dtype],
          told: Mapping[str, Any]) -> Shared:
    """Chooses, and has the chosen blocks compute their forward again. Arguments and errors are those of `choose_for`."""
    choice, on_host = choose_for(model, optimizer, card, step, batch, device, dtype, told)
    return applied(model, choice, on_host)


def choose_for(model: nn.Module, optimizer: Any, card: Union[int, str], step: Optional[Step], batch: Any, device: torch.device, dtype: Optional[torch.dtype],
               told: Mapping[str, Any], rates: Optional[Rates] = None) -> tuple[CardChoice, int]:
    """A choice that all ranks share, and bytes of host memory for all that is offloaded. The model is behind as before.

    Args:
      told: other arguments of `castor.wrap` by their names, ``folders``, and ``groups``: keys of the engine's config for groups of ranks.
      rates: as `rates_for` measured them before; None: they are measured now.

    Raises:
      InvalidArgument: the step cannot run on tensors without memory.
      DoesNotFit: the card does not hold the step, with the smallest changes that would do.
    """
    size = card_bytes(card, device)
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if rates is None:
        rates = rates_for(model, device, dtype)
    if several:
        rates = Rates(*_of_first(list(rates)))
    on_host = host_bytes(told["host"], 0 if device.type == "cuda" else size)
    asked = Asked(model, optimizer, step or _loss_of_model, batch, size, on_host, device, dtype, _planned(told, dtype), rates)
    choice, _, _ = choose(asked)
    return _agreed(asked, choice) if several else choice, on_host


def rates_for(model: nn.Module, device: torch.device, dtype: Optional[torch.dtype]) -> Rates:
    """Measuring takes memory of the device."""
    return measured(device, dtype or next(model.parameters()).dtype)


def applied(model: nn.Module, choice: CardChoice, on_host: int) -> Shared:
    """The model gives its activations up as chosen. `on_host`: as `choose_for` says."""
    log.info("castor: %s", choice)
    modules = dict(model.named_modules())
    recomputed, moved = ([Block(name, modules[name]) for name in names] for names in (choice.recomputed, choice.moved))
    undo = [recompute(model, recomputed)]
    if moved:
        undo.append(move(moved, Moved(choice.moved_bytes)))

    def take_back() -> None:
        for one in reversed(undo):
            one()

    return Shared(choice, on_host - choice.moved_bytes, [block.module for block in recomputed], take_back)


def _planned(told: Mapping[str, Any], dtype: Optional[torch.dtype]) -> dict[str, Any]:
    """The same as options of `castor.plan`."""
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    made: dict[str, Any] = {"world": world, "stage": told["stage"], "clip": told["max_norm"], "units": told["units"], **told["groups"]}
    if told["folders"]:
        made["nvme"] = min(shutil.disk_usage(folder).free for folder in told["folders"]) // local_ranks()
    if dtype is not None:
        made["dtype"] = TRAINED[dtype].lower()
    if told["chunk"] is not None:
        made["chunk"] = told["chunk"]
    if told.get("most_chunk") is not None:
        made["max"] = told["most_chunk"]
    if told["update_in_backward"]:
        made["update_in_backward"] = True
    if told["reduce_dtype"] is not None:
        made["grad_mode"] = "fp32"
    moments = moments_in(told["state_dtype"])
    if moments is not None:
        made["moments"] = moments.lower()
    return made


def _loss_of_model(model: Any, batch: Any) -> Tensor:
    """The step of models that compute their loss themselves."""
    result = model(**batch) if isinstance(batch, Mapping) else model(*batch) if isinstance(batch, (list, tuple)) else model(batch)
    loss = getattr(result, "loss", None)
    if not isinstance(loss, Tensor):
        raise InvalidArgument(f"the model returned {type(result).__name__}, which has no loss: give castor.wrap step=, a function of the model and the batch that "
                              "returns the loss")
    return loss


def _of_first(said: Any) -> Any:
    """What rank 0 says."""
    return json.loads(said_by_all(json.dumps(said))[0])


def _agreed(asked: Asked, mine: CardChoice) -> CardChoice:
    """Rank 0's blocks are those of all ranks, whose gathers are then alike, and the rank with the least room says how much chunks get."""
    again, away = _of_first([mine.recomputed, mine.moved])
    by_name = {block.name: block for block in blocks_of(asked.model)}
    recomputed, moved = [by_name[name] for name in again], [by_name[name] for name in away]
    made = mine
    if (tuple(again), tuple(away)) != (mine.recomputed, mine.moved):
        memory, on_host = asked.needs(recomputed, moved)
        made = dataclasses.replace(mine, recomputed=tuple(again), moved=tuple(away), step_bytes=memory.peak_bytes, moved_bytes=with_gaps(on_host))
    least = min(int(said) for said in said_by_all(str(asked.card_bytes - made.step_bytes)))
    if least <= 0:
        raise InvalidArgument(f"ranks have batches of different sizes, and a step of some rank takes {format_size(-least)} more than its card= has: give all "
                              "ranks batches of one shape")
    return dataclasses.replace(made, device_bytes=least)
