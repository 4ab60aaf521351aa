# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Signal handlers of a script are called between two states of Castor's, all of them, and scripts see the handlers that they set."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from castor._engine import OneHost, World
from castor._interrupts import defer_handlers, raises_outside, uninterrupted, whole

said: list[str] = []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    said.clear()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    defer_handlers()
    yield
    signal.signal(signal.SIGINT, before)
    assert sys.gettrace() is None


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)
    said.append("went on")


@whole
def inner() -> int:
    ctrl_c()
    return 1


@whole
def outer() -> int:
    ctrl_c()
    said.append(f"inner gave {inner()}")
    return 2


def test_a_handler_waits_for_the_outermost_whole_function() -> None:
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            said.append(f"outer gave {outer()}")
        assert said == ["went on", "went on", "inner gave 1"]
        said.clear()
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    assert not said


def test_an_exception_of_the_function_gives_way_to_the_handlers() -> None:
    @whole
    def fails() -> None:
        ctrl_c()
        raise ValueError("of its own")

    with pytest.raises(KeyboardInterrupt):
        fails()


class Entered:
    @raises_outside
    def __enter__(self) -> None:
        ctrl_c()

    def __exit__(self, *_: Any) -> None:
        said.append("left")


class Finalized:
    @raises_outside
    def __del__(self) -> None:
        ctrl_c()


def test_what_is_entered_is_left() -> None:
    with pytest.raises(KeyboardInterrupt), Entered():
        said.append("inside")
    assert said == ["went on", "left"]


def test_a_finalizer_swallows_nothing() -> None:
    def drop() -> None:
        one = Finalized()
        del one
        said.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        drop()
    assert said == ["went on"]


def test_a_block_is_left_whole() -> None:
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            with uninterrupted():
                ctrl_c()
            said.append("inner block over")
            outer()
        said.append("outer block over")
    assert said == ["went on", "inner block over", "went on", "went on", "inner gave 1"]
    with pytest.raises(ValueError, match="inside"), uninterrupted():
        raise ValueError("inside")
    with uninterrupted():
        said.append("no interrupt is left")


def test_handlers_that_raise_nothing_are_called_once_each() -> None:
    calls: list[tuple[int, str]] = []

    def note(number: int, frame: Any) -> None:
        calls.append((number, frame.f_code.co_name))

    @whole
    def two() -> str:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            signal.raise_signal(number)
        assert not calls
        return "done"

    before = [signal.signal(number, note) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    try:
        assert two() == "done"
        assert calls == [(signal.SIGUSR1, "two"), (signal.SIGUSR2, "two")]
    finally:
        assert [signal.signal(number, handler) for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), before)] == [note, note]


def test_scripts_see_their_own_handlers() -> None:
    def own(*_: Any) -> None:
        """Nothing."""

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.signal(signal.SIGINT, own) is signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is own
    assert signal.signal(signal.SIGINT, signal.SIG_IGN) is own
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    with pytest.raises(TypeError):
        signal.signal(signal.SIGINT, "a word")  # type: ignore[arg-type]


def test_other_threads_hear_nothing() -> None:
    def other() -> Any:
        with uninterrupted():
            defer_handlers()
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(other).result() is signal.default_int_handler


@pytest.mark.parametrize("own", [False, True])
def test_a_wait_for_other_ranks_ends(own: bool) -> None:
    class Stop(BaseException):
        """Of a script's own."""

    def stop(*_: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop if own else signal.default_int_handler)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Stop if own else KeyboardInterrupt):
            World(timeout_s=60, meeting=OneHost(0, 2, f"castortest{time.time_ns()}"))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin < 10
