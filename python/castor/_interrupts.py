# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ctrl-C while Castor waits, and while what must stay together is done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import signal
import threading
from typing import Any

from castor import _abi
from castor._abi import lib

_interrupted = threading.Event()
_told_later = threading.Event()  # a Ctrl-C that the end of an `uninterrupted` raises


@_abi.Interrupt
def _interrupt(_context: Any) -> int:
    """Ctrl-C ends a wait: Python notes the signal, and looks at it once the call is back."""
    return 1 if _interrupted.is_set() else 0


class interruptible:
    """A context of a long wait that Ctrl-C ends. Elsewhere than on the main thread, and with other handlers, nothing changes.

    Each step enters it, so it asks for handlers as C does: the signal module looks for an enum's member in each of them, which takes longer than the rest.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Any = None
        if threading.get_ident() == threading.main_thread().ident:
            handler = _signal.getsignal(signal.SIGINT)
            if handler is signal.default_int_handler or handler is _note_for_later:
                self._before = _signal.signal(signal.SIGINT, _note_interrupt)

    def __exit__(self, *_: Any) -> None:
        if self._before is None:
            return
        _signal.signal(signal.SIGINT, self._before)
        if _interrupted.is_set():
            _interrupted.clear()
            if self._before is not _note_for_later:
                raise KeyboardInterrupt
            _told_later.set()


class uninterrupted:
    """A context that Ctrl-C raises at the end of: an engine's call and what Python notes of it stay together. Waits inside end as elsewhere."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Any = None
        if threading.get_ident() == threading.main_thread().ident and _signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = _signal.signal(signal.SIGINT, _note_for_later)

    def __exit__(self, *_: Any) -> None:
        if self._before is None:
            return
        _signal.signal(signal.SIGINT, self._before)
        if _told_later.is_set():
            _told_later.clear()
            raise KeyboardInterrupt


def _note_interrupt(*_: Any) -> None:
    _interrupted.set()


def _note_for_later(*_: Any) -> None:
    _told_later.set()


lib.castor_set_interrupt(ctypes.cast(_interrupt, ctypes.c_void_p), None)
