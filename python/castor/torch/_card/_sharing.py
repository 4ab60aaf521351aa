# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`castor.wrap`'s ``card=``: from what the caller said to a choice that all ranks share."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.sizes import format_size, parse_size
from castor.torch._card._blocks import Block, blocks_of, recompute
from castor.torch._card._choice import Asked, CardChoice, choose
from castor.torch._card._rates import Rates, measured
from castor.torch._dry._step import Step
from castor.torch._machine._budgets import host_bytes, local_ranks
from castor.torch._machine._world import said_by_all
from castor.torch._parameters._params import DTYPES

log = logging.getLogger("castor")
_SPARE = 32  # of a GPU's budget one part stays free: torch's allocator rounds sizes up


class Shared(NamedTuple):
    """A card that `share` has shared."""

    choice: CardChoice
    recomputed: list[nn.Module]
    take_back: Callable[[], None]
    """Has the model as it was."""


def share(model: nn.Module, optimizer: Any, card: Union[int, str], step: Optional[Step], batch: Any, device: torch.device, dtype: Optional[torch.dtype],
          told: Mapping[str, Any]) -> Shared:
    """Chooses, and has the chosen blocks compute their forward again.

    Args:
      told: other arguments of `castor.wrap` by their names, and ``folders``.

    Raises:
      InvalidArgument: the batch is missing, or the step cannot run on tensors without memory.
      DoesNotFit: the card does not hold the step, with the smallest changes that would do.
    """
    if batch is None:
        raise InvalidArgument("card= holds a step's own tensors too, and their sizes are a batch's: give castor.wrap batch= as well, and step= for the loss")
    size = parse_size(card, "card")
    if device.type == "cuda":
        size -= size // _SPARE
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    rates = measured(device, dtype or next(model.parameters()).dtype)
    if several:
        rates = Rates(*_of_first(list(rates)))
    asked = Asked(model, optimizer, step or _loss_of_model, batch, size, device, dtype, _planned(told, device, size, dtype), rates)
    choice, blocks = choose(asked)
    if several:
        choice, blocks = _agreed(asked, choice)
    log.info("castor: %s", choice)
    return Shared(choice, [block.module for block in blocks], recompute(blocks))


def _planned(told: Mapping[str, Any], device: torch.device, card: int, dtype: Optional[torch.dtype]) -> dict[str, Any]:
    """The same as options of `castor.plan`."""
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    made: dict[str, Any] = {"world": world, "stage": told["stage"], "clip": told["max_norm"], "units": told["units"],
                            "host_budget": host_bytes(told["host"], 0 if device.type == "cuda" else card)}
    if told["folders"]:
        made["nvme"] = min(shutil.disk_usage(folder).free for folder in told["folders"]) // local_ranks()
    if dtype is not None:
        made["dtype"] = DTYPES[dtype].lower()
    if told["chunk"] is not None:
        made["chunk"] = told["chunk"]
    if told["update_in_backward"]:
        made["update_in_backward"] = True
    if told["reduce_dtype"] is not None:
        made["grad_mode"] = "fp32"
    if told["state_dtype"] is not None:
        made["moments"] = "bf16"
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


def _agreed(asked: Asked, mine: CardChoice) -> tuple[CardChoice, Sequence[Block]]:
    """Rank 0's blocks compute again on all ranks, whose gathers are then alike, and the rank with the least room says how much chunks get."""
    names = _of_first(mine.recomputed)
    by_name = {block.name: block for block in blocks_of(asked.model)}
    blocks = [by_name[name] for name in names]
    size = mine.step_bytes if tuple(names) == mine.recomputed else asked.memory(blocks).peak_bytes
    least = min(int(said) for said in said_by_all(str(asked.card_bytes - size)))
    if least <= 0:
        raise InvalidArgument(f"ranks have batches of different sizes, and a step of some rank takes {format_size(-least)} more than its card= has: give all "
                              "ranks batches of one shape")
    return CardChoice(asked.card_bytes, size, least, tuple(names), mine.blocks, mine.options), blocks
