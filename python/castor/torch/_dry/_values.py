# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Says which line of a script asks a tensor without values for its values."""

from __future__ import annotations

import contextlib
import linecache
import os
import traceback
from collections.abc import Iterator

import torch

from castor import errors
from castor.errors import InvalidArgument
from castor.torch._torch_internals import no_fake_form, needs_values

_LIBRARIES = tuple(os.path.dirname(os.path.abspath(library.__file__)) + os.sep for library in (torch, errors))
_NO_MEMORY = ("numpy() is not supported for tensor subclasses", "Cannot access data pointer of Tensor", "The tensor has a non-zero number of elements, but its data is not")


def line_of(error: BaseException) -> str:
    """``file:line (its text)`` of the innermost frame outside of torch and Castor."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not os.path.abspath(frame.filename).startswith(_LIBRARIES)]
    if not frames:
        return "the step"
    frame = frames[-1]
    text = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{frame.filename}:{frame.lineno}" + (f" ({text})" if text else "")


@contextlib.contextmanager
def values_are_named() -> Iterator[None]:
    """Raises:
      InvalidArgument: in place of torch's own errors about fake tensors, with the script's line.
    """
    try:
        yield
    except needs_values as error:
        raise _of_values(error) from error
    except no_fake_form as error:
        raise InvalidArgument(
            f"{line_of(error)} calls an operator that torch cannot try without values ({error}): give the operator a form by torch.library.register_fake"
        ) from error
    except (RuntimeError, TypeError) as error:
        if not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise _of_values(error) from error


def _of_values(error: BaseException) -> InvalidArgument:
    return InvalidArgument(
        f"{line_of(error)} needs the values of a tensor, and a dry step has none: leave .item(), .tolist(), float(), if on a tensor, nonzero and indexing by a "
        "mask out of the step, or compute with whole tensors, as torch.where does"
    )
