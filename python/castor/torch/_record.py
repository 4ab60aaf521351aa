# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Records of what training does to memory, for ``castor report``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Optional, Union

from castor._engine import World
from castor.errors import FailedPrecondition


class _Recording:
    def __init__(self, path: str, first_step: int, last_step: int, every: int) -> None:
        self.path, self.first_step, self.last_step, self.every = path, first_step, last_step, every
        self.worlds: list[World] = []


_now: Optional[_Recording] = None


def records() -> bool:
    return _now is not None


@contextlib.contextmanager
def record(path: Union[str, os.PathLike[str]], *, first_step: int = 0, last_step: int = 0, every: int = 1) -> Iterator[None]:
    """Models that are wrapped inside are recorded to a file, to the end of the context, for ``castor report path``.

    Of several ranks each writes ``path.RANK``, and ``castor report path`` takes them together; a second model's file has ``.2`` before that. What the file has before the end can be read.

    Args:
      first_step: 0: what comes before the first step too.
      last_step: 0: to the end.
      every: of these steps every second, third and so on, for long runs. 1: all.
    """
    global _now
    if _now is not None:
        raise FailedPrecondition(f"{_now.path} is being recorded: end that before")
    _now = _Recording(os.fspath(path), first_step, last_step, every)
    try:
        yield
    finally:
        begun, _now = _now, None
        for world in begun.worlds:
            world.end_record()


def check() -> None:
    """Before a micro-batch of any wrapped model: FailedPrecondition where a record is open that would stay empty."""
    if _now is not None and not _now.worlds:
        raise FailedPrecondition(
            "castor.record is around steps of a model that was wrapped before it, and would record nothing: put castor.wrap inside castor.record, and choose "
            "steps by first_step= and last_step="
        )


def begin(world: World) -> None:
    """Records a world that was made inside `record`."""
    if _now is None:
        return
    number = len(_now.worlds) + 1
    path = _now.path + (f".{number}" if number > 1 else "") + (f".{world.rank}" if world.size > 1 else "")
    world.record(path, _now.first_step, _now.last_step, _now.every)
    _now.worlds.append(world)


def forget(world: World) -> None:
    """After a wrap that was refused: the next wrap's record takes the name."""
    if _now is not None and world in _now.worlds:
        _now.worlds.remove(world)
        world.end_record()
