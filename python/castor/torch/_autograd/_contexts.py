# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters that a script's autograd Function keeps on its context, beside ``save_for_backward``.

Such a tensor, as bitsandbytes' ``ctx.tensors``, would hold a parameter's chunk from the forward to the end of the graph. The context has the parameter's
name meanwhile, and the values while its backward runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from castor.torch._autograd._compile import uncompiled
from castor.torch._autograd._saves import Named
from castor.torch._hooks import tensors_in


@uncompiled
def keep_names(owners: Iterable[Any], result: Any) -> None:
    """Of the function whose ``apply`` gave `result`, while one of these models computes."""
    for owner in owners:
        saves = owner.forwards.saves
        if not saves.packs:
            continue
        for tensor in tensors_in(result):
            if getattr(tensor.grad_fn, "__dict__", None):
                _name_in(tensor.grad_fn, saves)
                break  # all results are of one node


def _name_in(node: Any, saves: Any) -> None:
    names = {}
    for attribute, value in vars(node).items():
        named = _replaced(value, Tensor, saves.name_of)
        if named is not value:
            names[attribute] = named
    if not names:
        return
    vars(node).update(names)
    node_of = weakref.ref(node)  # which holds its hooks

    def before(_gradients: Any) -> None:
        vars(node_of()).update({attribute: _replaced(value, Named, saves.value_of) for attribute, value in names.items()})

    def after(_inputs: Any, _outputs: Any) -> None:
        vars(node_of()).update(names)

    node.register_prehook(before)
    node.register_hook(after)


def _replaced(value: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """What is made of a value of this kind, also inside tuples and lists; the same value where there is none, or `by` gives None of it."""
    if isinstance(value, kind):
        made = by(value)
        return value if made is None else made
    if type(value) in (tuple, list):
        parts = [_replaced(part, kind, by) for part in value]
        if any(part is not old for part, old in zip(parts, value)):
            return type(value)(parts)
    return value
