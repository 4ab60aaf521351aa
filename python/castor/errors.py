# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Errors of Castor as Python exceptions, one class for each kind."""

from __future__ import annotations

import re
from typing import NamedTuple


class CastorError(Exception):
    """What every error of Castor is; its text says what happened, why, and what to do."""


class InternalError(CastorError):
    """A defect of Castor."""


class InvalidArgument(CastorError, ValueError):
    """What was asked for has no meaning."""


class BudgetRaise(NamedTuple):
    """Bytes by which budgets are raised, all of them together; 0: as it was."""

    device: int
    host: int
    nvme: int  # from nothing, where there is no NVMe folder


_RAISE = r"the \w+ (?:budget|size) by [0-9.]+ \w+"
_CHANGES = re.compile(rf"raise (?:both|all three), {_RAISE}(?:, {_RAISE})? and {_RAISE}|raise {_RAISE}|give an NVMe directory with [0-9.]+ \w+")


class DoesNotFit(CastorError, MemoryError):
    """The budgets cannot serve what was asked for.

    ``changes`` lists the smallest changes that would do, as the text names them: ``["raise the device budget by 2 MiB"]``. ``raises`` has those that raise
    budgets as numbers, each of them enough by itself.
    """

    raises: tuple[BudgetRaise, ...] = ()

    @property
    def changes(self) -> list[str]:
        return _CHANGES.findall(str(self))


class Malformed(CastorError, ValueError):
    """A file or text that was read is broken."""


class Unavailable(CastorError):
    """This machine lacks something."""


class StoppedEarly(CastorError):
    """Only a partial result was reached."""


class TierFull(CastorError, MemoryError):
    """There is no room now."""


class IoError(CastorError, OSError):
    """The system refused a transfer."""


class DataLoss(CastorError):
    """Bytes came back changed."""


class Aborted(CastorError):
    """Another failure ended this: often that of another rank."""


class FailedPrecondition(CastorError, RuntimeError):
    """A call out of order."""


# By castor_code.
BY_CODE: dict[int, type[CastorError]] = {
    1: InternalError,
    2: InvalidArgument,
    3: DoesNotFit,
    4: Malformed,
    5: Unavailable,
    6: StoppedEarly,
    7: TierFull,
    8: IoError,
    9: DataLoss,
    10: Aborted,
    11: FailedPrecondition,
}


def code_of(error: BaseException) -> int:
    """The castor_code that stands for an exception which a callback raised."""
    for code, kind in BY_CODE.items():
        if isinstance(error, kind):
            return code
    return 1
