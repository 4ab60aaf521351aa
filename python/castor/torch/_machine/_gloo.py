# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Calls of ranks of several hosts, by a gloo group that torch.distributed does not know of."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import logging
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.distributed as dist

from castor import _abi
from castor.errors import Unavailable
from castor.torch import _torch_internals
from castor.torch._machine._presence import Presence

log = logging.getLogger("castor")

_LOOK_S = 3.5  # for which a failed call's ranks are looked for
# The C ABI ends a call that lasts two seconds longer than the timeout, in words that name no rank.
_SLACK_S = 1.5
_NAMELESS = "a call of the host's collectives has not ended"


def _flat(address: int, size: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8, device="cpu")


def _short(error: Exception) -> str:
    """The first sentence of gloo's words, without the file and line of its source that they begin with."""
    return re.sub(r"^\[\S*\] ", "", str(error).splitlines()[0]).split(". ")[0]


class Gloo:
    """What the C ABI's callbacks ask of a process group. One thread calls all but `abort`.

    The group is of no table of torch's, so a script's destroy_process_group leaves it connected.
    """

    def __init__(self, name: str, timeout_s: float) -> None:
        """`name`: new for each group, and the same on all ranks. Raises Unavailable, which names the ranks that do not come."""
        # The server of the store lives on rank 0 as long as the store.
        self._store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._timeout_s = timeout_s
        self._calling = threading.Lock()
        self._presence = self._present()
        try:
            with self._call("connection"):
                self._group: Any = _torch_internals.gloo_group(self._store, self.rank, self.size, datetime.timedelta(seconds=timeout_s))
        except Exception:
            self.close()
            raise
        if self._presence is not None:
            self._presence.meet()
        _abi.tellers.append(self.tell)

    def _present(self) -> Optional[Presence]:
        if not hasattr(self._store, "clone"):
            log.warning("castor: the store of this torch cannot be cloned, so an error of gloo's names no rank: a newer torch names it")
            return None
        return Presence(self._store, self.rank, self.size)

    @contextlib.contextmanager
    def _call(self, kind: str) -> Iterator[None]:
        """A call of gloo's, whose failure names ranks. Raises Unavailable."""
        begun = time.monotonic()
        with self._calling, self._presence.calling(kind) if self._presence else contextlib.nullcontext():
            try:
                yield
            except RuntimeError as error:
                if self._presence is None:
                    raise
                now = time.monotonic()
                words = self._presence.explain(_short(error), max(now + 0.5, min(now + _LOOK_S, begun + self._timeout_s + _SLACK_S)))
                self._presence.linger()
                raise Unavailable(words) from error

    def all_gather(self, send: int, recv: int, size: int) -> None:
        mine, all_of_them = _flat(send, size), _flat(recv, size * self.size)
        with self._call("all-gather"):
            _torch_internals.gloo_all_gather(self._group, all_of_them, mine).wait()

    def all_to_all(self, send: int, sizes: list[int], recv: int, comes: list[int]) -> None:
        there, here = _flat(send, sum(sizes)), _flat(recv, sum(comes))
        with self._call("all-to-all"):
            self._group.alltoall_base(here, there, comes, sizes).wait()

    def barrier(self) -> None:
        with self._call("barrier"):
            self._group.barrier().wait()

    def abort(self, why: str) -> None:
        """A call that waits ends by gloo's own timeout, or when its peers have gone."""

    def tell(self, words: str) -> str:
        """An error's words with the ranks and hosts that the words are about."""
        if self._presence is None:
            return words
        if _NAMELESS in words:
            return self._presence.explain(words, time.monotonic() + _SLACK_S)
        return self._presence.with_hosts(words)

    def leave(self, why: str) -> None:
        """Before the rank's process ends: others are told `why`."""
        if self._presence is not None:
            self._presence.leave(why)

    def hold(self) -> None:
        """Waits a while for the call under way, and lets no other one begin."""
        self._calling.acquire(timeout=5)

    def close(self) -> None:
        """Ends the group's threads."""
        if self.tell in _abi.tellers:
            _abi.tellers.remove(self.tell)
        if self._presence is not None:
            self._presence.stop()
        self._group = None
