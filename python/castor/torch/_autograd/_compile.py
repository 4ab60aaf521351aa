# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`torch.compile` compiles what modules compute, and nothing of Castor, whose hooks move parameters that a graph takes for constant."""

from __future__ import annotations

import sys
from typing import Any, Callable, TypeVar

import torch

from castor.errors import FailedPrecondition
from castor.torch._torch_internals import COMPILED, being_compiled, compiled_frames, may_be_compiled

_Function = TypeVar("_Function", bound=Callable[..., Any])


# What torch says where fullgraph=True forbids the break.
_WHY = "castor brings parameters to each module and takes them away: leave fullgraph=True away, or compile a copy.deepcopy of the model"


def uncompiled(function: _Function) -> _Function:
    """Breaks graphs where the function is called, and runs it and what it calls as it is.

    As torch.compiler.disable, but the compiler is not imported and a call costs nothing more.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = _WHY  # type: ignore[attr-defined]
    if hasattr(compiled_frames, "set_code_exec_strategy"):
        skip = compiled_frames._FrameAction.SKIP
        compiled_frames.set_code_exec_strategy(function.__code__, compiled_frames._FrameExecStrategy(skip, skip))
    elif hasattr(compiled_frames, "skip_code"):
        compiled_frames.skip_code(function.__code__)
    return function


def is_compiling() -> bool:
    """Whether the compiler asks, which compares its answers with what C++ finds in a tensor."""
    return being_compiled() is not None


def refuse_cuda_graphs() -> None:
    """Where a caller was compiled to CUDA graphs: they go on reading where parameters were when they were recorded. Nothing was compiled before `may_be_compiled`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == COMPILED:
            config = getattr(frame.f_locals.get("self"), "compiler_config", None) or {}
            if config.get("triton.cudagraphs"):
                raise FailedPrecondition(
                    "torch.compile was told to use CUDA graphs (mode=\"reduce-overhead\" or \"max-autotune\"), whose replays read parameters where "
                    "they no longer are: use the default mode, or \"max-autotune-no-cudagraphs\""
                )
        frame = frame.f_back
