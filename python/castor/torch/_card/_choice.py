# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How one card is shared: which blocks keep their activations, and how much of the card is left for chunks.

Blocks give up their activations greedily, those that free most bytes for each floating-point operation first: Chen et al. 2016 (arXiv:1604.06174) trade
bytes for operations so. Of these the ones that are dearest to compute again may be moved to host memory instead, as far as the link has time. Each
choice is priced with the plan of the chunks that the rest of the card holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

from castor._plan import Plan, plan
from castor.errors import DoesNotFit
from castor.sizes import format_size
from castor.torch._card._blocks import Block, blocks_of, recompute
from castor.torch._card._changes import changes_for
from castor.torch._card._moving import DryMoved, move
from castor.torch._card._rates import Rates
from castor.torch._dry._fakes import tensors_of_batch
from castor.torch._dry._memory import StepMemory
from castor.torch._dry._step import Step, dry_step

_PRICED = 16  # parts of all blocks, whose ends are priced
_DRIVE_BYTES_PER_S = 2e9  # of an NVMe drive of 2020 on, read and written by turns


class Option(NamedTuple):
    """A choice that was priced. ``seconds`` are those of a step, as far as operations and links take them; None: chunks have no room."""

    recomputed: int
    moved: int
    step_bytes: int
    seconds: Optional[float]


@dataclasses.dataclass(frozen=True)
class CardChoice:
    """What `castor.wrap` made of ``card=``. Bytes are those of one rank."""

    card_bytes: int
    step_bytes: int
    """The most that a step's own tensors take: activations, logits, temporary tensors, the batch and buffers."""
    device_bytes: int
    """The rest, which is the budget of chunks."""
    moved_bytes: int
    """Of host memory, for activations; the rest of ``host=`` is the budget of chunks there."""
    recomputed: tuple[str, ...]
    """Blocks whose forward runs again in the backward, beside those of which the script says so."""
    moved: tuple[str, ...]
    """Blocks whose activations are in host memory between forward and backward."""
    blocks: int
    """Of how many there are."""
    options: tuple[Option, ...]
    peak: str
    """Where a step takes the most: ``"backward of lm_head"``."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the batch's tensors."""

    def when_full(self) -> str:
        """What to do where torch finds no memory all the same."""
        told = " and ".join(dict.fromkeys(" x ".join(map(str, shape)) for shape in self.shapes)) or "no tensors"
        return (f"card={format_size(self.card_bytes)!r} was shared for a batch of {told}, whose step peaks at {format_size(self.step_bytes)} in the {self.peak}: "
                "give castor.wrap batch= of the largest size, a smaller batch, or a larger card=")

    def __str__(self) -> str:
        moves = f", {len(self.moved)} keep activations in {format_size(self.moved_bytes)} of host memory" if self.moved else ""
        return (f"card {format_size(self.card_bytes)}: {format_size(self.step_bytes)} for a step's own tensors, {format_size(self.device_bytes)} for chunks; "
                f"{len(self.recomputed)} of {self.blocks} blocks compute their forward again in the backward{moves}")


class _Way(NamedTuple):
    """How many blocks give up their activations, in the order of the choice: the last `moved` of these are moved."""

    given_up: int
    moved: int


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a card is to hold."""

    model: nn.Module
    optimizer: Any
    step: Step
    batch: Any
    card_bytes: int
    host_bytes: int
    device: torch.device
    dtype: Optional[torch.dtype]
    planned: Mapping[str, Any]  # further options of `castor.plan`
    rates: Rates

    def needs(self, recomputed: Sequence[Block], moved: Sequence[Block] = (), batch: Any = None) -> tuple[StepMemory, int]:
        """Of a step with these blocks: its memory, and bytes of host memory for activations. The model is behind as before."""
        saver = DryMoved(1)
        undo = [recompute(self.model, recomputed), move(moved, saver)]
        try:
            memory = dry_step(self.model, self.step, self.batch if batch is None else batch, self.device, self.dtype, as_wrapped=True)
        finally:
            for take_back in reversed(undo):
                take_back()
        return memory, saver.peak_bytes

    def plan(self, step_bytes: int, recomputed: Sequence[Block], moved_bytes: int = 0) -> Plan:
        """Of the chunks beside a step's own tensors."""
        return plan(self.model, optimizer=self.optimizer, device_budget=self.card_bytes, host_budget=max(self.host_bytes - moved_bytes, 0),
                    activations=step_bytes, recomputed=[block.module for block in recomputed], **self.planned)


