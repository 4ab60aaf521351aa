# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`load_weights`: a wrapped model's weights from files that others wrote, for other forms of the model too."""

from __future__ import annotations

import io
import logging
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from castor._interrupts import uninterrupted
from castor.errors import InvalidArgument
from castor.torch._checkpoints._conversions import Made, listed, refuse_parts, sources_of
from castor.torch._checkpoints._state import check_buffers, checkpoints, read_rest, runtime_of, take_buffers
from castor.torch._checkpoints._weight_files import SAFETENSORS, Place, places_of
from castor.torch._model import Param
from castor.torch._runtime import Runtime
from castor.torch._transformers_internals import lacks_conversion

log = logging.getLogger("castor")
_OWN = "castor"  # Castor's folder in a checkpoint of a trainer's or of accelerate's
_WORDS = ("base_layer", "original_module", "modules_to_save", "default")  # that peft puts into names of the base model


class LoadedWeights(NamedTuple):
    """What `load_weights` left: nothing, where both are empty."""

    missing: tuple[str, ...]  # tensors of the model that the files lack, and that keep their values
    further: tuple[str, ...]  # tensors of the files that the model has no place for


def load_weights(model: nn.Module, folder: str) -> LoadedWeights:
    """Takes weights from safetensors or `pytorch_model.bin`, as Hugging Face has them, sharded ones too, or from a checkpoint of Castor's or of a trainer's.

    Tensors go by the model's own names, from the files into chunks, in whatever floating type they are. Tied weights may have any of their names, or
    all. The files may be of the base model where peft has renamed modules, or of the model without its head or with another one. Buffers, and
    parameters of ignored modules, are taken where the files have them. Moments and counts of updates begin anew. All ranks call it.

    For a model of transformers', names and operations are those of transformers' own conversion, which `from_pretrained` uses. So files with a tensor for
    each expert fill a model that holds experts together. One tensor of the model is made at a time, in host memory, from its parts alone.

    Returns:
      What was left on either side. A warning lists the same.

    Raises:
      InvalidArgument: a shape differs, no tensor has a place in the model, or the files hold experts in parts and transformers' conversion is not to be
        had. Nothing has changed then.
      Malformed: a file is no file of weights, or has a type that torch lacks.
    """
    runtime = runtime_of(model)
    runtime.steps.settle()
    runtime.leases.end_those_over()
    if _has_own_states(runtime, folder):
        folder = os.path.join(folder, _OWN)  # with masters, and by the model's names
    places = {} if _has_states_alone(folder) else places_of(folder)
    if not places:
        return _from_engine(runtime, model, folder, [], [], [])
    found = _Found(runtime, model, places, own=_is_checkpoint(folder))
    found.check(folder)
    if found.is_for_engine():
        aliases = [(source.name, p.name) for p, sources in found.sources.items() for source in sources if source.name != p.name]
        _from_engine(runtime, model, folder, aliases, found.beside, [*found.others, *found.further])
    else:
        _by_tensors(runtime, found)
    left = LoadedWeights(tuple(found.missing), tuple(found.further))
    if left.missing:
        log.warning("castor: the files lack %d tensors of the model, which keep their values: %s", len(left.missing), listed(left.missing))
    if left.further:
        log.warning("castor: the files have %d tensors that the model has no place for: %s", len(left.further), listed(left.further))
    if left.missing and left.further and lacks_conversion(_inner(model)):
        log.warning("castor: transformers' conversion of names would be needed to tell whether these are the same tensors, and this transformers lacks a part of it "
                    "that Castor takes: use 5.24")
    return left


def _is_checkpoint(folder: str) -> bool:
    """Whether a path is one checkpoint of Castor's, or a file there."""
    return os.path.isfile(os.path.join(folder if os.path.isdir(folder) else os.path.dirname(folder), "castor.json"))


def _has_states_alone(folder: str) -> bool:
    """Whether a folder has checkpoints of Castor's, and no safetensors of others beside them."""
    return os.path.isdir(folder) and bool(checkpoints(folder)) and not any(os.path.exists(os.path.join(folder, name)) for name in SAFETENSORS)


def _inner(model: nn.Module) -> Any:
    """The model without a wrapper of peft's."""
    return model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]


def _has_own_states(runtime: Runtime, folder: str) -> bool:
    """Whether a folder has Castor's states of this very model beside files of weights."""
    own = os.path.join(folder, _OWN)
    if not os.path.isdir(own) or not checkpoints(own):
        return False
    try:
        runtime.engine.load(own, weights_only=True, convert=True, trainer_only=True)
    except InvalidArgument as error:  # of the model without its adapters, say
        if not places_of(folder):
            raise
        log.warning("castor: load_weights takes the safetensors in %s, and not Castor's states there, which are of another form of the model: %s", folder, error)
        return False
    return True


