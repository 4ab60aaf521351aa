# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Whether a model fits, where everything goes, and how long a step takes: before any training."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from castor import _command
from castor._derive import layers_of, uses_of
from castor._pages import ask_for_page, frame
from castor._search import TensorSpec, specs_of
from castor.errors import InvalidArgument
from castor.sizes import format_size

if TYPE_CHECKING:
    from castor.torch._dry._memory import StepMemory
    from castor.torch._optimizers._choice import Asked

Model = Union[str, Path, Iterable[TensorSpec], Any]


@dataclass(frozen=True)
class PlanChange:
    """Another configuration, which was planned and fits. Bytes are those of one rank; ``step_seconds`` needs a machine."""

    what: str
    command: str
    device_bytes: int
    host_bytes: int
    nvme_bytes: int
    moved_bytes: int
    step_seconds: Optional[float]


@dataclass(frozen=True)
class PlannedTier:
    """What a rank holds on a tier. ``budget_bytes`` is None where there is no limit."""

    tier: str
    budget_bytes: Optional[int]
    planned_bytes: int


@dataclass(frozen=True)
class Plan:
    """What `plan` found. ``document`` is all of it, as `castor plan --json` writes it.

    Where the model does not fit, ``reason`` says why, ``tiers`` is empty and ``changes`` are the smallest that would do. ``update_bytes`` are of host
    memory beside the budgets: what an update by the code of ``optimizer=`` has at once there. An update of states on a GPU takes more elements at
    once, in the GPU's memory, and ``model.memory_summary()`` says how much.
    """

    fits: bool
    reason: str
    command: str
    tiers: tuple[PlannedTier, ...]
    step_seconds: Optional[float]
    changes: tuple[PlanChange, ...]
    alternatives: tuple[PlanChange, ...]
    update_bytes: int
    document: dict[str, Any] = field(repr=False)
    _asked: tuple[list[str], Optional[str]] = field(repr=False, compare=False)  # the command, and what it reads
    step_memory: Optional[StepMemory] = field(default=None, repr=False)  # where ``step=`` was given

    def __repr__(self) -> str:
        if not self.fits:
            return f"Plan(does not fit: {self.reason}" + "".join(f"; {change.what}" for change in self.changes) + ")"
        held = ", ".join(f"{tier.tier} {format_size(tier.planned_bytes)}" for tier in self.tiers)
        if self.update_bytes:
            held += f", beside them {format_size(self.update_bytes)} for updates"
        return f"Plan(fits: {held}" + ("" if self.step_seconds is None else f", {self.step_seconds:.3g} s a step") + ")"

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes a page of the plan, one file that needs nothing else: bytes, homes, other choices, and a hundred budgets around these."""
        Path(path).write_text(self._page(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return frame(self._page(), "Castor plan")

    def _page(self) -> str:
        return ask_for_page(*self._asked)[1]


@dataclass(frozen=True)
class Simulation:
    """A step, simulated. ``step_seconds`` is None where the step does not fit, or where the machine's file lacks a link that it uses.

    ``points`` are those of a sweep: a budget and a step's seconds each, None where it does not fit.
    """

    fits: bool
    step_seconds: Optional[float]
    points: tuple[tuple[int, int, Optional[float]], ...]
    document: dict[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        if len(self.points) > 1:
            return f"Simulation({len(self.points)} budgets)"
        return f"Simulation({'does not fit' if not self.fits else 'time unknown' if self.step_seconds is None else f'{self.step_seconds:.4g} s a step'})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{format_size(device)}</td><td>{format_size(host)}</td><td>{'does not fit' if seconds is None else f'{seconds:.4g} s'}</td></tr>"
            for device, host, seconds in self.points
        )
        return f"<table><thead><tr><th>device</th><th>host</th><th>step</th></tr></thead><tbody>{rows}</tbody></table>"


def _changes(documents: list[dict[str, Any]]) -> tuple[PlanChange, ...]:
    names = PlanChange.__dataclass_fields__
    return tuple(PlanChange(**{name: document[name] or 0 if name.endswith("_bytes") else document[name] for name in names}) for document in documents)


def _asks(model: Model, options: Mapping[str, Any]) -> tuple[list[str], Optional[str], int]:
    """The command that plans, what it reads, and a plan's ``update_bytes``."""
    if hasattr(model, "named_modules"):
        options = dict(options)
        if options.pop("recompute", False):
            options.setdefault("recomputed", layers_of(model))
        of_module = {key: options[key] for key in _OF_MODULES if key in options} | {"ranks": options.get("world", 1)}
        asked: Optional[Asked] = None
        if _has_optimizer(options):
            from castor.torch._optimizers._choice import asked_of

            asked = asked_of(model, options.pop("optimizer"))
            options = {**asked.flags, **options}
        frozen = [name for name, p in model.named_parameters() if not (p.requires_grad if asked is None else id(p) in asked.updates)]
        world = options.get("world", 1)
        if world > 1:  # what ranks of PyTorch's take, in whole pieces
            options.setdefault("exchange_buffer", (4 << 20) // (128 * world) * 128 * world)
        more = {"freeze": frozen, **{key: value for key, value in options.items() if key not in _OF_MODULES}}
        listed = _list_of(model, {} if asked is None else asked.updates, frozen, of_module)
        return ["plan", "-", *_command.flags_of(more)], listed, 0 if asked is None else asked.update_bytes
    if _has_optimizer(options):
        raise InvalidArgument("optimizer= is an object, and what it keeps is known of a torch module's parameters: give one, or a name such as 'sgd'")
    flags = _command.flags_of(options)
    if isinstance(model, (str, Path)):
        return ["plan", str(model), *flags], None, 0
    specs = [{"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in specs_of(model)]
    return ["plan", "-", *flags], json.dumps(specs), 0


def _counted(model: Model, options: Mapping[str, Any]) -> tuple[dict[str, Any], Optional[StepMemory]]:
    """The options without ``card``, ``step`` and its ``batch``: with the bytes that the step needs."""
    made = dict(options)
    if "card" in made:
        if "device_budget" in made:
            raise InvalidArgument("card= and device_budget= are two names of one thing: give one of them")
        made["device_budget"] = made.pop("card")
    if made.get("step") is None:
        made.pop("step", None)
        return made, None
    if not hasattr(model, "named_modules"):
        raise InvalidArgument("step= runs the forward of a torch module: give the module, or seq= and batch= for a config")
    if "batch" not in made or "seq" in made:
        raise InvalidArgument("step= takes what it computes from batch=, and needs no seq=: give castor.plan step= and batch=")
    from castor.torch._dry._step import dry_step

    memory = dry_step(model, made.pop("step"), made.pop("batch"))
    made["activations"] = memory.peak_bytes
    return made, memory


_OF_MODULES = ("units", "recomputed")


def _has_optimizer(options: Mapping[str, Any]) -> bool:
    return not isinstance(options.get("optimizer"), (str, type(None)))


def _list_of(model: Any, updates: Mapping[int, str], frozen: Collection[str], how: Mapping[str, Any]) -> str:
    """A module as a list of parameters with what a step does with them, as `castor plan` reads it."""
    names = {id(p): name for name, p in model.named_parameters()}
    told = {names[p]: f"\t{update}" for p, update in updates.items() if update}
    lines = [f"{name}\t{','.join(map(str, shape))}\t{dtype}{told.get(name, '')}" for name, shape, dtype in specs_of(model)]
    lines.append("\tstep\tseparate")
    left_alone = set(frozen)
    for use in uses_of(model, [p for p, name in names.items() if name not in left_alone], **how):
        lines.append("\t".join(["", "hold", *(names[p] for p in use.hold)]))
        if use.grads:
            lines.append("\t".join(["", "grads", *(names[p] for p in use.grads)]))
    return "\n".join(lines) + "\n"


def plan(model: Model, **options: Any) -> Plan:
    """Plans a model under budgets.

    Args:
      model: what `castor plan` takes (a config.json, a folder of a model, weights), a torch module (on the meta device too), or
        (name, shape, dtype) in initialization order.
      options: the flags of `castor plan`, with underscores: ``device_budget="8GiB"``, ``host_budget=...``, ``nvme=...``, ``world=8``,
        ``seq=512``, ``recompute=True``, ``machine="machine.json"``, ``output="plan.json"``. For a torch module ``units=`` as for `wrap`, and
        ``recomputed=[Block]``, the modules or classes whose forward runs again in the backward. ``recompute=True``: the members of its ModuleLists.
        ``optimizer=`` is a name, or for a torch module the optimizer, or a list of them, as for `wrap`: the plan counts its states by their names.

    With ``step=`` and ``batch=`` a torch module's step runs on tensors without memory (`castor.torch.dry_step`), and the plan counts its activations,
    logits and temporary tensors. ``card=`` is then the device memory of a rank for all of them: another name of ``device_budget=``.

    A torch module says what its step holds, as `wrap` derives it. For a list or a config whole blocks are taken to be held at once: an upper bound.

    Raises:
      InvalidArgument, Malformed, IoError: as the command says. That the model does not fit is an answer.
    """
    options, memory = _counted(model, options)
    *asked, update_bytes = _asks(model, options)
    document = _command.ask(*asked)
    names = PlannedTier.__dataclass_fields__
    return Plan(
        fits=document["fits"],
        reason=document["reason"] or "",
        command=document["command"],
        tiers=tuple(PlannedTier(**{name: tier[name] for name in names}) for tier in document.get("tiers", [])),
        step_seconds=document.get("times", {}).get("step_seconds"),
        changes=_changes(document.get("changes", [])),
        alternatives=_changes(document.get("alternatives", [])),
        update_bytes=update_bytes,
        document=document,
        _asked=_asks(model, {key: value for key, value in options.items() if key != "output"})[:2] if "output" in options else tuple(asked),
        step_memory=memory,
    )


def simulate(what: Model, *, machine: Union[str, Path, None] = None, **options: Any) -> Simulation:
    """Simulates a step on a machine's links.

    Args:
      what: the path of a recorded run or of a recorded step (`castor.trace/1`); or a model as for `plan`, whose step is derived.
      machine: the file of speeds that `castor probe -o` wrote. A recorded run needs none: its links are as fast as they were.
      options: the flags of `castor simulate`, with underscores, or for a model those of `castor plan`:
        ``device_budget="8GiB"``, ``sweep="device-budget=2GiB..8GiB"``.

    Raises:
      InvalidArgument, Malformed, IoError: as the command says. That the step does not fit is an answer.
    """
    options = {"machine": machine, **options}
    if not _is_trace(what):
        options, _ = _counted(what, options)
        document = _command.ask(*_asks(what, options)[:2])
        seconds = document.get("times", {}).get("step_seconds")
        held = {tier["tier"]: tier["budget_bytes"] or tier["planned_bytes"] for tier in document.get("tiers", [])}
        points = ((held.get("device", 0), held.get("host", 0), seconds),)
        return Simulation(fits=document["fits"], step_seconds=seconds, points=points, document=document)
    document = _command.ask(["simulate", str(what), *_command.flags_of(options)])
    points = tuple(
        (point["device_budget_bytes"], point["host_budget_bytes"], point["step"]["ns"] / 1e9 if point["fits"] else None)
        for point in document["points"]
    )
    return Simulation(fits=any(point["fits"] for point in document["points"]), step_seconds=points[0][2], points=points, document=document)


_RECORD = b"\x93CASTOR\n"  # how the record of a run begins


def _is_trace(what: Any) -> bool:
    if not isinstance(what, (str, Path)):
        return False
    path = Path(what) if Path(what).exists() else Path(f"{what}.0")  # of ranks that are processes
    if not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(4096)
    return beginning.startswith(_RECORD) or b"castor.trace/" in beginning
