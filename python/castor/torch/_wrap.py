# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`wrap`: one line around a model and its optimizer."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

import torch
from torch import nn

from castor._engine import Engine
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch import _accelerate, _record
from castor.torch._card._first_forward import FirstForward
from castor.torch._card._sharing import Shared, card_bytes, share
from castor.torch._checkpoints import _state
from castor.torch._dry._step import Step
from castor.torch._machine._budgets import Budget
from castor.torch._machine._device import device_of
from castor.torch._machine._drives import folders_of
from castor.torch._machine._groups import Shard, groups_in
from castor.torch._machine._world import make_world
from castor.torch._model import Param, Unit
from castor.torch._modules import Modules
from castor.torch._opening import Opening
from castor.torch._optimizer import CastorOptimizer
from castor.torch._optimizers._choice import listed, refuse_strangers, rule_for, take_states
from castor.torch._optimizers._rule import Rule
from castor.torch._parameters._guards import guard_model, guard_optimizer
from castor.torch._parameters._initial import align
from castor.torch._parameters._lazy import LazyValues
from castor.torch._parameters._leases import floats_at
from castor.torch._parameters._params import ChunkedParameter
from castor.torch._parameters._quantizers import kept_beside, leave_layouts, refuse_merges
from castor.torch._parameters._stored import are_bytes, bytes_of, holds, stored
from castor.torch._parameters._types import Types, moments_in
from castor.torch._runtime import Runtime
from castor.torch._torch_internals import plain_functions

log = logging.getLogger("castor")
_TIERS = ("device", "host", "nvme")
_STATES = ("param", "grad", "master")  # and those of the optimizer
_CHUNKS_OF_A_CARD = 64  # at least, where a step has yet to say what it needs of the card

Filler = Callable[[int, int, int], None]
Model = TypeVar("Model", bound=nn.Module)


