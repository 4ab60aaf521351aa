# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Errors of Castor as Python exceptions, one class for each kind."""

from __future__ import annotations

import re


class CastorError(Exception):
    """What every error of Castor is; its text says what happened, why, and what to do."""


class InternalError(CastorError):
    """A defect of Castor."""


class InvalidArgument(CastorError, ValueError):
    """What was asked for has no meaning."""


class DoesNotFit(CastorError, MemoryError):
    """The budgets cannot serve what was asked for.

    ``changes`` lists the smallest changes that would do, as the text names them: ``["raise the device budget by 2 MiB"]``.
    """

    @property
    def changes(self) -> list[str]:
        return re.findall(
            r"(?:raise both, the device budget by [^;:]+? and the host budget by|raise the \w+ (?:budget|size) by|give an NVMe directory with)"
            r" [^,;:()]+[^,;:() ]",
            str(self),
        )


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
