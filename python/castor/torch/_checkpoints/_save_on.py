# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A checkpoint, and then the process's end, where a signal asks for the end: preemption, a time limit, a spot machine that goes."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any, Optional, Union

from torch import nn

from castor._interrupts import whole
from castor.errors import FailedPrecondition, InvalidArgument
from castor.torch._checkpoints._state import runtime_of, save
from castor.torch._runtime import Runtime

log = logging.getLogger("castor")

# A batch system signals a launcher and its workers, and the launcher passes the signal on: a worker gets two for one.
_SAME_SIGNAL_S = 1.0

# An exchange takes a tenth of a millisecond on one host and about one over several. Short steps share one; the count is small, since later steps may be
# longer than those that gave it.
_AGREE_S = 0.25
_SHARE_AT_MOST = 8

_now: Optional[SaveOn] = None


class SaveOn:
    """What `save_on` returns. As a context: handlers are as before at its end, and a signal behind the last step is obeyed there."""

    def __init__(self, directory: str, model: nn.Module, signals: tuple[int, ...], extra: Any, keep: int) -> None:
        self._directory, self._extra, self._keep = directory, extra, keep
        self._model = weakref.ref(model)  # a signal handler is no reason for a model to live
        self._process = os.getpid()
        self._closed = False
        self._asked = 0  # the first signal's number
        self._asked_at = 0.0  # in seconds of the monotonic clock
        self._before: dict[int, Any] = {}
        self._steps = 1  # to the next agreement, the same on all ranks
        self._longest_s, self._last = 0.0, time.monotonic()  # of the steps since the last agreement, and the last step's end
        self._hook: Any = None
        self._set_handlers(signals)
        self._hook = runtime_of(model).optimizer.register_step_post_hook(self._after_step)

    def __enter__(self) -> SaveOn:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        try:
            if kind is None and self._hook is not None:
                self._obey()
        finally:
            self.close()

    def close(self) -> None:
        """Gives the signals back to the handlers from before."""
        global _now
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._restore()
        self._closed = True
        if _now is self:
            _now = None

    @whole
    def _set_handlers(self, signals: tuple[int, ...]) -> None:
        for number in signals:
            try:
                before = signal.signal(number, self._note)
            except (OSError, ValueError, TypeError) as error:
                self._restore()
                raise InvalidArgument(f"castor.save_on cannot handle the signal {number!r} ({error}): give signals that a process may handle, such as "
                                      "signal.SIGTERM or signal.SIGUSR1") from error
            self._before.setdefault(number, before)

    @whole
    def _restore(self) -> None:
        """Handlers that a script has set meanwhile stay. A handler from outside Python cannot be set again, and the default takes its place."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        """The handler. The script's own comes first, and where that one raises, nothing is saved."""
        before = self._before[number]
        forked = os.getpid() != self._process
        again = self._asked and time.monotonic() - self._asked_at >= _SAME_SIGNAL_S
        if again or forked or self._closed or self._model() is None:
            if callable(before):
                before(number, frame)
            else:  # whoever has the signal now, a later handler of the script's too, called this one to have the signal obeyed
                signal.signal(number, signal.SIG_DFL if before is None else before)
                os.kill(os.getpid(), number)
        elif not self._asked:
            if callable(before) and before is not signal.default_int_handler:
                before(number, frame)
            self._asked, self._asked_at = number, time.monotonic()

    def _after_step(self, *_: Any) -> None:
        now = time.monotonic()
        self._longest_s, self._last = max(self._longest_s, now - self._last), now
        self._steps -= 1
        if self._steps == 0:
            self._obey()

    def _agree(self, runtime: Runtime) -> int:
        """The signal's number that any rank was asked by, or 0."""
        number, self._steps = self._asked, 1
        if runtime.engine.several:
            share = min(int(_AGREE_S / max(self._longest_s, 1e-9)), _SHARE_AT_MOST)
            self._longest_s = 0.0
            least, self._steps = runtime.engine.least_of_ranks([-number, max(share, 1)])
            number = -least
        return number

    def _obey(self) -> None:
        """Saves and raises SystemExit where any rank was asked to."""
        model = self._model()
        if model is None:
            return
        runtime = runtime_of(model)
        number = self._agree(runtime)
        if not number:
            return
        if self._hook is not None:  # an `extra` may call optimizer.step()
            self._hook.remove()
            self._hook = None
        name = {int(one): one.name for one in signal.Signals}.get(number, f"signal {number}")
        at_0 = runtime.engine.world.rank == 0
        if at_0:
            log.warning("castor: %s came: saving step %d in %s", name, runtime.steps.number, self._directory)
        if self._asked and time.monotonic() - self._asked_at >= _SAME_SIGNAL_S:
            self._restore()  # a second signal ends the library's work on files at once, too
        save(self._directory, model, extra=self._extra() if callable(self._extra) else self._extra, keep=self._keep)
        if at_0:
            log.warning("castor: saved; the process ends with status %d, as %s asked", 128 + number, name)
        raise SystemExit(128 + number)


def save_on(directory: Union[str, os.PathLike[str]], model: nn.Module, *, signals: Iterable[int] = (signal.SIGTERM,), extra: Any = None,
            keep: int = 0) -> SaveOn:
    """From now on, one of the signals on any rank has the run finish its step, save by `castor.save`, and end with status 128 + the signal's number.

    The save comes at the end of `optimizer.step()`, behind post hooks that were registered before. Several ranks agree on the step; where steps are
    shorter than 0.25 s, up to eight share an agreement. A signal while no step is under way waits for the end of the next one. The same signal within
    a second counts as one, since launchers pass signals on; a later second signal ends the process as without Castor. A script's own handler is
    called before; where the handler raises, nothing is saved. A further call for the same model takes the place of the earlier one. All ranks call
    `save_on`, in the main thread.

    Args:
      directory: where `castor.save` writes.
      model: as `castor.wrap` returned it.
      signals: numbers of signals; with signal.SIGINT, Ctrl-C saves too.
      extra: as of `castor.save`; a callable is called on all ranks when the step is over, for the data position then. A second model is saved
        there by a `castor.save` of its own.
      keep: checkpoints that stay in the directory; 0: all.

    Raises:
      InvalidArgument: another thread than the main one calls, or a signal cannot be handled.
      FailedPrecondition: the model is not wrapped, or `save_on` is on for another model.
      SystemExit: by `optimizer.step()`, and by the end of the context, when all ranks have saved.
    """
    global _now
    runtime_of(model)
    numbers = tuple(signals)
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument("castor.save_on was called in another thread than the main one, which alone can handle signals: call it in the main thread")
    if not numbers:
        raise InvalidArgument("castor.save_on was given no signals: give at least one, such as signal.SIGTERM")
    if _now is not None:
        other = _now._model()
        if other is not None and other is not model and _now._hook is not None:
            raise FailedPrecondition("castor.save_on is on for another model, whose save ends the process: save this one in extra= of that call, or end that "
                                     "one by close()")
        _now.close()
    _now = SaveOn(os.fspath(directory), model, numbers, extra, keep)
    return _now