def wrap(
    model: Model,
    optimizer: Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]],
    *,
    device: Budget = "auto",
    card: Optional[Budget] = None,
    step: Optional[Step] = None,
    batch: Any = None,
    host: Budget = "auto",
    nvme: Union[str, Sequence[str], None] = None,
    stage: int = 3,
    shard: Shard = None,
    shard_states: str = "group",
    dtype: Optional[torch.dtype] = None,
    keep_fp32: Sequence[str] = (),
    buffer_dtype: Optional[torch.dtype] = None,
    reduce_dtype: Optional[torch.dtype] = None,
    state_dtype: Union[torch.dtype, str, None] = None,
    max_norm: float = 0.0,
    initial_scale: Optional[float] = None,
    max_skips: int = 100,
    check: bool = False,
    update_in_backward: bool = False,
    chunk: Optional[Union[int, str]] = None,
    policy: str = "auto",
    place: Optional[Mapping[str, Union[str, Mapping[str, str]]]] = None,
    units: Sequence[Union[nn.Module, type]] = (),
    ignore: Sequence[nn.Module] = (),
    on: Union[str, torch.device, None] = None,
    timeout_s: float = 120.0,
    config: Optional[dict[str, Any]] = None,
) -> tuple[Model, CastorOptimizer]:
    """Puts a model's parameters, gradients and optimizer states into chunks that live where the budgets allow.

    Args:
      model: any module with float32, bfloat16 or float16 parameters, and frozen ones of any other type. It is changed and returned.
      optimizer: any of torch's kind over parameters of the model, or several, as ``[Muon(matrices), AdamW(rest)]``. Parameters in none of
        its groups are not trained. Adam, AdamW and SGD are Castor's own; others update windows of the chunks by their own code, on the states
        that Castor keeps.
      device, host: budgets of this rank, in bytes or as ``"8GiB"``. ``"auto"``: what the machine has to spare. A GPU's is measured in the
        first step: activations are beside it.
      card: device memory of this rank for a whole step, in place of `device`: chunks, and the step's own tensors, whose sizes a step on tensors without
        memory tells. Blocks compute their forward again in the backward where that is the cheaper use of the card. A batch that takes more than `batch`
        takes more than `card`.
      step, batch: what `card` is for: ``step(model, batch)`` is a forward and a loss, as for `castor.dry_step`. No `step`: the model returns its ``loss``.
        Neither: the arguments of the model's first training forward, before which the card is shared; a model without a loss counts a cross-entropy.
      nvme: a directory, or several on drives of their own, for what fits nowhere else.
      stage: 0 to 3, as ZeRO counts: what ranks keep a part of only.
      shard: the ranks that share one set of shards; other groups keep copies, and parameters are gathered inside a group. ``"host"``: the ranks of each
        host, or a number of consecutive ranks. None: all ranks.
      shard_states: ``"group"``: the optimizer's states are cut among a group's ranks. ``"world"``: among all ranks, which takes the least memory.
      dtype: the parameters' type from now on, with float32 masters where it is less. Floating inputs of the model are cast to it. Modules with
        running statistics, such as BatchNorm, stay in float32.
      keep_fp32: modules that stay in float32, by patterns of their names, such as ``["*.router", "*norm*"]``. Their floating inputs are cast, and their
        outputs cast back. A pattern that names no module names parameters, which stay in float32 where their module computes as it is told.
      buffer_dtype: the type of floating buffers from now on. None: as they are.
      reduce_dtype: torch.float32: gradients are added, reduced and kept in it, whatever the parameters' type. None: in theirs.
      state_dtype: torch.bfloat16: the optimizer's moments are kept in it, rounded stochastically, in half the memory. ``"8bit"``: in blocks of 128 bytes and
        a scale, in about a quarter; moments of parameters with fewer than 4,096 elements stay in float32. None: in float32.
      max_norm: clips the global norm of each step's gradients; 0: not.
      initial_scale: loss scaling begins with this factor: use `optimizer.backward(loss)` or `optimizer.scale(loss)`.
      max_skips: a step whose gradients are not finite changes nothing; after so many in a row there is an error. 0: never.
      check: every step is watched for operations that read parameters where they have no values, as the first step is. It takes time.
      update_in_backward: a chunk is updated as soon as its gradients are there, with the learning rate of that moment, and `step` ends the step.
        A backward is then final: neither clipping, loss scaling nor `zero_grad` can come between. Saves time and transfers where states are
        on NVMe.
      chunk: bytes of a chunk; None: searched.
      policy: who decides which copies stay on the device: ``"auto"`` weighs their next use, ``"planned"`` takes the cheapest plan.
      place: where states of parameters live, by patterns of their names, of which the first that matches holds:
        ``{"*.experts.*": "nvme", "wte.*": {"param": "device", "exp_avg": "nvme"}}``.
      units: modules, or their classes, whose parameters are acquired together at the outermost one's forward. Blocks whose inner calls
        differ by rank, as experts' do, have to be units. A parameter of theirs that only some ranks use gets zeros of the others; on
        several ranks one that none uses is updated with a gradient of zeros.
      ignore: modules whose parameters are left alone: an optimizer of the script's trains them. `castor.save`, `model.zero_grad` and `clip_grad_norm_`
        count them in, and on several ranks their gradients are averaged.
      on: where the model computes, such as ``"cuda:1"``. None: where its parameters are; parameters without values go to the current GPU, if
        there is one.
      timeout_s: a rank that does not come in this time is named, and ends the training of all.
      config: more keys of Castor's config, which go before what is made of the other arguments.

    Returns:
      The model and the optimizer to use in place of the one given.

    Raises:
      InvalidArgument: what was asked for has no meaning; the text names the parameter or module.
      DoesNotFit: the budgets cannot serve the model, with what would.
    """
    if getattr(model, "_castor", None) is not None:
        raise FailedPrecondition("the model is wrapped already")
    optimizer = listed(optimizer)
    _accelerate.refuse_prepared(model, optimizer)
    _refuse_without_card(card, device, step, batch)
    _refuse_together(update_in_backward, max_norm, initial_scale, ignore)
    subject = _look(model, optimizer, ignore, Types(dtype, keep_fp32, buffer_dtype), on)
    folders = folders_of(nvme)
    chosen: dict[str, Any] = {"policy": policy, "count_norm": not update_in_backward, "home_rules": _home_rules(place or {}, subject.rule),
                              **_reduced_in(reduce_dtype), **_moments(state_dtype), **groups_in(shard, shard_states, config or {}), **(config or {})}
    with contextlib.ExitStack() as undo:
        shared: Optional[Shared] = None
        first: Optional[FirstForward] = None
        if card is not None:
            planned = {"host": host, "folders": folders, "stage": stage, "max_norm": max_norm, "chunk": chunk, "update_in_backward": update_in_backward,
                       "units": units, "reduce_dtype": reduce_dtype, "state_dtype": state_dtype,
                       "groups": {key: chosen[key] for key in ("shard_group", "optimizer_span") if key in chosen}}
            if batch is None:
                device = card_bytes(card, subject.computes_on)
                if chunk is None and "chunk" not in chosen:
                    # Chunks are cut before it is known how much of the card is theirs.
                    planned["most_chunk"] = device // _CHUNKS_OF_A_CARD
                    chosen["chunk"] = {"max_bytes": planned["most_chunk"]}
                first = FirstForward(model, optimizer, card, subject.computes_on, dtype, planned)
            else:
                shared = share(model, optimizer, card, step, batch, subject.computes_on, dtype, planned)
                undo.callback(shared.take_back)
                device, host = shared.choice.device_bytes, shared.host_bytes
        opening = Opening(device, host, folders, stage, max_norm, initial_scale, chunk, update_in_backward, units, ignore, chosen, shared)
        runtime = _open(subject, opening, timeout_s, check)
        _seal(subject, runtime)
        undo.pop_all()
    _move(subject, runtime, units)
    made = _hand_out(subject, runtime, max_skips)
    if first is not None:
        opening.await_forward(runtime, model, first)
    return made


