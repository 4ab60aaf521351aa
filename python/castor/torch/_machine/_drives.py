# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Directories for states, and what they lie on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Optional, Union

from castor.errors import InvalidArgument

_OF_MEMORY = ("tmpfs", "ramfs")


def folders_of(nvme: Union[str, Sequence[str], None]) -> list[str]:
    """The directories for states: all can be written to, and none is host memory, whose budget its states would escape."""
    folders = [] if not nvme else [os.fspath(path) for path in ([nvme] if isinstance(nvme, (str, os.PathLike)) else nvme)]
    for folder in folders:
        if not os.path.isdir(folder):
            raise InvalidArgument(f"nvme is {folder!r}, which is no directory: make it first, on the drive that states may go to")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidArgument(f"nvme is {folder!r}, where this process may not write: give a directory of its own")
        if is_memory(folder):
            raise InvalidArgument(f"nvme is {folder!r}, which is host memory ({file_system_of(folder)}): give a directory on a drive, or a larger host= instead")
    return folders


def is_memory(folder: str) -> bool:
    return file_system_of(folder) in _OF_MEMORY


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> Optional[str]:
    """The name of its file system, such as ``ext4``; None where the system does not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields, separator, behind = line.partition(" - ")
                if separator and fields.split()[2] == wanted:
                    return behind.split()[0]
    except OSError:
        pass
    return None
