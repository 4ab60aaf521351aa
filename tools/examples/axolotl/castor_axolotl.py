# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A plugin of axolotl 0.19 whose trainer keeps the model and its optimizer in Castor's chunks.

With this folder on PYTHONPATH, axolotl's file says:

    plugins: [castor_axolotl.CastorPlugin]
    castor: {device: 8GiB, host: 64GiB, nvme: /scratch}
    optimizer: adamw_torch
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel, Field, field_validator

from castor.errors import InvalidArgument
from castor.hf import CastorArguments, with_castor


class CastorArgs(BaseModel):
    """The key ``castor`` of axolotl's file: arguments of `castor.torch.wrap`, checked when the file is read."""

    castor: Optional[dict[str, Any]] = Field(default=None, description="arguments of castor.torch.wrap, such as {device: 8GiB}")

    @field_validator("castor")
    @classmethod
    def check(cls, castor: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
        CastorArguments(castor=castor)
        return castor


class CastorPlugin(BasePlugin):
    """Gives axolotl a trainer class made by `castor.hf.with_castor`: for language models, reward models and process reward models."""

    def get_input_args(self) -> str:
        return f"{__name__}.CastorArgs"

    def get_trainer_cls(self, cfg: Any) -> type:
        """The class that axolotl would take, in chunks.

        Raises:
          InvalidArgument: the file has ``rl`` or ``trainer_cls``, whose trainers axolotl makes only where no plugin gives a class.
        """
        for key in ("rl", "trainer_cls"):
            if cfg.get(key):
                raise InvalidArgument(f"axolotl's file has {key}: {cfg.get(key)}, and CastorPlugin gives trainers without it: leave the plugin or {key} away")
        name = "AxolotlRewardTrainer" if cfg.get("reward_model") else "AxolotlPRMTrainer" if cfg.get("process_reward_model") else "AxolotlTrainer"
        made = with_castor(getattr(importlib.import_module("axolotl.core.trainers"), name))
        castor = dict(cfg.get("castor") or {})

        def begin(self: Any, *args: Any, **more: Any) -> None:
            made.__init__(self, *args, **{"castor": castor, **more})

        return type(made.__name__, (made,), {"__init__": begin, "__module__": __name__})