class _Ways:
    """Each way is priced by an estimate, and exactly where the estimate is the best one."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._whole, _ = asked.needs(())
        size, flops = _summed(self._whole.saved_by_module), _summed(self._whole.forward_flops_by_module)
        blocks = [block for block in blocks_of(asked.model) if size(block) > 0]
        # Of equals the first ones: their second forward comes when most others have freed their activations.
        self.blocks = sorted(blocks, key=lambda block: flops(block) / size(block))
        self._sizes, self._flops = [size(block) for block in self.blocks], [flops(block) for block in self.blocks]
        self._exact: dict[_Way, tuple[int, int]] = {_Way(0, 0): (self._whole.peak_bytes, 0)}  # bytes of the step, and of the host
        self.peaks: dict[_Way, str] = {_Way(0, 0): _peak_of(self._whole)}  # where these bytes of the step are
        self.options: dict[_Way, Option] = {}

    def of(self, way: _Way) -> tuple[list[Block], list[Block]]:
        """The blocks that compute again, and those that are moved."""
        cut = way.given_up - way.moved
        return self.blocks[:cut], self.blocks[cut:way.given_up]

    def exact_bytes(self, way: _Way) -> tuple[int, int]:
        if way not in self._exact:
            memory, on_host = self._asked.needs(*self.of(way))
            late = max(self._sizes[way.given_up - way.moved:way.given_up], default=0) if self._asked.device.type == "cuda" else 0
            self._exact[way] = memory.peak_bytes + late, on_host  # a GPU's memory is free when the copy from there is over
            self.peaks[way] = _peak_of(memory)
        return self._exact[way]

    def estimated_bytes(self, given_up: int) -> int:
        """Between two ways without moves that are known, as if each block freed as much as the next one."""
        known = {way.given_up: size for way, (size, _) in self._exact.items() if not way.moved}
        below, above = max(n for n in known if n <= given_up), min(n for n in known if n >= given_up)
        share = 0.0 if below == above else (given_up - below) / (above - below)
        return round(known[below] + share * (known[above] - known[below]))

    def price_all(self, given_up: int) -> None:
        """Every share of moves, by one estimate of the bytes."""
        size = self.estimated_bytes(given_up)
        found = self._asked.plan(size, self.blocks[:given_up])
        held = sum(tier.planned_bytes for tier in found.tiers if tier.tier == "host")
        for moved in range(given_up + 1):
            on_host = sum(self._sizes[given_up - moved:given_up])
            fits = found.fits and held + on_host <= self._asked.host_bytes
            self._note(_Way(given_up, moved), size, found if fits else None, on_host)

    def price_exactly(self, way: _Way) -> None:
        size, on_host = self.exact_bytes(way)
        found = self._asked.plan(size, self.of(way)[0], with_gaps(on_host))
        self._note(way, size, found if found.fits else None, on_host)

    def is_exact(self, way: _Way) -> bool:
        return way in self._exact and self.options[way].step_bytes == self._exact[way][0]

    def _note(self, way: _Way, size: int, found: Optional[Plan], on_host: int) -> None:
        seconds = None
        if found is not None:
            rates = self._asked.rates
            compute = (self._whole.flops + sum(self._flops[:way.given_up - way.moved])) / rates.flops_per_s
            link = _seconds_of_links(found, rates)
            if self._asked.device.type == "cuda":
                # A GPU computes while its link copies both ways.
                seconds = max(compute, link + on_host / rates.link_bytes_per_s)
            else:
                seconds = compute + link + 2 * on_host / rates.link_bytes_per_s  # processors do all of it
        self.options[way] = Option(way.given_up - way.moved, way.moved, size, seconds)


def choose(asked: Asked) -> tuple[CardChoice, list[Block], list[Block]]:
    """The cheapest way in which the card holds a step, the blocks that compute again, and those that are moved.

    Raises:
      DoesNotFit: no way does, with the smallest changes that would do.
    """
    ways = _Ways(asked)
    most = len(ways.blocks)
    ends = [_Way(most, 0), _Way(most, most)] if most else []
    for way in ends[:1]:
        ways.exact_bytes(way)
    for given_up in sorted({round(most * part / _PRICED) for part in range(_PRICED + 1)}):
        ways.price_all(given_up)
    while True:
        prices = {way: option.seconds for way, option in ways.options.items() if option.seconds is not None}
        if not prices:
            untried = [way for way in ends if not ways.is_exact(way)]
            if not untried:
                raise DoesNotFit(_refusal(asked, ways, min((_Way(0, 0), *ends), key=lambda way: ways.exact_bytes(way)[0])))
            ways.price_exactly(untried[0])
            continue
        best = min(prices, key=lambda way: (prices[way], way))
        if ways.is_exact(best):
            break
        ways.price_exactly(best)
    size, on_host = ways.exact_bytes(best)
    recomputed, moved = ways.of(best)
    choice = CardChoice(asked.card_bytes, size, asked.card_bytes - size, with_gaps(on_host), tuple(block.name for block in recomputed),
                        tuple(block.name for block in moved), most, tuple(ways.options[way] for way in sorted(ways.options)), ways.peaks[best],
                        tuple(tuple(tensor.shape) for tensor in tensors_of_batch(asked.batch)))
    return choice, recomputed, moved


def _peak_of(memory: StepMemory) -> str:
    return f"{memory.peak_moment} of {memory.peak_module or 'the model itself'}"


def with_gaps(on_host: int) -> int:
    """What an arena takes to hold so much."""
    return on_host and on_host + on_host // 16 + (1 << 20)


def _refusal(asked: Asked, ways: _Ways, way: _Way) -> str:
    size, on_host = ways.exact_bytes(way)
    recomputed, moved = ways.of(way)
    given_up = ""
    if way.given_up:
        given_up = f", with all {way.given_up} blocks {'moved to host memory' if way.moved else 'computed again in the backward'}"
    found = asked.plan(size, recomputed, with_gaps(on_host))

    def fits(batch: Any) -> bool:
        memory, beside = asked.needs(recomputed, moved, batch)
        return asked.plan(memory.peak_bytes, recomputed, with_gaps(beside)).fits

    changes = changes_for(asked.batch, found, fits, with_gaps(on_host))
    return (f"card={format_size(asked.card_bytes)!r} does not hold a step, whose own tensors take {format_size(size)}{given_up}: {found.reason}. "
            f"Smallest changes that would do: {'; '.join(changes) if changes else 'none was found'}")


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
