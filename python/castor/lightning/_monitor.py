# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A callback of Lightning that logs what Castor did."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from castor.torch._counts import Counts


class CastorMonitor(Callback):
    """Logs peaks, waits and moved bytes of rank 0 to all loggers of the trainer, every ``log_every_n_steps`` steps.

    Names are ``castor_stall_s``, ``castor_device_peak_bytes`` and others, which docs/pytorch.md lists. A trainer with another strategy logs none of them.
    """

    def __init__(self) -> None:
        self._counts = Counts()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        # As Lightning decides of what `LightningModule.log` is told; `log` itself would round bytes to float32.
        if not trainer.loggers or not trainer._logger_connector.should_update_logs or trainer.fit_loop._should_accumulate():
            return
        found = self._counts.since_last(pl_module)
        if found:
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.fit_loop.epoch_loop._batches_that_stepped)
