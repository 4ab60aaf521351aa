# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Signs of life of ranks on several hosts, by torch's store: whom an error of gloo's is about, since gloo names sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

log = logging.getLogger("castor")

_BEAT_S = 1.0
_HASTE_S = 0.2  # between beats while a failure is looked into
_SILENT_S = 3.0  # without a sign: three beats
_ANSWER_S = 2.0  # for one request of the store
_LINGER_S = 1.0  # for which rank 0, whose process may serve the store, leaves its findings there
_MOST_NAMED = 8
_RANKS = re.compile(r"\branks? (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)")


@dataclasses.dataclass
class _Sign:
    """What a rank said last. `seen`: when this process saw that the rank's beat had changed, by time.monotonic."""

    beat: int = -1
    host: str = ""
    call: int = 0
    kind: str = ""  # of the call; empty before the first one
    inside: bool = False  # the call
    left: str = ""  # why the rank leaves
    lost: str = ""  # whom the rank misses
    seen: float = 0.0

    def words(self) -> str:
        return json.dumps([self.beat, self.host, self.call, self.kind, self.inside, self.left, self.lost])


def _numbers(listed: str) -> Iterator[int]:
    """The ranks of a list such as ``1-3, 5 and 7``."""
    for run in re.split(r", | and ", listed):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


