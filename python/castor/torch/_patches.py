# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor replaces in torch while there is a wrapped model, each with its reason."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple, Optional

import torch

from castor.torch import _clip
from castor.torch._autograd._check import checked
from castor.torch._autograd._contexts import keep_names
from castor.torch._autograd._saves import without_castors_hooks
from castor.torch._parameters._guards import refuse_grad_scaler, refuse_torchscript
from castor.torch._parameters._params import ChunkedParameter, UsedParameter, without_stale
from castor.torch._parameters._values import collect
from castor.torch._torch_internals import add_batch_dim, asked_functions, FunctionBase, FunctionContext, functions_are_asked, grad_fn_or_grad_acc, graph_task, place_of, plain_functions, run_backward, script_module, wrap_for_gradient

_plain_apply: Any = vars(torch.autograd.Function)["apply"]
_plain_save: Any = getattr(FunctionContext, "save_for_backward", None)
_LOOKED_INTO = {ChunkedParameter, UsedParameter, list, tuple, dict}


def _apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
    return _with_names(_plain_apply.__get__(None, cls), *arguments, **keywords)


def _single_level_apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
    """Ends in the method of C++, never in ``Function.apply``: a torch whose own is of Python calls this one from there."""
    return _with_names(super(FunctionBase, cls).apply, *arguments, **keywords)


