# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`torch.nn.utils.clip_grad_norm_`, which knows parameters by their ``.grad``. That of a wrapped model is in a chunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import torch
from torch import nn

plain_clip = nn.utils.clip_grad_norm_


def clip_grad_norm_(parameters: Union[torch.Tensor, Iterable[torch.Tensor]], max_norm: float, norm_type: float = 2.0, *arguments: Any, **keywords: Any) -> torch.Tensor:
    """torch's, which for parameters of a wrapped model clips what is in chunks."""
    tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)  # type: ignore[arg-type]
    params = [t._castor for t in tensors if getattr(t, "_castor", None) is not None]
    if not params:
        return plain_clip(tensors, max_norm, norm_type, *arguments, **keywords)
    runtime = params[0].runtime
    trained = {id(p) for p in runtime.params if not p.frozen}
    alone = all(p.runtime is runtime for p in params)
    if not runtime.opening.updates_early and (float(norm_type) != 2.0 or not alone or not trained <= {id(p) for p in params}):
        return plain_clip(tensors, max_norm, norm_type, *arguments, **keywords)  # of copies
    found = runtime.optimizer.clip_grad_norm_(max_norm, [t for t in tensors if getattr(t, "_castor", None) is None or t._castor.frozen])
    if (arguments[0] if arguments else keywords.get("error_if_nonfinite", False)) and not bool(torch.isfinite(found)):
        raise RuntimeError("The total norm of the gradients is not finite, so it cannot be clipped")
    return found
