# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Arguments of `wrap` that a trainer holds until its model is there: checked when the trainer is made."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from castor.errors import InvalidArgument
from castor.sizes import parse_size
from castor.torch._parameters._types import EIGHT_BITS
from castor.torch._wrap import wrap

OF_WRAP = tuple(name for name, one in inspect.signature(wrap).parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY)
_SIZES = ("device", "card", "host", "chunk")
_TYPES = ("dtype", "buffer_dtype", "reduce_dtype", "state_dtype")
_MODULES = ("units", "ignore")


def checked_of_wrap(arguments: Mapping[str, Any], of: str, further: Sequence[str] = ()) -> dict[str, Any]:
    """The same arguments, with torch's types in place of their names.

    Args:
      arguments: keyword arguments of `castor.torch.wrap`, from a script or from a file; sizes in bytes or as ``"8GiB"``.
      of: the name of what takes the arguments, for messages.
      further: keys that are allowed beside those of `wrap`.

    Raises:
      InvalidArgument: an unknown key, with the nearest one; a size that is none; a type or a module by a name that says nothing.
    """
    known = (*OF_WRAP, *further)
    made = dict(arguments)
    for key, value in made.items():
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, 1, 0.0)[0]
            raise InvalidArgument(f"{of} has the unknown key {key!r}: the nearest one is {nearest!r}; the keys are {', '.join(known)}")
        if key in _SIZES and value not in ("auto", None):
            parse_size(value, f"{of} has a {key} that")
        if key in _TYPES and isinstance(value, str) and (key, value) != ("state_dtype", EIGHT_BITS):
            made[key] = getattr(torch, value.removeprefix("torch."), None)
            if not isinstance(made[key], torch.dtype):
                raise InvalidArgument(f"{of} has {key} {value!r}: give a name of torch's types, such as 'bfloat16'")
        if key in _MODULES and any(isinstance(one, str) for one in value):
            raise InvalidArgument(f"{of} has names in {key}, which takes modules: give them in the script, beside what a file or the command line says")
    return made