class Presence:
    """One rank's signs of life, and those that the others give. One daemon thread uses the store; no other method waits for the store.

    The store is a clone with a connection of its own, since a blocking call keeps a client's connection to itself.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        """`store`: with a prefix that is new for each world. Raises what the store raises where it is gone already."""
        self._rank, self._pid = rank, os.getpid()
        self._lock = threading.Lock()
        now = time.monotonic()
        self._signs = [_Sign(seen=now) for _ in range(size)]
        self._mine = _Sign(beat=0, host=socket.gethostname())
        self._heard = now  # when the store answered last
        self._failed = ""  # why the store does not
        self._over = False
        self._hasty_until = now
        self._explained = ("", "")  # the last words, and what they became
        self._wake, self._beaten = threading.Event(), threading.Condition(self._lock)
        self._store: Any = store.clone()
        self._store.set_timeout(datetime.timedelta(seconds=_ANSWER_S))
        self._keys = [f"sign {other}" for other in range(size)]
        self._store.set(self._keys[rank], self._mine.words())
        self._thread = threading.Thread(target=self._beat, name="castor presence", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def calling(self, kind: str) -> Iterator[None]:
        """While this rank makes a call, which all ranks count alike."""
        self._mine.call, self._mine.kind, self._mine.inside = self._mine.call + 1, kind, True
        try:
            yield
        finally:
            self._mine.inside = False

    def _beat(self) -> None:
        while True:
            with self._lock:
                self._mine.beat += 1
                said = self._mine.words()
            try:
                self._store.set(self._keys[self._rank], said)
                # The store would wait for the keys of ranks that have not come yet.
                come = [other for other, sign in enumerate(self._signs) if sign.host or self._store.check([self._keys[other]])]
                heard = {other: json.loads(words) for other, words in zip(come, self._store.multi_get([self._keys[other] for other in come]))}
            except Exception as error:  # torch raises its own classes, and RuntimeError before
                failed = (str(error) or type(error).__name__).splitlines()[0]
                log.debug("castor: the store does not answer: %s", failed)
                with self._lock:
                    self._failed = "" if "timeout" in failed else failed  # a slow store may answer the next time
                    self._beaten.notify_all()
            else:
                self._note(heard)
            if self._over:
                return
            self._wake.wait(_HASTE_S if time.monotonic() < self._hasty_until else _BEAT_S)
            self._wake.clear()

    def _note(self, heard: dict[int, Any]) -> None:
        with self._lock:
            self._heard, self._failed = time.monotonic(), ""
            for other, (beat, *rest) in heard.items():
                if beat != self._signs[other].beat:
                    self._signs[other] = _Sign(beat, *rest, seen=self._heard)
            self._beaten.notify_all()

    def _hurry(self) -> None:
        self._hasty_until = time.monotonic() + 2 * _SILENT_S
        self._wake.set()

    def _await_beat(self, until: float) -> None:
        """Returns when the store has been asked once more, or at `until`."""
        with self._lock:
            self._beaten.wait(max(0.0, until - time.monotonic()))

    def _place(self, other: int) -> str:
        host = self._signs[other].host
        return f"rank {other} on host {host}" if host else f"rank {other}"

    def _last(self, sign: _Sign) -> str:
        return f"its last sign was {'in' if sign.inside else 'after'} call {sign.call}, {sign.kind}" if sign.kind else "its last sign was before its first call"

    def _findings(self, silent_s: float) -> list[str]:
        """Of the ranks that are gone. REQUIRES: the lock."""
        silent_ones, left = [], []
        for other, sign in enumerate(self._signs):
            if other == self._rank:
                continue
            silent = self._heard - sign.seen
            if sign.left and sign.lost:
                continue  # the rank left because of another one
            if sign.left:
                left.append(f"{self._place(other)} has left: {sign.left}")
            elif silent >= silent_s:
                silence = f"{time.monotonic() - sign.seen:.0f} s ({self._last(sign)})"
                silent_ones.append(f"{self._place(other)} has not answered for {silence}: the rank died, hangs, or its host is cut off")
        return silent_ones + left

    def _told(self) -> list[str]:
        """What other ranks have found, whose last words the store has. REQUIRES: the lock."""
        return [f"{self._place(other)} says: {sign.lost}" for other, sign in enumerate(self._signs) if other != self._rank and sign.lost][:1]

    def _store_is_gone(self) -> list[str]:
        """REQUIRES: the lock."""
        waited = time.monotonic() - self._heard
        if not (self._failed or waited >= _SILENT_S):
            return []
        why = f"is gone ({self._failed})" if self._failed else f"has not answered for {waited:.0f} s"
        if self._rank == 0:
            return [f"the store of torch.distributed, which the launcher serves, {why}: the launcher ended or hangs"]
        return [f"{self._place(0)} is not reachable: the store of torch.distributed there {why}; {self._last(self._signs[0])}. The process died "
                "or hangs, or a host is cut off"]

    def _apart(self) -> list[str]:
        """The ranks that answer, and are not in this rank's call. REQUIRES: the lock."""
        mine = self._mine
        return [f"{self._place(other)} answers, and {self._last(sign)}, where this rank is in call {mine.call}, {mine.kind}"
                for other, sign in enumerate(self._signs) if other != self._rank and (sign.call, sign.inside) != (mine.call, True)]

    def explain(self, failed: str, until: float) -> str:
        """Who is gone, where a call `failed`; waits till the signs show the ranks, and not beyond `until`, of time.monotonic."""
        if os.getpid() != self._pid:
            return failed  # a fork has no thread that listens
        self._hurry()
        found: list[str] = []
        while not found and time.monotonic() < until:
            self._await_beat(until)
            with self._lock:
                gone = self._store_is_gone()
                # Rank 0 may have ended since, by the same failure.
                found = self._findings(2 * _BEAT_S if gone else _SILENT_S) or self._told() or gone
        with self._lock:
            found = found or self._findings(2 * _BEAT_S)
            self._mine.lost = "; ".join(found[:_MOST_NAMED])
            names = "; ".join((found or self._apart())[:_MOST_NAMED]) or "all ranks answer, so the network between two hosts is cut or slow"
        self._wake.set()
        return f"{names}. Read the output of the named ranks ({failed})"

    def meet(self) -> None:
        """Hears where the other ranks are. REQUIRES: all have made their presence."""
        until = time.monotonic() + _ANSWER_S
        self._hurry()
        while not all(sign.host for sign in self._signs) and time.monotonic() < until:
            self._await_beat(until)

    def linger(self) -> None:
        """Rank 0 leaves others the time to read what it found, before its process ends and the store with it."""
        if self._rank == 0:
            time.sleep(_LINGER_S)

    def with_hosts(self, words: str) -> str:
        """An error's words, with the hosts of the ranks that the words name, and why these ranks left."""
        if os.getpid() != self._pid:
            return words
        named = sorted({other for listed in _RANKS.findall(words) for other in _numbers(listed) if other != self._rank and other < len(self._signs)})
        named = [other for other in named if f"rank {other} on host" not in words][:_MOST_NAMED]
        if not named:
            return words
        if self._explained[0] == words:
            return self._explained[1]
        self._hurry()
        self._await_beat(time.monotonic() + 1)
        with self._lock:
            places = [f"rank {other} is on host {sign.host}" + (f", {sign.left}" if sign.left else "")
                      for other, sign in ((other, self._signs[other]) for other in named) if sign.host]
        self._explained = words, f"{words} ({'; '.join(places)})" if places else words
        return self._explained[1]

    def leave(self, why: str) -> None:
        """Says on the store why this rank ends."""
        with self._lock:
            self._mine.left = why
        self._hurry()
        self._await_beat(time.monotonic() + 1)

    def stop(self) -> None:
        """Ends the thread; one that waits for a store which hangs stays, and does not keep the process."""
        self._over = True
        self._wake.set()
        self._thread.join(_ANSWER_S + 0.5)
        if not self._thread.is_alive():
            self._store = None  # closes the connection
