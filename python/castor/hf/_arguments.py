# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The ``castor=`` of a trainer: checked when made, from a script or from the command line."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import os
from collections.abc import Mapping
from typing import Any, Optional, Union

import torch

from castor.errors import InvalidArgument
from castor.sizes import parse_size
from castor.torch._wrap import wrap

_OF_WRAP = tuple(name for name, one in inspect.signature(wrap).parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY)
_OF_TRAINER = ("frozen", "optimizer_file")
_SIZES = ("device", "host", "chunk")
_TYPES = ("dtype", "buffer_dtype", "reduce_dtype", "state_dtype")
_MODULES = ("units", "ignore")


def checked(castor: Mapping[str, Any], of_trainer: bool = True) -> dict[str, Any]:
    """The same arguments, with torch's types in place of their names.

    Args:
      castor: arguments of `castor.torch.wrap`.
      of_trainer: ``frozen`` and ``optimizer_file`` may be among them.

    Raises:
      InvalidArgument: an unknown key, with the nearest one; a size that is none; a type or a module by a name that says nothing.
    """
    known = (*_OF_WRAP, *(_OF_TRAINER if of_trainer else ()))
    made = dict(castor)
    for key, value in made.items():
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, 1, 0.0)[0]
            raise InvalidArgument(f"castor= has the unknown key {key!r}: the nearest one is {nearest!r}; the keys are {', '.join(known)}")
        if key in _SIZES and value not in ("auto", None):
            parse_size(value, f"castor= has a {key} that")
        if key in _TYPES and isinstance(value, str):
            made[key] = getattr(torch, value.removeprefix("torch."), None)
            if not isinstance(made[key], torch.dtype):
                raise InvalidArgument(f"castor= has {key} {value!r}: give a name of torch's types, such as 'bfloat16'")
        if key in _MODULES and any(isinstance(one, str) for one in value):
            raise InvalidArgument(f"castor= has names in {key}, which takes modules: give them in the script, beside what the command line says")
        if key == "frozen" and value is not None:
            made[key] = checked(value, of_trainer=False)
    return made


@dataclasses.dataclass
class CastorArguments:
    """For `transformers.HfArgumentParser`, beside the trainer's own arguments: ``--castor '{"device": "8GiB"}'``, or the name of a JSON file.

    Raises:
      InvalidArgument: the text is no JSON object, or the object has what no ``castor=`` takes.
    """

    castor: Optional[Union[dict, str]] = dataclasses.field(  # type: ignore[type-arg]
        default=None, metadata={"help": "Castor's arguments, as a JSON object or the name of a file with one, such as '{\"device\": \"8GiB\"}'."})

    def __post_init__(self) -> None:
        found: Any = self.castor
        if isinstance(found, str):
            text = found
            if not found.lstrip().startswith("{"):
                if not os.path.isfile(found):
                    raise InvalidArgument(f"--castor is {found!r}, and there is no such file: give a JSON object, or the name of a file with one")
                with open(found, encoding="utf-8") as file:
                    text = file.read()
            try:
                found = json.loads(text)
            except json.JSONDecodeError as error:
                raise InvalidArgument(f"--castor cannot be read as JSON ({error}): write it as '{{\"device\": \"8GiB\"}}'") from error
            if not isinstance(found, dict):
                raise InvalidArgument(f"--castor is JSON of a {type(found).__name__}: give an object, such as '{{\"device\": \"8GiB\"}}'")
        self.castor = None if found is None else checked(found)
