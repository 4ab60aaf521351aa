# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor uses of torch and torch does not promise: each part with its use, and what is done where a torch lacks it.

No other file names such a part. An import never fails for one: what Castor cannot do without says so when it is needed. Versions are those that Castor was
tried with.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from castor.errors import Unavailable


class Part(NamedTuple):
    """One of them."""

    path: str  # of a module, and behind a colon the attributes
    use: str
    since: str  # the torch that is known to have it; "" for older ones than Castor takes
    there: bool


class _NeverRaised(Exception):
    """In place of an exception that this torch lacks."""


PARTS: dict[str, Part] = {}
_NONE: Any = object()


def _part(path: str, use: str, *, since: str = "", instead: Any = _NONE) -> Any:
    """The part, or `instead`: by default what says that Castor needs another torch."""
    module, _, names = path.partition(":")
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
        there = True
    except (ImportError, AttributeError):
        found, there = _missing(path, use) if instead is _NONE else instead, False
    PARTS[path] = Part(path, use, since, there)
    return found


def _missing(path: str, use: str) -> Any:
    class Missing:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise Unavailable(f"torch {torch.__version__} has no {path.replace(':', '.')}, which Castor needs for {use}: take a torch that Castor was tried with, "
                              "2.6 to 2.15")

    return Missing


# Functions that ask parameters what to do.

plain_functions: Any = _part("torch._C:DisableTorchFunctionSubclass", "torch's own functions of a parameter, without those of its class")
asked_functions: Any = _part("torch._C:_EnableTorchFunction", "functions of parameters in a backward", instead=contextlib.nullcontext)
functions_are_asked: Callable[[], bool] = _part("torch._C:_is_torch_function_enabled", "a backward whose caller has turned these off", instead=lambda: True)
no_function: Any = _part("torch._C:_disabled_torch_function_impl", "classes of tensors that functions take as plain ones")
_dispatch_keys: Any = _part("torch._C:DispatchKeySet", "aliases of parameters")
_dispatch_key: Any = _part("torch._C:DispatchKey", "aliases of parameters")
_without_keys: Any = _part("torch._C:_ExcludeDispatchKeyGuard", "aliases of parameters that are no views")
same_memory: Any = _part("torch:ops.aten.alias.default._op", "aliases of parameters, the cheapest operation that makes one")
set_grad_enabled: Callable[[bool], None] = _part("torch._C:_set_grad_enabled", "gradients on and off without an object", instead=torch.set_grad_enabled)


# What Castor replaces while there is a wrapped model (_patches.py).
_REPLACED = {
    "Function.apply": "torch.autograd:Function.apply",
    "FunctionBase.apply": "torch.autograd.function:_SingleLevelFunction.apply",
    "save_for_backward": "torch.autograd.function:FunctionCtx.save_for_backward",
    "disable_saved_tensors_hooks": "torch.autograd.graph:disable_saved_tensors_hooks",
    "run_backward": "torch.autograd.graph:_engine_run_backward",
    "run_backward of autograd": "torch.autograd:_engine_run_backward",
    "grad_fn_or_grad_acc": "torch.autograd.graph:_get_grad_fn_or_grad_acc",
    "wrap_for_gradient": "torch._functorch.eager_transforms:_wrap_tensor_for_grad",
    "add_batch_dim": "torch._functorch.vmap:_add_batch_dim",
    "has_torch_function": "torch.overrides:has_torch_function",
    "GradScaler.unscale_": "torch.amp:GradScaler.unscale_",
    "script_module": "torch.jit._recursive:create_script_module",
}


def place_of(replaced: str) -> Any:
    """Where a part is that Castor replaces: what has it, and its name there. None where this torch has none."""
    module, _, names = _REPLACED[replaced].partition(":")
    *holders, name = names.split(".")
    try:
        place: Any = sys.modules.get(module) or importlib.import_module(module)
        for holder in holders:
            place = getattr(place, holder)
    except (ImportError, AttributeError):
        return None
    return (place, name) if hasattr(place, name) else None