def _with_names(apply: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """A custom function's ``apply`` asks no ``__torch_function__``, and would save a parameter without its values."""
    if _may_have_names(arguments) or keywords:
        arguments, keywords = without_stale(arguments), without_stale(keywords)
        found: list[Any] = []
        collect(arguments, ChunkedParameter, found)
        collect(keywords, ChunkedParameter, found)
        if found:
            return found[0]._castor.runtime.call_with([name._castor for name in found], functools.partial(_with_names, apply), arguments, keywords)
    result = apply(*arguments, **keywords)
    keep_names(_alive(), result)
    return result


def _may_have_names(arguments: tuple) -> bool:
    return not _LOOKED_INTO.isdisjoint(map(type, arguments))


def _save_for_backward(self: Any, *tensors: Any) -> None:
    """Of a function whose ``apply`` a script had kept before."""
    if _may_have_names(tensors):
        tensors = tuple(_for_graph(tensor) for tensor in tensors)
    _plain_save(self, *tensors)


def _for_graph(tensor: Any) -> Any:
    """Values that a graph alone keeps, so that hooks which pack them never meet a name."""
    found = _value_of(tensor)
    if type(found) is UsedParameter:
        found.__class__ = found._castor.plain
    return found


def _value_of(tensor: Any) -> Any:
    """A tensor over a parameter's values; of any other the tensor."""
    if type(tensor) is UsedParameter:
        tensor = without_stale(tensor)
    return tensor._castor.runtime.alias_of(tensor._castor) if type(tensor) is ChunkedParameter else tensor


_plain_disable = torch.autograd.graph.disable_saved_tensors_hooks


@contextlib.contextmanager
def _disable_saved_tensors_hooks(message: str) -> Iterator[None]:
    """torch.func takes no hooks around it. Castor's only save memory there."""
    with without_castors_hooks(), _plain_disable(message):
        yield




class _Backward(NamedTuple):
    """A backward under way."""

    frame: FrameType
    thread: int
    outermost: Optional[_Backward]  # the backward that has called this one, with others between them or not


_backwards: list[_Backward] = []


def _outermost(thread: int) -> Optional[_Backward]:
    """The outermost backward around the thread's last one. A thread of autograd's own has called none, and computes the latest."""
    found = [one for one in _backwards if one.thread == thread] or _backwards
    return (found[-1].outermost or found[-1]) if found else None


def backward_under_way() -> tuple[FrameType, int]:
    """The frame of the outermost backward around the caller, and that frame's thread, which waits where autograd has threads of its own."""
    me = threading.get_ident()
    outermost = _outermost(me)
    return (sys._getframe(1), me) if outermost is None else (outermost.frame, outermost.thread)


def _run_backward(*arguments: Any, **keywords: Any) -> Any:
    """A model has its turn to the end of the backward that reached it, however the backward ends."""
    me = threading.get_ident()
    outermost = _outermost(me) if graph_task() != -1 else None
    owners = _alive()
    if outermost is None:
        for owner in owners:
            owner.backwards.outermost_begins()
    one = _Backward(sys._getframe(), me, outermost)
    _backwards.append(one)
    try:
        return _checked_backward(owners, *arguments, **keywords)
    except BaseException:
        _drop_the_rest()
        raise
    finally:
        _backwards.remove(one)
        for owner in owners:
            owner.backwards.is_over(one.frame, outermost is None)
        del one  # a frame that refers to itself would keep its arguments


def _drop_the_rest() -> None:
    """What an exception has left of a backward stays in its thread, with what autograd has saved, until the thread's next one begins or Python is gone."""
    if graph_task() == -1:
        with torch.enable_grad():
            nothing = torch.zeros((), requires_grad=True, device="cpu").clone()
        run_backward((nothing,), (torch.ones((), device="cpu"),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def _checked_backward(owners: list[Any], *arguments: Any, **keywords: Any) -> Any:
    """Where a model's check is due, it watches the backward, whose threads have the modes that were there when it began."""
    for owner in owners:
        if owner.forwards.check.due:
            break
    else:
        if functions_are_asked():
            return run_backward(*arguments, **keywords)
    # Who was given names has called this with their functions turned off, and a backward may compute forwards again.
    with checked(owners), asked_functions():
        return run_backward(*arguments, **keywords)


def _grad_fn_or_grad_acc(tensor: Any) -> Any:
    """Of a parameter, which graphs have by its name."""
    if type(tensor) is UsedParameter:
        tensor = tensor._castor.tensor
    with plain_functions() if type(tensor) is ChunkedParameter else contextlib.nullcontext():
        return grad_fn_or_grad_acc(tensor)


def _with_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of functions that take a tensor into a transform without asking ``__torch_function__``."""

    def take(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(_value_of(tensor), *arguments, **keywords)

    return take


_plain_has = torch.overrides.has_torch_function


def _has_torch_function(arguments: Any) -> bool:
    """Attention asks this of its weights, and with other tensors than torch's own leaves its fast path, which has other values where inputs are padded."""
    return _plain_has([argument for argument in arguments if type(argument) is not ChunkedParameter])


def _create_script_module(module: Any, *arguments: Any, **keywords: Any) -> Any:
    """TorchScript would compile the hooks of a wrapped model, and says what it cannot compile of them. A trace meets the forward, which says whether it serves."""
    if not keywords.get("is_tracing", False) and any(isinstance(parameter, ChunkedParameter) for parameter in module.parameters()):
        refuse_torchscript()
    return script_module(module, *arguments, **keywords)


_plain_unscale = torch.amp.GradScaler.unscale_


def _unscale(self: Any, optimizer: Any) -> None:
    """Gradients in chunks are divided by the engine's own loss scale."""
    if self.is_enabled() and getattr(optimizer, "_castor_ready", False):
        refuse_grad_scaler()
    _plain_unscale(self, optimizer)


def _there(patches: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, str, Any]]:
    for name, ours in patches:
        place = place_of(name)
        if place is not None:
            yield (*place, ours)


# The holder of each part, the part's name there, and Castor's replacement.
_PATCHES = tuple(_there((
    ("Function.apply", classmethod(_apply)),
    # Which ``Function.apply`` calls in torches whose own is of Python, where scripts have kept that of a class.
    ("FunctionBase.apply", classmethod(_single_level_apply)),
    ("save_for_backward", _save_for_backward),
    ("disable_saved_tensors_hooks", _disable_saved_tensors_hooks),
    ("run_backward", _run_backward),
    ("run_backward of autograd", _run_backward),  # where it is called by torch.autograd.backward and grad
    ("grad_fn_or_grad_acc", _grad_fn_or_grad_acc),
    ("wrap_for_gradient", _with_values(wrap_for_gradient)),
    ("add_batch_dim", _with_values(add_batch_dim)),
    ("has_torch_function", _has_torch_function),
    ("GradScaler.unscale_", _unscale),
    ("script_module", _create_script_module),
)))
_owners: list[weakref.ref[Any]] = []
_before: list[Any] = []  # what was there, or _NOTHING
_NOTHING = object()


def _alive() -> list[Any]:
    """The owners."""
    return [owner for reference in _owners if (owner := reference()) is not None]


def hold(owner: Any) -> None:
    """The patches are there until the last owner has called `let_go`, or has died."""
    _owners[:] = [reference for reference in _owners if reference() is not None]
    _owners.append(weakref.ref(owner))
    if not _before:
        _before.extend(vars(place).get(name, _NOTHING) for place, name, _ in _PATCHES)
        for place, name, ours in _PATCHES:
            setattr(place, name, ours)
        _replace_clip(_clip.plain_clip, _clip.clip_grad_norm_)


def let_go(owner: Any) -> None:
    """Once for an owner, or several times."""
    _owners[:] = [reference for reference in _owners if reference() not in (None, owner)]
    if _owners or not _before:
        return
    for (place, name, ours), before in zip(_PATCHES, _before):
        if vars(place).get(name) is not ours:
            continue  # somebody has replaced it since, and calls it
        if before is _NOTHING:
            delattr(place, name)
        else:
            setattr(place, name, before)
    _before.clear()
    _replace_clip(_clip.clip_grad_norm_, _clip.plain_clip)


def _replace_clip(one: Any, other: Any) -> None:
    """In torch, and in each loaded module that has taken the function from there by its name."""
    for module in list(sys.modules.values()):
        if module is not _clip and getattr(module, "__dict__", {}).get("clip_grad_norm_") is one:
            setattr(module, "clip_grad_norm_", other)