class _Found:
    """Which tensor of the files, or which tensors, each of the model's is made from."""

    def __init__(self, runtime: Runtime, model: nn.Module, places: Mapping[str, Place], own: bool) -> None:
        self.places = places
        self.sources: dict[Param, list[Place | Made]] = {}  # of each parameter in chunks that the files have
        self.beside: list[tuple[Tensor, Tensor]] = []  # buffers and parameters of ignored modules, and their values in the files
        self.others: list[str] = []  # the latter's names in the files
        inner = self._inner = _inner(model)
        prefix = getattr(inner, "base_model_prefix", "")
        prefix = prefix if isinstance(prefix, str) else ""
        lacked: dict[int, str] = {}
        there: set[int] = set()
        self._targets: list[tuple[Place | Made, Tensor]] = []  # buffers and parameters of ignored modules
        unkept = {f"{path}.{name}" if path else name for path, module in model.named_modules() for name in module._non_persistent_buffers_set}
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        # Castor's own checkpoints have the model's own names and layouts.
        known: Mapping[str, Place | Made] = dict(places) if own else sources_of(inner, [_bare(name) for name, _ in tensors], places)
        used: set[str] = set()
        for name, tensor in tensors:
            source = next((known[one] for one in _candidates(name, prefix) if one in known), None)
            if source is None:
                if name not in unkept:
                    lacked.setdefault(id(tensor), name)
                continue
            used.update(source.parts if isinstance(source, Made) else [source.name])
            there.add(id(tensor))
            p = runtime.params.by_tensor.get(id(tensor))
            if p is None:
                self._targets.append((source, tensor.detach()))
                self.others += source.parts if isinstance(source, Made) else [source.name]
            elif all(source is not one for one in self.sources.setdefault(p, [])):
                self.sources[p].append(source)
        self.missing = [name for number, name in lacked.items() if number not in there]
        self.further = [name for name in places if name not in used]
        self._whole = len(self.sources) == len(runtime.params)

    def check(self, folder: str) -> None:
        """Reads what is beside chunks, and refuses what does not fit."""
        refuse_parts(self._inner, self.missing, self.further)
        if not self.sources and not self._targets:
            raise InvalidArgument(f"no tensor in {folder} has a place in the model; the first there is {next(iter(self.places))}: give the files of this model, or "
                                  "rename their tensors. Nothing has changed")
        for p, sources in self.sources.items():
            for source in sources:
                source.dtype(floating=True)
                if list(p.shape) != source.shape:
                    _refuse_shape(source.name, source.shape, list(p.shape))
        for source, tensor in self._targets:
            if source.shape != list(tensor.shape):
                _refuse_shape(source.name, source.shape, list(tensor.shape))
            self.beside.append((tensor, source.read()))

    def is_for_engine(self) -> bool:
        """Whether the engine reads the files itself: each parameter is there whole, in a type of the engine's, and none is made from another's tensor."""
        sources = [source for sources in self.sources.values() for source in sources]
        if any(isinstance(source, Made) for source in sources):
            return False
        uses = Counter(source.name for source in sources)
        return self._whole and max(uses.values()) == 1 and all(place.type != "F64" and place.values is None for place in self.places.values())


def _refuse_shape(name: str, theirs: list[int], ours: list[int]) -> None:
    raise InvalidArgument(f"{name} has the shape {tuple(theirs)} in the files and {tuple(ours)} in the model")


def _candidates(name: str, prefix: str) -> Iterator[str]:
    """Names that files may have for a tensor of the model, the likeliest first. `prefix`: of the model without its head, as transformers says it."""
    yield name
    bare = _bare(name)
    yield bare
    if prefix:
        yield bare.removeprefix(prefix + ".") if bare.startswith(prefix + ".") else f"{prefix}.{bare}"


def _bare(name: str) -> str:
    """A name of the model's without what peft puts into names."""
    return ".".join(word for word in name.removeprefix("base_model.model.").split(".") if word not in _WORDS) if _by_peft(name) else name


def _by_peft(name: str) -> bool:
    return name.startswith("base_model.model.") or any(word in name.split(".") for word in _WORDS[:-1])


def _from_engine(runtime: Runtime, model: nn.Module, folder: str, aliases: list[tuple[str, str]], beside: list[tuple[Tensor, Tensor]], others: list[str]) -> LoadedWeights:
    with uninterrupted():
        _, text = runtime.engine.load(folder, weights_only=True, convert=True, aliases=aliases, others=others, trainer_only=True)
        # Another trainer's own bytes have no buffers for this model.
        rest = read_rest(text, {"buffers"}) if zipfile.is_zipfile(io.BytesIO(text)) else None
        if rest is not None:
            check_buffers(model, rest)
        runtime.engine.load(folder, weights_only=True, convert=True, aliases=aliases, others=others)
        runtime.optimizer.rule.loaded()
        runtime.optimizer.rule.begin_anew(runtime.optimizer.groups)
        _take_beside(beside)
        if rest is not None:
            take_buffers(runtime, model, rest)
        runtime.steps.change_weights()
        runtime.values.refresh()
    return LoadedWeights((), ())


def _by_tensors(runtime: Runtime, found: _Found) -> None:
    """One tensor at a time is in host memory."""
    with uninterrupted():
        for p, sources in found.sources.items():
            p.write(sources[0].read())
        for p in runtime.params:
            if not p.frozen:
                runtime.optimizer.rule.forget(p)
        runtime.optimizer.rule.begin_anew(runtime.optimizer.groups)
        _take_beside(found.beside)
        runtime.steps.change_weights()
        runtime.values.refresh()


def _take_beside(beside: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for tensor, values in beside:
            tensor.copy_(values)