@functools.cache
def views_unnoted() -> Callable[[], Any]:
    """A context, each time, inside which torch does not note what is a view of what."""
    return functools.partial(_without_keys, _dispatch_keys(_dispatch_key.ADInplaceOrView))


# Modes and transforms around a script's operations.

dispatch_modes: Callable[[], int] = _part("torch._C:_len_torch_dispatch_stack", "whether a mode watches operations", instead=lambda: 0)
inside_transform: Callable[[], Any] = _part("torch._C:_functorch.peek_interpreter_stack", "whether torch.func transforms them", instead=lambda: None)
outside_transforms: Any = _part("torch._C:_DisableFuncTorch", "tensors of Castor's own inside a transform", instead=contextlib.nullcontext)
outside_modes: Any = _part("torch.utils._python_dispatch:_disable_current_modes", "tensors of Castor's own inside a mode", instead=contextlib.nullcontext)
DispatchMode: Any = _part("torch.utils._python_dispatch:TorchDispatchMode", "checks of steps, and trials of optimizers", instead=object)
current_mode: Callable[[], Any] = _part("torch.utils._python_dispatch:_get_current_dispatch_mode", "a check that an exception has left behind", instead=lambda: None)
push_mode: Callable[[Any], None] = _part("torch.utils._python_dispatch:_push_mode", "a check that an exception has left behind", instead=lambda mode: None)
Operation: Any = _part("torch._ops:OpOverload", "checks of single operations", instead=())
fake_tensors: Any = _part("torch._subclasses.fake_tensor:FakeTensorMode", "trials of optimizers and of steps without memory")
fake_tensor: Any = _part("torch._subclasses.fake_tensor:FakeTensor", "telling tensors of a dry step from others", instead=())
needs_values: Any = tuple(
    _part(f"torch._subclasses.fake_tensor:{name}", "naming the line of a dry step that needs values", instead=_NeverRaised)
    for name in ("DataDependentOutputException", "DynamicOutputShapeException")
)
no_fake_form: Any = tuple(
    _part(f"torch._subclasses.fake_tensor:{name}", "naming the line of a dry step that calls an unknown operator", instead=_NeverRaised)
    for name in ("UnsupportedOperatorException", "UnsupportedFakeTensorException")
)
flop_formulas: Any = _part("torch.utils.flop_counter:flop_registry", "floating-point operations of a dry step", instead={})
wrap_for_gradient: Any = _part("torch._functorch.eager_transforms:_wrap_tensor_for_grad", "parameters that torch.func.grad is given", instead=None)
add_batch_dim: Any = _part("torch._functorch.vmap:_add_batch_dim", "parameters that torch.vmap is given", instead=None)

def follow_saving_hooks() -> Callable[[bool], Any]:
    """Tells of a thread's innermost hooks on saved tensors, as torch itself does from 2.8 on: those that came since this was called are noted."""
    place: Any = getattr(torch._C, "_autograd", None)
    push, pop = getattr(place, "_push_saved_tensors_default_hooks", None), getattr(place, "_pop_saved_tensors_default_hooks", None)
    if push is None or pop is None:
        return lambda ignored: None
    noted = threading.local()

    def push_noted(pack: Any, unpack: Any) -> None:
        push(pack, unpack)
        noted.__dict__.setdefault("hooks", []).append((pack, unpack))

    def pop_noted() -> None:
        pop()
        hooks = noted.__dict__.get("hooks")
        if hooks:
            hooks.pop()

    def top(ignored: bool) -> Any:
        hooks = noted.__dict__.get("hooks")
        return hooks[-1] if hooks else None

    place._push_saved_tensors_default_hooks, place._pop_saved_tensors_default_hooks = push_noted, pop_noted
    return top


# Autograd.

