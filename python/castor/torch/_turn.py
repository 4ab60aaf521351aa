# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""One forward, backward or step of a model at a time, whichever threads ask."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Optional

from castor._engine import is_in_callback
from castor._interrupts import ends_waits, raises_outside
from castor.errors import FailedPrecondition

_LOOK = 0.02  # seconds, after which a thread that waits looks whether the holder is still there


def levels_to(frame: Optional[FrameType]) -> int:
    """How many calls above its caller's a frame of this thread is; 0: it is none."""
    levels, one = 0, sys._getframe(1)
    while one is not None and one is not frame:
        levels, one = levels + 1, one.f_back  # type: ignore[assignment]
    return 0 if one is None else levels


class Turn:
    """A lock that belongs to a frame. An exception that no hook hears of, as Ctrl-C's, may end the frame: then the lock is anybody's.

    Other threads wait. A frame that the holder's calls has the turn too.
    """

    def __init__(self, on_taken: Callable[[], None]) -> None:
        """`on_taken`: called behind each successful `take`."""
        self._on_taken = on_taken
        self._lock = threading.Lock()
        self._transfer = threading.Lock()
        self.frame: Optional[FrameType] = None  # of the holder
        self.thread = 0  # of that frame

    def lives(self) -> bool:
        """Whether the holder is under way, in whichever thread."""
        held = self.frame
        if held is None:
            return True  # it has taken the lock just now
        # To walk another thread's calls while that thread runs ends by signal 11 in Python 3.11. A frame that is under way refuses to be cleared.
        try:
            held.clear()
        except RuntimeError:
            return True
        return False

    def take(self, frame: FrameType, thread: int = 0) -> bool:
        """Whether the frame has the turn from now on, until `give`. False: a frame that the caller serves has the turn.

        `thread`: of the frame; 0: this one.
        """
        thread = thread or threading.get_ident()
        wait = 0.0
        while not self._lock.acquire(wait > 0, wait or -1):
            with self._transfer:  # two that wait would both find the holder gone
                if not self.lives():
                    self.frame, self.thread = frame, thread
                    break
            if self.thread == thread or is_in_callback():
                return False  # the holder waits for the callback, whose calls of the engine tell what they are
            if ends_waits():
                raise FailedPrecondition("another thread computes with this model")
            wait = _LOOK
        else:
            self.frame, self.thread = frame, thread
        self._on_taken()
        return True

    def give(self, frame: FrameType) -> None:
        """Nothing is done where another frame has the turn."""
        if self.frame is frame:
            self.frame, self.thread = None, 0
            self._lock.release()

    @raises_outside
    def __enter__(self) -> None:
        self.take(sys._getframe(1))

    @raises_outside
    def __exit__(self, *_: Any) -> None:
        self.give(sys._getframe(1))
