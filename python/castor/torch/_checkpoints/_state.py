# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A wrapped model's values: read, written, saved and loaded. All ranks make these calls."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Callable, Optional, Union

import torch
from torch import nn

from castor import _abi
from castor._engine import checkpoints
from castor._interrupts import uninterrupted
from castor.errors import FailedPrecondition, InvalidArgument
from castor.sizes import format_size
from castor.torch._checkpoints._names_only import names_of
from castor.torch._checkpoints._random import states_of_ranks, take_own
from castor.torch._hooks import without_hooks
from castor.torch._model import Param, read
from castor.torch._optimizer import CastorOptimizer
from castor.torch._runtime import Runtime

Tensors = Union[nn.Module, torch.Tensor, Iterable[torch.Tensor]]


def runtime_of(model: nn.Module) -> Runtime:
    """The runtime of a wrapped model; FailedPrecondition where it is none."""
    runtime = getattr(model, "_castor", None)
    if runtime is None:
        raise FailedPrecondition("the model is not wrapped: call castor.wrap first")
    return runtime


def _params_of(of: Tensors) -> list[Param]:
    tensors = of.parameters() if isinstance(of, nn.Module) else [of] if isinstance(of, torch.Tensor) else list(of)
    return [t._castor for t in tensors if getattr(t, "_castor", None) is not None]  # type: ignore[union-attr]


@contextlib.contextmanager
def gathered(of: Tensors, write: bool = False) -> Iterator[None]:
    """Parameters have their whole values inside, in memory of their own: for EMA, penalties, surgery.

    Args:
      of: a module, a parameter or several.
      write: what is written inside is kept, masters included, by numpy and foreign kernels too. Gradients are off inside. All ranks write the
        same; not in the middle of a step.
    """
    params = [p for p in _params_of(of) if not p.pins]
    lent = {p for p in params if not p.runtime.residents.active}  # others have their values
    if write:
        for runtime in {id(p.runtime): p.runtime for p in params}.values():
            runtime.steps.settle()
            if runtime.steps.begun:
                raise FailedPrecondition("gathered(write=True) is inside a step, whose gradients are of the old values: call optimizer.step() "
                                         "or optimizer.zero_grad() before")
    exact: list[Any] = []  # of parameters in low precision, what is not written keeps its master
    try:
        for p in params:
            with uninterrupted():
                values = read(p) if write or p in lent else None
                if p in lent:
                    p.runtime.uses.lend(p, values.to(p.runtime.device.torch_device, p.dtype))  # type: ignore[union-attr]
                else:
                    p.pins += 1
                exact.append(values if write else None)
        with torch.no_grad() if write else contextlib.nullcontext():
            yield
    finally:
        written = [p.runtime.uses.take_back(p) if p in lent else _end_use(p) for p in params[: len(exact)]]
    if write:
        for p, now, old in zip(params, written, exact):
            now = now.cpu()
            p.write(torch.where(now == old.to(p.dtype), old, now.float()) if old.dtype is not p.dtype else now)


def _end_use(p: Param) -> torch.Tensor:
    """Of a resident parameter."""
    p.pins -= 1
    return torch.Tensor.detach(p.tensor)


def exact(parameter: torch.Tensor) -> torch.Tensor:
    """The most exact values of a parameter that there are, masters where it has them: fp32 on the CPU. All ranks call it."""
    params = _params_of([parameter])
    if not params:
        raise InvalidArgument("the tensor is no parameter of a wrapped model")
    return read(params[0])


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """A parameter's gradient in this step so far, averaged over ranks: fp32 on the CPU, before `optimizer.step()`."""
    params = _params_of([parameter])
    if not params:
        raise InvalidArgument("the tensor is no parameter of a wrapped model")
    runtime = params[0].runtime
    runtime.residents.gradients.hand_over()
    if runtime.steps.begun:
        runtime.gradients.values.settle()
        runtime.gradients.values.finish()
    return read(params[0], _abi.GRAD)


