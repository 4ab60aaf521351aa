# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The options of Castor's strategies: those of `castor.wrap`, each a named parameter, so that files and command lines can give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import torch

from castor.torch._arguments import OF_WRAP, checked_of_wrap
from castor.torch._dry._step import Step
from castor.torch._machine._budgets import Budget
from castor.torch._machine._groups import Shard


class OptionsOfWrap:
    """Comes before a strategy of Lightning's among base classes, and makes it for Castor's ranks.

    Raises:
      InvalidArgument: an unknown name, with the nearest one; a size that is none; a type or a module by a name that says nothing.
    """

    def __init__(
        self,
        *,
        device: Budget = "auto",
        card: Optional[Budget] = None,
        step: Optional[Step] = None,
        batch: Any = None,
        host: Budget = "auto",
        nvme: Union[str, Sequence[str], None] = None,
        stage: int = 3,
        shard: Shard = None,
        shard_states: str = "group",
        dtype: Union[str, torch.dtype, None] = None,
        keep_fp32: Sequence[str] = (),
        buffer_dtype: Union[str, torch.dtype, None] = None,
        reduce_dtype: Union[str, torch.dtype, None] = None,
        state_dtype: Union[str, torch.dtype, None] = None,
        max_norm: float = 0.0,
        initial_scale: Optional[float] = None,
        max_skips: int = 100,
        check: bool = False,
        update_in_backward: bool = False,
        chunk: Optional[Union[int, str]] = None,
        policy: str = "auto",
        place: Optional[Mapping[str, Union[str, Mapping[str, str]]]] = None,
        units: Sequence[Union[torch.nn.Module, type]] = (),
        ignore: Sequence[torch.nn.Module] = (),
        on: Union[str, torch.device, None] = None,
        timeout_s: float = 120.0,
        config: Optional[dict[str, Any]] = None,
        **unknown: Any,
    ) -> None:
        given = locals()
        self._wrap_arguments = checked_of_wrap({name: given[name] for name in OF_WRAP} | unknown, type(self).__name__)
        super().__init__(process_group_backend="cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")  # type: ignore[call-arg]

    def arguments_on(self, device: torch.device) -> dict[str, Any]:
        """Arguments of `castor.wrap`, with the strategy's device where nobody gave ``on``."""
        return self._wrap_arguments | {"on": self._wrap_arguments["on"] or device}