class _Subject(NamedTuple):
    """What is wrapped, before anything of it changes."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    rule: Rule
    types: Types
    found: list[_Found]  # parameters, in initialization order
    lazy: LazyValues
    computes_on: torch.device
    ignore: Sequence[nn.Module]


def _refuse_without_card(card: Optional[Budget], device: Budget, step: Optional[Step], batch: Any) -> None:
    if card is None and (step is not None or batch is not None):
        raise InvalidArgument("step= and batch= say what card= is for: give card= as well, such as '24GiB', or leave them away")
    if step is not None and batch is None:
        raise InvalidArgument("step= is a function of the model and of a batch: give castor.wrap batch= as well, or neither")
    if card is not None and device != "auto":
        raise InvalidArgument("card= is for a whole step, and device= for chunks alone: give one of them")


def _refuse_together(update_in_backward: bool, max_norm: float, initial_scale: Optional[float], ignore: Sequence[nn.Module]) -> None:
    if update_in_backward and (max_norm or initial_scale):
        raise InvalidArgument("update_in_backward=True updates before all gradients are known: leave max_norm= and initial_scale= away")
    if initial_scale and any(p.requires_grad for module in ignore for p in module.parameters()):
        raise InvalidArgument("ignore= has trained parameters, whose gradients nobody would divide by the loss scale: leave initial_scale= away, or train them")


def _look(model: nn.Module, optimizer: Any, ignore: Sequence[nn.Module], types: Types, on: Union[str, torch.device, None]) -> _Subject:
    optimizers = listed(optimizer)
    rule = rule_for(optimizers)
    types.look_at(model)
    lazy = LazyValues(model)
    found = _find(model, [group for one in optimizers for group in one.param_groups], ignore, types, lazy)
    return _Subject(model, optimizers, rule, types, found, lazy, _computes_on(on, found), ignore)


def _open(subject: _Subject, opening: Opening, timeout_s: float, checks_all: bool) -> Runtime:
    """A world, a device and an engine without parameters."""
    world = make_world(timeout_s, subject.computes_on)
    _record.begin(world)
    with contextlib.ExitStack() as undo:
        undo.callback(_record.forget, world)
        if world.size == 1:
            undo.callback(world.close)
        else:
            subject.lazy.seed = align(_modules(subject.model, subject.ignore), subject.lazy.seed)
        processor = device_of(world, subject.computes_on)
        undo.callback(processor.close)
        opening.choose_budgets(((f.tensor.numel(), f.dtype, f.frozen) for f in subject.found), subject.rule, processor, type(subject.optimizers[0]).__name__)
        engine = Engine(world, opening.config(subject.rule), processor.handle)
        undo.pop_all()
    return Runtime(engine, processor, opening, checks_all)


def _seal(subject: _Subject, runtime: Runtime) -> None:
    """The engine has all values, and takes its memory."""
    engine = runtime.engine
    try:
        runtime.device.bind(engine.handle)
        for f in subject.found:
            p = Param(runtime, f.name, f.tensor, f.dtype, f.group, f.frozen)
            dtype, shape = stored(f.dtype, f.tensor.shape)
            p.number = engine.register(f.name, shape, dtype, f.frozen, f.group, f.fill)
            p.unit = Unit((p,))
            runtime.params.add(p)
        subject.rule.bind(runtime)
        runtime.opening.seal(runtime, subject.model)
    except BaseException:
        runtime.close()
        _record.forget(engine.world)
        raise


def _move(subject: _Subject, runtime: Runtime, units: Sequence[Any]) -> None:
    """Parameters become names of what is in chunks, and modules bring them their values."""
    leave_layouts(subject.model.modules())
    refuse_merges(subject.model.modules())
    with _without_weak_references(subject.model):
        _move_in(runtime)
    _move_the_rest(runtime, subject.model, subject.types, subject.ignore)
    subject.types.hook(subject.model)
    runtime.take_modules(Modules(subject.model, runtime, units, subject.ignore))


def _hand_out(subject: _Subject, runtime: Runtime, max_skips: int) -> tuple[Any, CastorOptimizer]:
    """What the script goes on with."""
    model = subject.model
    wrapped = CastorOptimizer(subject.optimizers, subject.rule, runtime, max_skips)
    runtime.take_optimizer(wrapped)
    runtime.opening.place(runtime)
    _state.attach(model, runtime, wrapped)
    guard_model(model)
    for one in subject.optimizers:
        take_states(runtime, subject.rule, one)
        guard_optimizer(one)
    _accelerate.attend()
    weakref.finalize(model, runtime.close)
    runtime.engine.world.closers.append(runtime.close)
    return model, wrapped


class _Found:
    """A parameter of the model, before it is Castor's."""

    def __init__(self, name: str, tensor: nn.Parameter, dtype: torch.dtype, group: str, frozen: bool, fill: Filler) -> None:
        self.name, self.tensor, self.dtype, self.group, self.frozen, self.fill = name, tensor, dtype, group, frozen, fill


