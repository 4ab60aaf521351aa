# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What a step of a torch module does with parameters, derived from the module alone: `wrap` seals with it, and `plan` plans with it.

A module's own parameters are held while its forward runs, those of the modules that contain it with them. In the backward the same operations
come in reverse, each with its own parameters and their gradients. Modules are taken to run in the order of registration. Norms and other small
modules are often registered behind what they come before: they may come at any time within the block that contains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass
class Use:
    """One operation: the parameters that it holds, and those whose gradients it opens. By `id`."""

    hold: list[int] = field(default_factory=list)
    grads: list[int] = field(default_factory=list)


@dataclass
class _Unit:
    own: list[int]
    around: list[int]  # of the modules that contain it
    checkpoint: int  # the number of the checkpointed block that it is in, 0: none
    blocks: tuple[int, ...]  # the numbers of the modules that contain it and whose children may run in any order, the innermost last
    in_block: bool  # whether the module that contains it is one of these
    elements: int
    whole: bool  # its inner modules are acquired with it


def _chosen(module: Any, of: Sequence[Any]) -> bool:
    return any(isinstance(module, one) if isinstance(one, type) else module is one for one in of)


def is_layer_of_transformers(module: Any) -> bool:
    """Whether a module can compute its forward again in the backward by transformers' own means."""
    return any(c.__name__ == "GradientCheckpointingLayer" for c in type(module).__mro__)


def is_recomputed(module: Any) -> bool:
    """Whether such a module is told to."""
    return bool(getattr(module, "gradient_checkpointing", False)) and is_layer_of_transformers(module)


_IN_ORDER = ("Sequential", "ModuleList", "ModuleDict")
_SMALL = 8  # times smaller than the largest beside it


def _units(module: Any, whole: Sequence[Any], ignored: Sequence[Any], recomputed: Sequence[Any], around: list[int], checkpoint: int,
           blocks: tuple[int, ...], in_block: bool, seen: set[int]) -> Iterator[_Unit]:
    if id(module) in seen or _chosen(module, ignored):
        return
    seen.add(id(module))
    if not checkpoint and (_chosen(module, recomputed) or is_recomputed(module)):
        checkpoint = len(seen)
    number = len(seen)
    inside = _chosen(module, whole)
    if inside:
        seen.update(id(m) for m in module.modules())
    tensors = list(module.parameters(recurse=inside))
    own = [id(p) for p in tensors]
    if own:
        yield _Unit(own, around, checkpoint, blocks, in_block, sum(p.numel() for p in tensors), inside)
    if not inside:
        children = list(module.children())
        # What contains a list of layers runs what stands before it, the list, and what stands behind.
        ordered = type(module).__name__ in _IN_ORDER or any(type(child).__name__ in _IN_ORDER for child in children)
        for child in children:
            yield from _units(child, whole, ignored, recomputed, around + own, checkpoint, blocks if ordered else (*blocks, number), not ordered, seen)


def uses_of(model: Any, trained: Iterable[int], *, units: Sequence[Any] = (), ignore: Sequence[Any] = (), recomputed: Sequence[Any] = (),
            ranks: int = 1) -> list[Use]:
    """The operations of a micro-batch, in order.

    Args:
      trained: ids of the parameters that are trained.
      units, ignore: as for `castor.torch.wrap`.
      ranks: how many; on several a unit comes and goes as a whole.
      recomputed: modules, or their classes, whose forward runs again in the backward. Those of transformers that do so are known.
    """
    trains = set(trained)
    found = list(_units(model, units, ignore, recomputed, [], 0, (), False, set()))
    forward = [Use(list(dict.fromkeys(unit.around + unit.own))) for unit in found]
    again: dict[int, list[int]] = {}  # by checkpointed block, what its second forward holds
    for unit in found:
        if unit.checkpoint:
            again.setdefault(unit.checkpoint, []).extend(unit.own)
    largest: dict[int, int] = {}  # by block
    for unit in found:
        for number in unit.blocks:
            largest[number] = max(largest.get(number, 0), unit.elements)
    small: dict[int, list[_Unit]] = {}  # by block, those that may come at any time
    for unit in found:
        if unit.in_block and unit.elements * _SMALL <= largest[unit.blocks[-1]]:
            small.setdefault(unit.blocks[-1], []).append(unit)
    backward: list[Use] = []
    block: Optional[_Unit] = None  # that the backward reached last, where ranks may differ inside

    def open_each(own: Iterable[int], hold: list[int], others: list[int]) -> None:
        """Autograd lets go of what an operation saved before it hands the gradients on, one after another."""
        for p in own:
            if p in trains:
                backward.append(Use(hold, list(dict.fromkeys([p, *others]))))

    for unit in reversed(found):
        anytime = [other for number in unit.blocks for other in small.get(number, [])]
        others = [p for other in anytime for p in other.own if p in trains]
        if unit.whole and ranks > 1:
            # Its values stay until the backward reaches another such block, and then its gradients are handed back.
            if block is not None:
                open_each(block.own, [], others)
            block = unit
            backward.append(Use(unit.own, others))
            continue
        stays = block.own if block is not None else []
        # What a recomputed forward saves stays until the block's backward ends.
        own = again[unit.checkpoint] if unit.checkpoint else unit.own
        backward.append(Use(list(dict.fromkeys([*stays, *own])), others))
        open_each(reversed(unit.own), list(dict.fromkeys([*stays, *(own if unit.checkpoint else [])])), others)
        for other in anytime:
            backward.append(Use(list(dict.fromkeys([*stays, *other.own])), others))
    if block is not None:
        open_each(block.own, [], [])
    return forward + backward


def layers_of(model: Any) -> list[Any]:
    """The members of a module's ModuleLists."""
    return [layer for module in model.modules() if type(module).__name__ == "ModuleList" for layer in module]


def moments_of(uses: Sequence[Use]) -> list[Use]:
    """The operations that differ in what they hold from the one before."""
    moments: list[Use] = []
    for use in uses:
        if not moments or use != moments[-1]:
            moments.append(use)
    return moments
