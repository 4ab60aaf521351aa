# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor's own tensors, made beside transforms of torch.func, dispatch modes and inference mode, which are to see the script's operations only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from castor.torch._torch_internals import dispatch_modes, inside_transform, outside_modes, outside_transforms

# Each is false while nothing of its kind is around. The loop of a module's hook over them enters no function of Python's.
WATCHERS: tuple[Callable[[], Any], ...] = (dispatch_modes, inside_transform, torch.is_inference_mode_enabled)
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


def is_watched() -> bool:
    """Whether a transform, a dispatch mode or inference mode is around."""
    for watches in WATCHERS:
        if watches():
            return True
    return False


def unseen() -> contextlib.AbstractContextManager[None]:
    """What is done inside is seen by neither."""
    return _alone() if is_watched() else _NOTHING


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A tensor that is made at a level of torch.func's would die with the level. A mode, as selective checkpointing's, counts operations. Tensors of
    inference mode have no counter of writes."""
    with outside_transforms(), outside_modes(), torch.inference_mode(False):
        yield
