# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The script's signal handlers, called between two states of Castor's and never inside a change from one to the other.

Python calls a handler between any two instructions of the main thread, and a handler may raise, as that of Ctrl-C does. A handler that comes inside a
function marked `whole`, or inside a block of `uninterrupted`, is called when the outermost of these ends. A handler that comes while the library waits, for
other ranks as a rule, is called at once, and an exception of the handler's ends the wait. Marks cost nothing until a signal comes: the handler itself looks
at the frames that are under way, and has Python's tracing watch the end of one.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ctypes
import functools
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, Optional, TypeVar

from castor import _abi
from castor._abi import lib

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MAIN = threading.main_thread().ident
_whole: set[CodeType] = set()
_outside: set[CodeType] = {weakref.finalize.__call__.__code__}
_blocks: list[FrameType] = []  # which have a block of `uninterrupted` under way, the innermost last
_waiting: deque[tuple[Callable[..., Any], int]] = deque()  # handlers with their signals
_raised: deque[BaseException] = deque()  # by handlers that were called while the library waited


def whole(function: _Function) -> _Function:
    """A handler that comes inside is called when the function returns."""
    _whole.add(function.__code__)
    return function


def raises_outside(function: _Function) -> _Function:
    """A handler that comes inside is called at the caller's next instruction. An exception in a finalizer is lost, and one in an ``__enter__`` skips the
    ``__exit__``."""
    _outside.add(function.__code__)
    return function


class uninterrupted:
    """A context that handlers treat as a `whole` function: an engine's call and what Python notes of the call stay together."""

    __slots__ = ()

    @raises_outside
    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            _blocks.append(sys._getframe(1))

    @raises_outside
    def __exit__(self, *_: Any) -> None:
        if threading.get_ident() == _MAIN:
            _blocks.pop()
            if (_waiting or _raised) and _end_of(sys._getframe(1)) is None:
                _call_those(sys._getframe(1))


class _End(NamedTuple):
    """Where a handler may be called."""

    frame: FrameType
    when: str  # "return" of the frame, "opcode": its next instruction, or "block": at the end of its block
    waits: bool  # the library does, and asks whether to go on


def _end_of(frame: Optional[FrameType]) -> Optional[_End]:
    """`frame`: of the instruction that a signal came before. None: a handler may be called now."""
    end: Optional[_End] = None
    waits = False
    while frame is not None:
        code, caller = frame.f_code, frame.f_back
        if frame in _blocks:
            end = _End(frame, "block", waits)
        elif code in _whole:
            end = _End(frame, "return", waits)
        elif caller is not None and code is _interrupt_code:
            waits = True
            end = _End(caller, "return", True)
        elif caller is not None and code in _outside:
            end = _End(caller, "opcode", waits)
        frame = caller
    return end


class _Watch:
    """Python's tracing of one frame, until handlers are called at its end. A debugger's tracing ends where a handler raises, as Python ends any."""

    def __init__(self, end: _End) -> None:
        frame = self.frame = end.frame
        self._when = end.when
        self._before = sys.gettrace(), frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes
        frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = self, False, end.when == "opcode"
        sys.settrace(_of_no_other)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        global _watch
        if event in ("return", self._when):
            _watch = None
            others, frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = self._before
            sys.settrace(others)
            _call_those(frame)
        return self


_watch: Optional[_Watch] = None


def _of_no_other(*_: Any) -> None:
    """Frames that begin meanwhile are not watched."""


def _call_those(frame: FrameType) -> None:
    while _waiting:
        handler, number = _waiting.popleft()
        try:
            handler(number, frame)
        except BaseException as error:  # raised below, when all have been called
            _raised.append(error)
    if _raised:
        first = _raised.popleft()
        _raised.clear()
        try:
            raise first
        finally:
            del first  # whose traceback has this frame: both would live on, and tensors of the frames with them


class _Deferred:
    """A script's handler, as the interpreter has it."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Optional[FrameType]) -> Any:
        global _watch
        end = _end_of(frame)
        if end is None:
            return self.handler(number, frame)
        if end.waits:
            try:
                return self.handler(number, frame)
            except BaseException as error:
                _raised.append(error)
        elif (self.handler, number) not in _waiting:
            _waiting.append((self.handler, number))
        if end.when != "block" and (_watch is None or _watch.frame is not end.frame):
            _watch = _Watch(end)
        return None


@functools.wraps(signal.signal)
def _set(number: Any, handler: Any) -> Any:
    before = _plain_set(number, _Deferred(handler) if callable(handler) else handler)
    return before.handler if type(before) is _Deferred else before


@functools.wraps(signal.getsignal)
def _get(number: Any) -> Any:
    found = _plain_get(number)
    return found.handler if type(found) is _Deferred else found


_plain_set, _plain_get = signal.signal, signal.getsignal


def defer_handlers() -> None:
    """To be called ahead of a step and of a long wait: notebooks set the handler of Ctrl-C anew for each cell. Scripts see their own handlers."""
    if threading.get_ident() != _MAIN or type(_signal.getsignal(signal.SIGINT)) is _Deferred:
        return
    signal.signal, signal.getsignal = _set, _get
    for number in signal.valid_signals():
        handler = _signal.getsignal(number)
        if callable(handler) and type(handler) is not _Deferred:
            _signal.signal(number, _Deferred(handler))


def ends_waits() -> bool:
    """Whether a wait of this thread's is to end."""
    return threading.get_ident() == _MAIN and (bool(_raised) or any(handler is signal.default_int_handler for handler, _ in _waiting))


def _interrupt(_context: Any) -> int:
    return int(ends_waits())


_interrupt_code = _interrupt.__code__
_told = _abi.Interrupt(_interrupt)
lib.castor_set_interrupt(ctypes.cast(_told, ctypes.c_void_p), None)
