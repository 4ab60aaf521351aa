# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re
from typing import Union

from castor.errors import InvalidArgument

Size = Union[int, str]

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_size(size: Size, what: str = "a size") -> int:
    """Bytes of a number, or of a text such as ``"8GiB"`` or ``"1.5 MiB"``.

    Raises:
      InvalidArgument: it is neither, or not positive.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(size))
        unit = match and _UNITS.get(match[2] or "B")
        if not unit:
            raise InvalidArgument(f"{what} is {size!r}: give bytes, or a text with a unit of {', '.join(_UNITS)}, such as '8GiB'")
        found = int(float(match[1]) * unit)
    if found <= 0:
        raise InvalidArgument(f"{what} is {size!r}: give more than 0 bytes")
    return found


def format_size(size: int) -> str:
    """``"1.50 GiB"``, with the largest unit that leaves at least 1."""
    for unit, factor in reversed(_UNITS.items()):
        if size >= factor and factor > 1:
            return f"{size / factor:.2f} {unit}"
    return f"{size} B"
