# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What `model.state_dict()` gives on ranks other than 0: each parameter's name, shape and type. Rank 0 alone has the values."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from castor.errors import FailedPrecondition


class NamesOnly(torch.Tensor):
    """Of the meta device, and so is what is computed of it. Saved or written to, it would pass for values."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: tuple = (), keywords: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "item", "numpy", "tolist"):
            refuse()
        if name in ("cpu", "cuda", "pin_memory"):
            return arguments[0]
        if name == "to":  # the same place, whichever is asked for
            asked = [one for one in (*arguments[1:], *(keywords or {}).values()) if isinstance(one, (torch.dtype, torch.Tensor))]
            dtype = next((one if isinstance(one, torch.dtype) else one.dtype for one in asked), arguments[0].dtype)
            return names_of(arguments[0], dtype)
        return super().__torch_function__(function, types, arguments, keywords or {})

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse()


def names_of(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`dtype`: that rank 0 gives."""
    made: torch.Tensor = torch.Tensor._make_subclass(NamesOnly, torch.empty(parameter.shape, dtype=dtype, device="meta"))  # type: ignore[attr-defined]
    return made


def refuse() -> NoReturn:
    """Raises at once, where an empty dict would have been lost in silence."""
    raise FailedPrecondition("of model.state_dict() this rank has names and shapes, and rank 0 the values: save or change them on rank 0, or read parameters "
                             "inside castor.gathered on all ranks")
