# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The blocks of a model, whose activations are kept from the forward to the backward, or computed again there."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from castor._derive import is_layer_of_transformers, is_recomputed

_LISTS = (nn.ModuleList, nn.Sequential)
_CHANGED = ("gradient_checkpointing", "_gradient_checkpointing_func", "forward")  # attributes


class Block(NamedTuple):
    """A module that repeats: a member of a ModuleList, or of a Sequential whose members have modules of their own."""

    name: str
    module: nn.Module


def blocks_of(model: nn.Module) -> list[Block]:
    """The outermost blocks, in order of registration. Blocks that already compute their forward again are none of a choice's."""
    return [block for block in _blocks(model, "") if not any(is_recomputed(module) for module in block.module.modules())]


def _blocks(module: nn.Module, prefix: str) -> Iterator[Block]:
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(module, _LISTS) and next(child.children(), None) is not None and not isinstance(child, _LISTS):
            yield Block(path, child)
        else:
            yield from _blocks(child, f"{path}.")


def _forward_again(forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """`forward`: a module's own, bound, so that a copy of the module has that of the copy."""
    if torch.is_grad_enabled():
        return checkpoint(forward, *arguments, use_reentrant=False, **keywords)
    return forward(*arguments, **keywords)


def recompute(model: nn.Module, blocks: Sequence[Block]) -> Callable[[], None]:
    """Has each block keep its inputs alone, and compute its forward again in the backward, with the random states of the first time.

    A layer of transformers does so by its own means. The modules around such layers are told too, and then make no cache of keys and values.

    Returns:
      What takes all of it back.
    """
    layers = [block.module for block in blocks if is_layer_of_transformers(block.module)]
    around = [module for module in model.modules() if layers and hasattr(module, "gradient_checkpointing") and not is_layer_of_transformers(module)]
    others = [block.module for block in blocks if not is_layer_of_transformers(block.module)]
    # A model whose last reference goes is to go at once: nothing here holds its modules.
    before = [(weakref.ref(module), {name: vars(module)[name] for name in _CHANGED if name in vars(module)}) for module in (*layers, *around, *others)]
    for module in (*layers, *around):
        module.gradient_checkpointing = True  # type: ignore[assignment]
    for module in layers:
        module._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)  # type: ignore[assignment]
    for module in others:
        module.forward = functools.partial(_forward_again, module.forward)  # type: ignore[method-assign]

    def take_back() -> None:
        for held, attributes in before:
            module = held()
            if module is None:
                continue
            for name in _CHANGED:
                module.__dict__.pop(name, None)
            module.__dict__.update(attributes)

    return take_back
