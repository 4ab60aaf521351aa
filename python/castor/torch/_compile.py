# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`torch.compile` compiles what modules compute, and nothing of Castor, whose hooks move parameters that a graph takes for constant."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])
_FRAMES: Any = torch._C._dynamo.eval_frame


def uncompiled(function: _Function) -> _Function:
    """Breaks graphs where the function is called, and runs it and what it calls as it is.

    As torch.compiler.disable, but the compiler is not imported and a call costs nothing more.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    if hasattr(_FRAMES, "set_code_exec_strategy"):
        skip = _FRAMES._FrameAction.SKIP
        _FRAMES.set_code_exec_strategy(function.__code__, _FRAMES._FrameExecStrategy(skip, skip))
    elif hasattr(_FRAMES, "skip_code"):
        _FRAMES.skip_code(function.__code__)
    return function
