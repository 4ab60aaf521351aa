# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor did between two lines of a trainer's log, under names that logs show."""

from __future__ import annotations

from typing import Any

_PEAKS = {"castor_device_peak_bytes": "device_peak_bytes", "castor_host_peak_bytes": "host_peak_bytes"}
_MOVED = {"castor_host_to_device_bytes": "host_to_device_bytes", "castor_device_to_host_bytes": "device_to_host_bytes"}
_ON_DRIVES = {"castor_nvme_read_bytes": "nvme_read_bytes", "castor_nvme_written_bytes": "nvme_written_bytes"}
_AMONG_RANKS = {"castor_sent_to_ranks_bytes": "wire_sent_bytes"}


class Counts:
    """Of one rank. Reading takes microseconds, and no other rank takes part."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since_last(self, model: Any) -> dict[str, float]:
        """Peaks of the run so far, and seconds and bytes since the last call; empty where the model is not wrapped.

        Drives and other ranks have entries where there are any.
        """
        runtime = getattr(model, "_castor", None)
        if runtime is None:
            return {}
        now = runtime.engine.stats()
        moved = _MOVED | (_ON_DRIVES if runtime.opening.folders else {}) | (_AMONG_RANKS if runtime.engine.several else {})
        counted = ("stall_ns", *moved.values())
        if any(now[name] < self._before.get(name, 0) for name in counted):
            self._before = {}  # another engine, as after a parameter was thawed, counts from zero
        logs: dict[str, float] = {"castor_stall_s": (now["stall_ns"] - self._before.get("stall_ns", 0)) / 1e9}
        logs |= {shown: now[name] for shown, name in _PEAKS.items()}
        logs |= {shown: now[name] - self._before.get(name, 0) for shown, name in moved.items()}
        self._before = {name: now[name] for name in counted}
        return logs