def _modules(model: nn.Module, ignore: Sequence[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    left_alone = {id(m) for module in ignore for m in module.modules()}
    for name, module in model.named_modules():
        if id(module) not in left_alone:
            yield name, module


def _find(model: nn.Module, its_groups: Sequence[dict[str, Any]], ignore: Sequence[nn.Module], types: Types,
          lazy: LazyValues) -> list[_Found]:
    groups = {id(t): f"g{index}" for index, group in enumerate(its_groups) for t in group["params"]}
    found: dict[int, _Found] = {}
    twice: list[str] = []  # whose memory modules keep under other names, too
    for prefix, module in _modules(model, ignore):
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            raise InvalidArgument(f"{prefix} is an embedding with max_norm, which writes to its weight in its forward: use none, or ignore=[...]")
        for name, tensor in module.named_parameters(recurse=False):
            if id(tensor) in found:
                continue
            to = types.of_parameter(module, tensor)
            fill = lazy.filler(module, name) if tensor.is_meta else _filler(tensor, to) if holds(tensor) else None
            name = f"{prefix}.{name}" if prefix else name
            if isinstance(tensor, ChunkedParameter):
                raise FailedPrecondition(f"parameter {name} is in the chunks of another wrapped model: a module is wrapped once")
            if isinstance(tensor, nn.parameter.UninitializedParameter):
                raise InvalidArgument(f"parameter {name} has no shape yet: run the lazy module once before castor.wrap")
            if tensor.device.type not in ("cpu", "meta", "cuda"):
                raise InvalidArgument(f"parameter {name} is on {tensor.device}: castor.wrap takes models on the CPU or a CUDA GPU")
            trained = tensor.requires_grad and id(tensor) in groups
            if are_bytes(to) and trained:
                raise InvalidArgument(f"parameter {name} is {to}: Castor trains float32, bfloat16 and float16; leave its module alone by ignore=[...]")
            if fill is None:
                raise InvalidArgument(f"parameter {name} is {_kind_of(tensor)}, which is no tensor of one memory: leave its module alone by ignore=[...]")
            if are_bytes(to) and not tensor.is_meta and kept_beside(module, tensor):
                twice.append(name)
            found[id(tensor)] = _Found(name, tensor, to, groups.get(id(tensor), ""), not trained, fill)
    if twice:
        log.warning("castor: %d quantized weights, %s first, are also kept by their modules, in torch's memory beside the budgets: 4-bit weights are not",
                    len(twice), twice[0])
    _refuse_shared_memory(list(found.values()))
    left_alone = {id(t): name for name, t in model.named_parameters() if id(t) not in found}
    strange = [t for group in its_groups for t in group["params"] if id(t) not in found]
    if strange and id(strange[0]) in left_alone:
        raise InvalidArgument(f"parameter {left_alone[id(strange[0])]} is in a module to ignore: train it by an optimizer of its own")
    refuse_strangers(its_groups, found.keys())
    if not found:
        raise InvalidArgument("the model has no parameters")
    return list(found.values())


def _refuse_shared_memory(found: Sequence[_Found]) -> None:
    """Two parameters of which a write to one is a write to the other: chunks would part them."""
    ends: list[tuple[int, int, str]] = []
    for f in found:
        if not f.tensor.is_meta and f.tensor.numel():
            with plain_functions():
                begin = f.tensor.data_ptr()
                last = sum((size - 1) * stride for size, stride in zip(f.tensor.shape, f.tensor.stride()))
            ends.append((begin, begin + (last + 1) * f.tensor.itemsize, f.name))
    ends.sort()
    for (_, end, name), (begin, _, other) in zip(ends, ends[1:]):
        if begin < end:
            raise InvalidArgument(
                f"parameters {name} and {other} are two over the same memory, which chunks would part: make them one parameter, as by "
                "module.weight = other.weight, or give one of them memory of its own by .data.clone()"
            )


def _computes_on(on: Union[str, torch.device, None], found: Sequence[_Found]) -> torch.device:
    if on is None:
        devices = {f.tensor.device for f in found if not f.tensor.is_meta}
        if len(devices) > 1:
            raise InvalidArgument(f"the model's parameters are on {' and '.join(sorted(map(str, devices)))}: say which of them computes, by on=")
        on = devices.pop() if devices else "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(on)
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"on is {device}: Castor computes on the CPU or a CUDA GPU")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _home_rules(place: Mapping[str, Union[str, Mapping[str, str]]], rule: Rule) -> list[dict[str, str]]:
    rules, states = [], (*_STATES, *rule.states)
    for pattern, where in place.items():
        for state, tier in ((None, where),) if isinstance(where, str) else where.items():
            if tier not in _TIERS:
                raise InvalidArgument(f"place has {tier!r} for {pattern!r}: give one of {', '.join(_TIERS)}")
            if state is not None and state not in states:
                raise InvalidArgument(f"place has the state {state!r} for {pattern!r}: give one of {', '.join(states)}")
            rules.append({"tier": tier, "glob": pattern} | ({} if state is None else {"state": state}))
    return rules


def _reduced_in(dtype: Optional[torch.dtype]) -> dict[str, str]:
    if dtype not in (None, torch.float32):
        raise InvalidArgument(f"reduce_dtype is {dtype}: give torch.float32, or None for the parameters' own type")
    return {} if dtype is None else {"grad_mode": "fp32"}


def _moments(state_dtype: Union[torch.dtype, str, None]) -> dict[str, str]:
    dtype = moments_in(state_dtype)
    return {} if dtype is None else {"moment_dtype": dtype}


def _kind_of(tensor: torch.Tensor) -> str:
    values = tensor.data
    return f"a {type(values).__name__} of {type(values).__module__.partition('.')[0]}" if type(values) is not torch.Tensor else str(tensor.dtype)


def _filler(tensor: torch.Tensor, to: torch.dtype) -> Filler:
    """Writes a parameter's initial values, which seal asks for."""
    flat = bytes_of(tensor) if are_bytes(to) else tensor.detach().reshape(-1)

    def fill(begin: int, end: int, address: int) -> None:
        floats_at(address, end - begin).copy_(flat[begin:end])

    return fill


def _move_in(runtime: Runtime) -> None:
    """The values are in chunks; each parameter keeps one NaN."""
    device = runtime.device.torch_device
    for dtype in {p.dtype for p in runtime.params}:
        for p in runtime.params.make_holes(dtype, device):
            if p.tensor.is_meta:
                torch.utils.swap_tensors(p.tensor, nn.Parameter(torch.empty(0, dtype=dtype, device=device), requires_grad=p.tensor.requires_grad))
            p.tensor.data = p.hole
            p.tensor._castor = p  # type: ignore[attr-defined]
            if not p.frozen:
                runtime.gradients.attend(p)
            p.tensor.__class__ = ChunkedParameter


@contextlib.contextmanager
def _without_weak_references(model: nn.Module) -> Iterator[None]:
    """Recurrent modules refer to their parameters, which then cannot be swapped."""
    recurrent = [m for m in model.modules() if isinstance(m, nn.RNNBase) and any(p.is_meta for p in m.parameters(recurse=False))]
    for module in recurrent:
        module._flat_weight_refs = []
    yield
    for module in recurrent:
        module._init_flat_weights()


def _move_the_rest(runtime: Runtime, model: nn.Module, types: Types, ignore: Sequence[nn.Module]) -> None:
    """Buffers, and modules that are left alone, go where the model computes."""
    device = runtime.device.torch_device
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by what each was, which is kept so that no other has its number
    for _, module in _modules(model, ignore):
        for name, buffer in module.named_buffers(recurse=False):
            to = types.of_buffer(buffer)
            if buffer.dtype is not to or buffer.device != device:
                moved.setdefault(id(buffer), (buffer, buffer.to(device, to)))
                setattr(module, name, moved[id(buffer)][1])
    for module in ignore:
        module.to(device)
