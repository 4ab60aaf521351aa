# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How one card is shared: which blocks keep their activations, and how much of the card is left for chunks.

Blocks are given up greedily, those that free most bytes for each floating-point operation first: Chen et al. 2016 (arXiv:1604.06174) trade bytes for
operations so. Each choice is priced with the plan of the chunks that the rest of the card holds.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch
from torch import nn

from castor._plan import Plan, plan
from castor.errors import DoesNotFit
from castor.sizes import format_size
from castor.torch._card._blocks import Block, blocks_of, recompute
from castor.torch._card._changes import changes_for
from castor.torch._card._rates import Rates
from castor.torch._dry._memory import StepMemory
from castor.torch._dry._step import Step, dry_step

log = logging.getLogger("castor")
_PRICED = 16  # parts of all blocks, whose ends are priced
_DRIVE_BYTES_PER_S = 2e9  # of an NVMe drive of 2020 on, read and written by turns


@dataclasses.dataclass(frozen=True)
class CardChoice:
    """What `castor.wrap` made of ``card=``. Bytes are those of one rank."""

    card_bytes: int
    step_bytes: int
    """The most that a step's own tensors take: activations, logits, temporary tensors, the batch and buffers."""
    device_bytes: int
    """The rest, which is the budget of chunks."""
    recomputed: tuple[str, ...]
    """Blocks whose forward runs again in the backward, beside those of which the script says so."""
    blocks: int
    """Of how many there are."""
    options: tuple[tuple[int, int, Optional[float]], ...]
    """Each choice that was priced: how many blocks compute again, ``step_bytes``, and the estimated seconds of a step; None where chunks have no room."""

    def __str__(self) -> str:
        return (f"card {format_size(self.card_bytes)}: {format_size(self.step_bytes)} for a step's own tensors, {format_size(self.device_bytes)} for chunks; "
                f"{len(self.recomputed)} of {self.blocks} blocks compute their forward again in the backward")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a card is to hold."""

    model: nn.Module
    optimizer: Any
    step: Step
    batch: Any
    card_bytes: int
    device: torch.device
    dtype: Optional[torch.dtype]
    planned: Mapping[str, Any]  # further options of `castor.plan`
    rates: Rates

    def memory(self, recomputed: Sequence[Block], batch: Any = None) -> StepMemory:
        """Of a step in which these blocks compute again. The model is behind as before."""
        take_back = recompute(recomputed)
        try:
            return dry_step(self.model, self.step, self.batch if batch is None else batch, self.device, self.dtype)
        finally:
            take_back()

    def plan(self, step_bytes: int, recomputed: Sequence[Block]) -> Plan:
        """Of the chunks beside a step's own tensors."""
        return plan(self.model, optimizer=self.optimizer, device_budget=self.card_bytes, activations=step_bytes, recomputed=[b.module for b in recomputed],
                    **self.planned)


class _Options:
    """Choices of how many blocks compute again, each made once."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._whole = asked.memory(())
        size, flops = _summed(self._whole.saved_by_module), _summed(self._whole.forward_flops_by_module)
        blocks = [block for block in blocks_of(asked.model) if size(block) > 0]
        # Of equals the first ones: their second forward comes when most others have freed their activations.
        self.blocks = sorted(blocks, key=lambda block: flops(block) / size(block))
        self._flops = [flops(block) for block in self.blocks]
        self._known: dict[int, int] = {0: self._whole.peak_bytes}  # step bytes by count
        self.priced: dict[int, tuple[int, Optional[float]]] = {}

    def step_bytes(self, count: int) -> int:
        if count not in self._known:
            self._known[count] = self._asked.memory(self.blocks[:count]).peak_bytes
        return self._known[count]

    def _estimated_bytes(self, count: int) -> int:
        """Between two counts that are known, as if each block freed as much as the next one."""
        below, above = (pick(n for n in self._known if compare(n)) for pick, compare in ((max, lambda n: n <= count), (min, lambda n: n >= count)))
        share = 0.0 if below == above else (count - below) / (above - below)
        return round(self._known[below] + share * (self._known[above] - self._known[below]))

    def price(self, count: int, exactly: bool) -> Optional[float]:
        """Seconds of a step, as far as operations and links take them; None where chunks have no room."""
        size = self.step_bytes(count) if exactly else self._estimated_bytes(count)
        found = self._asked.plan(size, self.blocks[:count])
        seconds = None
        if found.fits:
            compute = (self._whole.flops + sum(self._flops[:count])) / self._asked.rates.flops_per_s
            moves = _seconds_of_links(found, self._asked.rates)
            # A GPU computes while its link copies. Processors do both themselves.
            seconds = max(compute, moves) if self._asked.device.type == "cuda" else compute + moves
        self.priced[count] = (size, seconds)
        return seconds


def choose(asked: Asked) -> tuple[CardChoice, list[Block]]:
    """The cheapest way in which the card holds a step, and the blocks that compute again.

    Raises:
      DoesNotFit: no way does, with the smallest changes that would do.
    """
    options = _Options(asked)
    most = len(options.blocks)
    if most:
        options.step_bytes(most)
    for count in sorted({round(most * part / _PRICED) for part in range(_PRICED + 1)}):
        options.price(count, exactly=count in (0, most))
    while True:
        prices = {count: seconds for count, (_, seconds) in options.priced.items() if seconds is not None}
        if not prices:
            blocks = min((options.blocks[:count] for count in (0, most)), key=lambda some: options.step_bytes(len(some)))
            raise DoesNotFit(_refusal(asked, options.step_bytes(len(blocks)), blocks))
        best = min(prices, key=lambda count: (prices[count], count))
        estimated = options.priced[best][0]
        options.price(best, exactly=True)
        if options.priced[best][0] <= estimated and options.priced[best][1] is not None:
            break
    size = options.priced[best][0]
    chosen = options.blocks[:best]
    priced = tuple((count, *options.priced[count]) for count in sorted(options.priced))
    return CardChoice(asked.card_bytes, size, asked.card_bytes - size, tuple(block.name for block in chosen), most, priced), chosen


def _refusal(asked: Asked, step_bytes: int, blocks: Sequence[Block]) -> str:
    again = f", with all {len(blocks)} blocks computed again in the backward" if blocks else ""
    found = asked.plan(step_bytes, blocks)
    changes = changes_for(asked.batch, found, lambda batch: _fits(asked, blocks, batch))
    return (f"card={format_size(asked.card_bytes)!r} does not hold a step, whose own tensors take {format_size(step_bytes)}{again}: {found.reason}. "
            f"Smallest changes that would do: {'; '.join(changes) if changes else 'none was found'}")


def _fits(asked: Asked, blocks: Sequence[Block], batch: Any) -> bool:
    return asked.plan(asked.memory(blocks, batch).peak_bytes, blocks).fits


def _summed(by_module: Mapping[str, int]) -> Callable[[Block], int]:
    return lambda block: sum(size for name, size in by_module.items() if name == block.name or name.startswith(f"{block.name}."))


def _seconds_of_links(found: Plan, rates: Rates) -> float:
    of_card = of_drive = 0
    for link in found.document["step"]["links"]:
        size = link["moved_bytes"]
        if "nvme" in (link["from"], link["to"]):
            of_drive += size
        else:
            of_card += size
    return of_card / rates.link_bytes_per_s + of_drive / _DRIVE_BYTES_PER_S
