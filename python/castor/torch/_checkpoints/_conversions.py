# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Tensors of a model that files hold under other names or in parts, such as one tensor an expert, by transformers' own conversion."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._checkpoints._weight_files import Place
from castor.torch._transformers_internals import Conversion, conversion


class Converted:
    """One run of transformers' operations: from the tensors of files that are parts, to one tensor of the model or several."""

    def __init__(self, first: str, converter: Any, model: nn.Module) -> None:
        self.first = first  # of the model's names that the run makes
        self.parts: list[tuple[str, Place]] = []  # each with its pattern in the converter
        self._converter = converter
        self._model = model

    def run(self, floating: bool, meta: bool = False) -> dict[str, Tensor]:
        """The tensors by the model's names. `meta`: shapes and types alone, without a read."""
        for _, part in self.parts:
            part.dtype(floating)
        converter = copy.deepcopy(self._converter)  # a converter keeps the parts that one run is given
        for pattern, part in self.parts:
            converter.add_tensor(self.first, part.name, pattern, functools.partial(_on_meta, part) if meta else part.read)
        try:
            with torch.no_grad():
                made = converter.convert(self.first, model=self._model, config=self._model.config)
        except Exception as error:  # of any operation of transformers'
            raise InvalidArgument(f"transformers' conversion of {listed([part.name for _, part in self.parts])} to {self.first} failed: {error}. Compare the model's "
                                  "config with the config.json of the files") from error
        return {name: values[0] if isinstance(values, list) else values for name, values in made.items()}


def _on_meta(part: Place) -> Tensor:
    return torch.empty(part.shape, dtype=part.dtype(), device="meta")


class Made:
    """One tensor of the model that a run of operations makes."""

    def __init__(self, name: str, run: Converted, sample: Tensor) -> None:
        self.name = name
        self.shape = list(sample.shape)
        self.parts = [part.name for _, part in run.parts]
        self._run = run
        self._dtype = sample.dtype

    def dtype(self, floating: bool = False) -> torch.dtype:
        """Malformed where the parts are in a type that torch lacks, or that is not `floating` where that is asked for."""
        for _, part in self._run.parts:
            part.dtype(floating)
        return self._dtype

    def read(self) -> Tensor:
        """The values on the CPU. The parts are in host memory meanwhile, and no other tensor's."""
        return self._run.run(floating=False)[self.name]


def sources_of(model: nn.Module, names: Collection[str], places: Mapping[str, Place]) -> dict[str, Place | Made]:
    """What each name is found under that the files have for a model: the files' own tensors, or those that transformers' conversion makes of several.

    Args:
      model: without a wrapper of peft's.
      names: the model's, as the files of the model without adapters have them.
      places: the tensors of the files, by their names there.
    """
    found = _conversion_of(model)
    return dict(places) if found is None else _by_transformers(found, model, names, places)


def _conversion_of(model: nn.Module) -> Conversion | None:
    found = conversion()
    return found if found is not None and isinstance(model, found.Model) else None


def _by_transformers(by: Conversion, model: Any, names: Collection[str], places: Mapping[str, Place]) -> dict[str, Place | Made]:
    mapping = by.mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, by.Renaming)]
    converters = [entry for entry in mapping if isinstance(entry, by.Converter)]
    of_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    known = dict.fromkeys(names, True)
    sources: dict[str, Place | Made] = {}
    runs: dict[str, Converted] = {}
    for name in sorted(places, key=by.order):
        new, pattern = by.rename(name, renamings, converters, model.base_model_prefix, known)
        if new not in known and name in known:
            new, pattern = name, None
        if new in known and pattern is not None:
            runs.setdefault(new, Converted(new, of_pattern[pattern], model)).parts.append((pattern, places[name]))
        else:
            sources.setdefault(new if new in known else name, places[name])
    for run in runs.values():
        for name, sample in run.run(floating=False, meta=True).items():
            sources[name] = Made(name, run, sample)
    return sources


def refuse_parts(model: nn.Module, missing: Collection[str], further: Collection[str]) -> None:
    """Refuses files that hold experts one by one for a model that holds them together, where transformers' conversion is not to be had for the model."""
    if _conversion_of(model) is not None:
        return
    lacked = [name for name in missing if "experts" in name.split(".") and not _is_of_one_expert(name)]
    parts = [name for name in further if _is_of_one_expert(name)]
    if lacked and parts:
        raise InvalidArgument(f"the files lack {listed(lacked)}, and have {listed(parts)} instead: transformers' conversion would be needed, so give a model of "
                              "transformers' own, of version 5.24. Nothing has changed")


def _is_of_one_expert(name: str) -> bool:
    words = name.split(".")
    return any(word == "experts" and number.isdigit() for word, number in zip(words, words[1:]))


def listed(names: Collection[str]) -> str:
    """The first eight names."""
    return ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
