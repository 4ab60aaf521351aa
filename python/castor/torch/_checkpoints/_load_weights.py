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
from typing import NamedTuple

import torch
from torch import Tensor, nn

from castor._interrupts import uninterrupted
from castor.errors import InvalidArgument
from castor.torch._checkpoints._state import check_buffers, checkpoints, read_rest, runtime_of, take_buffers
from castor.torch._checkpoints._weight_files import Place, places_of
from castor.torch._model import Param
from castor.torch._runtime import Runtime

log = logging.getLogger("castor")
_OWN = "castor"  # Castor's folder in a checkpoint of a trainer's or of accelerate's
_WORDS = ("base_layer", "original_module", "modules_to_save", "default")  # that peft puts into names of the base model


class LoadedWeights(NamedTuple):
    """What `load_weights` left: nothing, where both are empty."""

    missing: tuple[str, ...]  # tensors of the model that the files lack, and that keep their values
    further: tuple[str, ...]  # tensors of the files that the model has no place for


def load_weights(model: nn.Module, folder: str) -> LoadedWeights:
    """Takes weights from safetensors, as Hugging Face writes them, sharded ones too, or from a checkpoint of Castor's or of a trainer's under Castor.

    Tensors go by the model's own names, from the files into chunks, in whatever floating type they are. Tied weights may have any of their names, or
    all. The files may be of the base model where peft has renamed modules, or of the model without its head or with another one. Buffers, and
    parameters of ignored modules, are taken where the files have them. Moments and counts of updates begin anew. All ranks call it.

    Returns:
      What was left on either side. A warning lists the same.

    Raises:
      InvalidArgument: a shape differs, or no tensor has a place in the model. Nothing has changed then.
      Malformed: a file is no safetensors file, or has a type that torch lacks.
    """
    runtime = runtime_of(model)
    runtime.steps.settle()
    runtime.leases.end_those_over()
    if _has_own_states(runtime, folder):
        folder = os.path.join(folder, _OWN)  # with masters, and by the model's names
    places = places_of(folder)
    if not places:
        return _from_engine(runtime, model, folder, [], [], [])
    found = _Found(runtime, model, places)
    found.check(folder)
    if found.is_for_engine():
        aliases = [(name, p.name) for p, names in found.names.items() for name in names if name != p.name]
        _from_engine(runtime, model, folder, aliases, found.beside, [*found.others, *found.further])
    else:
        _by_tensors(runtime, found)
    left = LoadedWeights(tuple(found.missing), tuple(found.further))
    if left.missing:
        log.warning("castor: the files lack %d tensors of the model, which keep their values: %s", len(left.missing), _listed(left.missing))
    if left.further:
        log.warning("castor: the files have %d tensors that the model has no place for: %s", len(left.further), _listed(left.further))
    return left


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


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (", ..." if names[8:] else "")


class _Found:
    """Which tensor of the files each of the model's is made from."""

    def __init__(self, runtime: Runtime, model: nn.Module, places: Mapping[str, Place]) -> None:
        self.places = places
        self.names: dict[Param, list[str]] = {}  # in the files, of each parameter in chunks that is there
        self.beside: list[tuple[Tensor, Tensor]] = []  # buffers and parameters of ignored modules, and their values in the files
        self.others: list[str] = []  # the latter's names in the files
        prefix = getattr(model, "base_model_prefix", "") if not hasattr(model, "peft_config") else getattr(model.get_base_model(), "base_model_prefix", "")
        lacked: dict[int, str] = {}
        there: set[int] = set()
        self._targets: list[tuple[str, Tensor]] = []  # buffers and parameters of ignored modules, by names in the files
        unkept = {f"{path}.{name}" if path else name for path, module in model.named_modules() for name in module._non_persistent_buffers_set}
        tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        for name, tensor in tensors:
            here = next((one for one in _candidates(name, prefix if isinstance(prefix, str) else "") if one in places), None)
            if here is None:
                if name not in unkept:
                    lacked.setdefault(id(tensor), name)
                continue
            there.add(id(tensor))
            p = runtime.params.by_tensor.get(id(tensor))
            if p is None:
                self._targets.append((here, tensor.detach()))
                self.others.append(here)
            elif here not in self.names.setdefault(p, []):
                self.names[p].append(here)
        self.missing = [name for number, name in lacked.items() if number not in there]
        used = {name for names in self.names.values() for name in names}.union(self.others)
        self.further = [name for name in places if name not in used]
        self._whole = len(self.names) == len(runtime.params)

    def check(self, folder: str) -> None:
        """Reads what is beside chunks, and refuses what does not fit."""
        if not self.names and not self._targets:
            raise InvalidArgument(f"no tensor in {folder} has a place in the model; the first there is {next(iter(self.places))}: give the files of this model, or "
                                  "rename their tensors. Nothing has changed")
        for p, names in self.names.items():
            for name in names:
                self.places[name].dtype(name, floating=True)
                if list(p.shape) != self.places[name].shape:
                    _refuse_shape(name, self.places[name].shape, list(p.shape))
        for name, tensor in self._targets:
            if self.places[name].shape != list(tensor.shape):
                _refuse_shape(name, self.places[name].shape, list(tensor.shape))
            self.beside.append((tensor, self.places[name].read(name)))

    def is_for_engine(self) -> bool:
        """Whether the engine reads the files itself: each parameter is there, in a type of the engine's, and none is made from another's tensor."""
        uses = Counter(name for names in self.names.values() for name in names)
        return self._whole and max(uses.values()) == 1 and all(place.type != "F64" for place in self.places.values())


def _refuse_shape(name: str, theirs: list[int], ours: list[int]) -> None:
    raise InvalidArgument(f"{name} has the shape {tuple(theirs)} in the files and {tuple(ours)} in the model")


def _candidates(name: str, prefix: str) -> Iterator[str]:
    """Names that files may have for a tensor of the model, the likeliest first. `prefix`: of the model without its head, as transformers says it."""
    yield name
    bare = ".".join(word for word in name.removeprefix("base_model.model.").split(".") if word not in _WORDS) if _by_peft(name) else name
    yield bare
    if prefix:
        yield bare.removeprefix(prefix + ".") if bare.startswith(prefix + ".") else f"{prefix}.{bare}"


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
        for p, names in found.names.items():
            p.write(found.places[names[0]].read(names[0]))
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