graph_task: Callable[[], int] = _part("torch._C:_current_graph_task_id", "which backward a thread computes")
current_node: Callable[[], Any] = _part("torch._C:_current_autograd_node", "the module that a backward of a dry step computes for", instead=lambda: None)
sequence_number: Callable[[], int] = _part("torch._C:_autograd._get_sequence_nr", "which nodes a module's forward has made", instead=lambda: 0)
queue_callback: Callable[[Callable[[], None]], None] = _part("torch.autograd:Variable._execution_engine.queue_callback", "the end of a backward")
run_backward: Any = _part("torch.autograd.graph:_engine_run_backward", "the begin and the end of a backward, by an exception too")
grad_fn_or_grad_acc: Any = _part("torch.autograd.graph:_get_grad_fn_or_grad_acc", "hooks on several gradients", instead=None)
FunctionBase: Any = _part("torch.autograd.function:_SingleLevelFunction", "functions of scripts that are given parameters", instead=None)
FunctionContext: Any = _part("torch.autograd.function:FunctionCtx", "what these functions save")
top_saving_hooks: Any = _part("torch._C:_autograd._top_saved_tensors_default_hooks", "the hooks of a script's around those of Castor", since="2.8", instead=None)
if top_saving_hooks is None:
    top_saving_hooks = follow_saving_hooks()
pop_saving_hooks: Callable[[], None] = _part("torch._C:_autograd._pop_saved_tensors_default_hooks", "hooks that an exception has left behind", instead=lambda: None)
push_saving_hooks: Any = _part("torch._C:_autograd._push_saved_tensors_default_hooks", "the same hooks again", instead=lambda pack, unpack: None)

# Memory.

storage_uses: Callable[[int], int] = _part("torch._C:_storage_Use_Count", "whether a script keeps a copy of a parameter")
from_dlpack: Callable[[Any], torch.Tensor] = _part("torch._C:_from_dlpack", "tensors over chunks on a GPU", instead=torch.from_dlpack)
watch_out_of_memory: Any = _part("torch._C:_cuda_attach_out_of_memory_observer", "torch's failures to get memory of a GPU", instead=None)
current_stream: Any = _part("torch._C:_cuda_getCurrentRawStream", "the stream that work on a GPU is for", instead=lambda index: torch.cuda.current_stream(index).cuda_stream)

is_made_of_tensors: Callable[[Any], bool] = _part("torch.utils._python_dispatch:is_traceable_wrapper_subclass", "refusing weights that are several tensors",
                                                  instead=lambda tensor: False)

NormBase: Any = _part("torch.nn.modules.batchnorm:_NormBase", "modules with running statistics", instead=())

# Ranks.

gloo_group: Any = _part("torch.distributed.distributed_c10d:ProcessGroupGloo", "ranks of several hosts")
gloo_all_gather: Any = _part("torch.distributed.distributed_c10d:ProcessGroupGloo._allgather_base", "ranks of several hosts")

# Compilers.

compiled_frames: Any = _part("torch._C:_dynamo.eval_frame", "functions that torch.compile leaves as they are", instead=None)
being_compiled: Callable[[], Any] = _part("torch._guards:CompileContext.try_get", "whether torch.compile asks", instead=lambda: None)
COMPILER = "torch._dynamo.eval_frame"  # imported with torch.compile
COMPILED = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "eval_frame.py")  # the file of frames that call what was compiled
script_module: Any = _part("torch.jit._recursive:create_script_module", "refusing TorchScript of a wrapped model", instead=None)


def may_be_compiled() -> bool:
    """Whether torch.compile was imported."""
    return COMPILER in sys.modules


def increment_versions(tensors: list[torch.Tensor]) -> None:
    """Counts a write to each, as autograd does. Before torch 2.6 the function takes one."""
    try:
        torch.autograd.graph.increment_version(tensors)
    except (AttributeError, TypeError):
        for tensor in tensors:
            torch.autograd.graph.increment_version(tensor)


