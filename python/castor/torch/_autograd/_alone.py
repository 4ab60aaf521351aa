# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor's own tensors, made beside transforms of torch.func, dispatch modes and inference mode, which are to see the script's operations only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

inside_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack


def is_watched() -> bool:
    """Whether a transform, a dispatch mode or inference mode is around."""
    return _modes() > 0 or inside_transform() is not None or torch.is_inference_mode_enabled()


def unseen() -> contextlib.AbstractContextManager[None]:
    """What is done inside is seen by neither."""
    return _alone() if is_watched() else _NOTHING


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A tensor that is made at a level of torch.func's would die with the level. A mode, as selective checkpointing's, counts operations. Tensors of
    inference mode have no counter of writes."""
    with torch._C._DisableFuncTorch(), _disable_current_modes(), torch.inference_mode(False):
        yield