def attach(model: nn.Module, runtime: Runtime, optimizer: CastorOptimizer) -> None:
    """Gives the model what it needs of its own."""
    there = set(model.__dict__)
    object.__setattr__(model, "_castor", runtime)
    plain_state, plain_load = model.state_dict, model.load_state_dict

    def state_dict(*arguments: Any, prefix: str = "", keep_vars: bool = False, destination: Any = None) -> dict[str, Any]:
        """All ranks call it; rank 0 gets the tensors, and the others their names and shapes. What is written to the tensors is kept, as of any model."""
        values: dict[int, torch.Tensor] = {}
        for p in runtime.params:
            found = read(p)
            at_0 = runtime.engine.world.rank == 0
            values[id(p.tensor)] = runtime.values.given.give(found.to(p.dtype), partial(_keep, p)) if at_0 else names_of(found, p.dtype)
        names = {prefix + name: tensor for name, tensor in model.named_parameters(remove_duplicate=False)}
        kept = plain_state(prefix=prefix, keep_vars=True)
        for name in kept:
            tensor = names.get(name)
            if tensor is not None and id(tensor) in values:
                kept[name] = values[id(tensor)]
            elif not keep_vars:
                kept[name] = kept[name].detach() if isinstance(kept[name], torch.Tensor) else kept[name]
        if destination is None:
            return kept
        destination.update(kept)  # of what contains the model
        return destination

    def load_state_dict(state_dict: dict[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """All ranks give the same."""
        runtime.steps.settle()
        with torch.no_grad(), runtime.values.taking_copies():
            return plain_load(state_dict, strict=strict)

    def apply(fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        for dtype in runtime.params.holes:
            probe = torch.empty(0, dtype=dtype, device=runtime.device.torch_device)
            made = fn(probe)
            if made.dtype is not probe.dtype or made.device != probe.device:
                raise FailedPrecondition(
                    f"the model is wrapped, and its parameters cannot go to {made.dtype} on {made.device}: do so before castor.wrap, or "
                    "give castor.wrap a dtype"
                )
        return model

    def zero_grad(set_to_none: bool = True) -> None:
        optimizer.zero_grad(set_to_none)
        runtime.modules.ignored.zero_grad(set_to_none)

    model.state_dict = state_dict  # type: ignore[method-assign]
    model.load_state_dict = load_state_dict  # type: ignore[method-assign]
    model._apply = apply  # type: ignore[method-assign]
    model.zero_grad = zero_grad  # type: ignore[method-assign]
    model.clip_grad_norm_ = optimizer.clip_grad_norm_  # type: ignore[assignment]
    model.no_sync = runtime.steps.not_last  # type: ignore[assignment]
    model.memory_summary = lambda: memory_summary(runtime)  # type: ignore[assignment]
    of_castor = set(model.__dict__) - there | {"_ddp_params_and_buffers_to_ignore"}

    def deepcopy(memo: dict[int, Any]) -> nn.Module:
        """A plain model with the values."""
        kept = {name: model.__dict__.pop(name) for name in of_castor | {"__deepcopy__", "__reduce_ex__"} if name in model.__dict__}
        try:
            made = copy.deepcopy(model, memo)
        finally:
            model.__dict__.update(kept)
        without_hooks(made)
        return made

    def refuse_pickle(protocol: Any) -> Any:
        raise FailedPrecondition("the model's parameters are in chunks, so it cannot be pickled: save model.state_dict(), or call castor.save")

    object.__setattr__(model, "__deepcopy__", deepcopy)
    object.__setattr__(model, "__reduce_ex__", refuse_pickle)


def _keep(p: Param, values: torch.Tensor) -> None:
    """What a script has written into a state dictionary's tensor."""
    if p.runtime.engine.several:
        raise FailedPrecondition(f"{p.name} of what model.state_dict() gave was written to, and rank 0 alone has it: give all ranks the values by "
                                 "model.load_state_dict")
    if values.shape == p.shape:  # else it is another tensor by now
        exact = read(p)
        p.write(values if exact.dtype is values.dtype else torch.where(values == exact.to(values.dtype), exact, values.float()))


def memory_summary(runtime: Runtime) -> str:
    """Where the memory of this rank is, as a table."""
    stats = runtime.engine.stats()
    lines = ["tier        budget          peak"]
    for tier in ("device", "host"):
        exchange = stats["exchange_bytes"] if tier == "device" else 0  # taken all the time
        lines.append(f"{tier:<8}{format_size(stats[tier + '_budget_bytes'] + exchange):>12}  {format_size(stats[tier + '_peak_bytes'] + exchange):>12}")
    lines.append(f"{'nvme':<8}{'':>12}  {format_size(stats['nvme_peak_bytes']):>12}")
    largest = max([stats["chunk_bytes"], *(p.elements * p.dtype.itemsize for p in runtime.params)])  # which has a chunk of its own
    lines.append(
        f"{stats['chunks']} chunks of up to {format_size(largest)}; {stats['gathers']} gathers, "
        f"{stats['prefetched_gathers']} of them ahead; waited {stats['stall_ns'] / 1e9:.3f} s"
    )
    if runtime.opening.card is not None:
        lines.append(str(runtime.opening.card))
    rule = runtime.optimizer.rule
    if rule.update_bytes:
        lines.append(f"updates by the optimizer's own code, in host memory beside the budgets: {format_size(rule.update_bytes)}")
        if runtime.device.follow is not None:
            lines[-1] += f"; in the GPU's, of states on it: {format_size(rule.device_update_bytes)}"
    return "\n".join(lines)


# Checkpoints.


def save(directory: str, model: nn.Module, *, extra: Any = None, background: bool = False, keep: int = 0) -> None:
    """Saves what training goes on with: states, steps, buffers, the optimizer's groups, every rank's random states (torch's, Python's, numpy's), and
    `extra`. All ranks call it.

    Args:
      extra: anything that torch.save takes, such as a scheduler's state and the data position.
      background: returns while files are written; the next save, or `finish_save`, waits for it.
      keep: checkpoints that stay in the directory; 0: all.
    """
    runtime = runtime_of(model)
    optimizer = runtime.optimizer
    runtime.steps.settle()
    optimizer.follow_groups()
    runtime.values.settle()
    runtime.leases.end_those_over()
    rest = {
        "step": runtime.steps.number,
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in optimizer.groups],
        "optimizer": optimizer.rule.rest(),
        "buffers": {name: b for name, b in model.named_buffers()},
        "ignored": runtime.modules.ignored.values(),
        "random": states_of_ranks(runtime),
        "extra": extra,
    }
    text = io.BytesIO()
    torch.save(rest, text)
    runtime.engine.save(directory, text.getvalue(), background, keep)


def load(directory: str, model: nn.Module, *, step: Optional[int] = None, weights_only: bool = False, convert: bool = False) -> Any:
    """Takes back what `save` saved, at any number of ranks and under other budgets; returns `extra`.

    Args:
      step: of which checkpoint in the directory; None: the latest.
      weights_only: moments and counts of updates begin anew, and random states stay.
      convert: the model may have been saved in another ``dtype=``. Masters then give the exact values, where there were any.
    """
    runtime = runtime_of(model)
    runtime.steps.settle()
    runtime.optimizer.follow_groups()
    runtime.leases.end_those_over()
    optimizer = runtime.optimizer
    with uninterrupted():
        # All that may be refused is refused before anything changes.
        _, text = runtime.engine.load(directory, step, weights_only, convert, trainer_only=True)
        rest = read_rest(text, {"buffers", "extra"} | (set() if weights_only else {"groups", "random"})) if text else None
        if rest is not None:
            check_buffers(model, rest)
        if rest is not None and not weights_only:
            if len(rest["groups"]) != len(optimizer.groups):
                raise InvalidArgument(f"the checkpoint is of an optimizer with {len(rest['groups'])} parameter groups, and there are {len(optimizer.groups)}: "
                                      "part or add groups as the saved run did, and load again. Nothing has changed")
            optimizer.rule.check_rest(rest.get("optimizer"))
        runtime.engine.load(directory, step, weights_only, convert)
        optimizer.rule.loaded()
        if weights_only:
            optimizer.rule.begin_anew(optimizer.groups)
        runtime.steps.change_weights()
        runtime.values.refresh()
        if rest is None:
            return None
        take_buffers(runtime, model, rest)
        if not weights_only:
            optimizer.rule.take_rest(rest.get("optimizer"))
            for mine, group in zip(optimizer.groups, rest["groups"]):
                mine.update(group)
            take_own(runtime, rest["random"])
        return rest["extra"]


def read_rest(text: bytes, needed: set[str]) -> dict[str, Any]:
    """What a checkpoint has beside states, as `save` wrote it."""
    try:
        rest: Any = torch.load(io.BytesIO(text), map_location="cpu", weights_only=False)
        lacks, why = needed - rest.keys(), None
    except Exception as error:  # of torch.load, of pickle, or of a class that is not here
        lacks, why = needed, error
    if lacks:
        found = f"it cannot be read ({why})" if why else f"it lacks {' and '.join(sorted(lacks))}"
        raise InvalidArgument(f"the states of the checkpoint fit, but what castor.save writes beside them is not there: {found}. Nothing has changed. Load it "
                              "where the classes in its extra= can be imported, or take the weights of another trainer's checkpoint by castor.load_weights(model, "
                              "folder)") from why
    return rest


def check_buffers(model: nn.Module, rest: dict[str, Any]) -> None:
    there = {name: buffer.shape for name, buffer in model.named_buffers()}
    for name, values in rest["buffers"].items():
        if there.get(name) != values.shape:
            has = f"one of {list(there[name])}" if name in there else "none of that name"
            raise InvalidArgument(f"the checkpoint has a buffer {name} of shape {list(values.shape)}, and the model has {has}: load it into the model that was "
                                  "saved. Nothing has changed")


def take_buffers(runtime: Runtime, model: nn.Module, rest: dict[str, Any]) -> None:
    """Buffers and ignored modules get their values."""
    buffers = dict(model.named_buffers())
    with torch.no_grad():
        for name, values in rest["buffers"].items():
            buffers[name].copy_(values)
    runtime.modules.ignored.take(rest.get("ignored", {}))


__all__ = ["attach", "checkpoints", "exact", "gathered", "gradient", "load", "memory_summary", "read", "runtime_of", "save"]
