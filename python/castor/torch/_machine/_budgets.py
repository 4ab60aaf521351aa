# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How much memory there is to be had, and how much a model's states take."""

from __future__ import annotations

import logging
import os
from typing import Optional, Union

from castor.errors import DoesNotFit, InvalidArgument
from castor.sizes import format_size, parse_size
from castor.torch._machine._device import Gpu

Budget = Union[int, str]

log = logging.getLogger("castor")
_LEAST = 256  # bytes of a budget that somebody may mean


def available_memory() -> int:
    """Bytes of this machine's memory that programs may still take, within this process's control group."""
    free = 0
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(limit) as most, open(used) as now:
                free = min(free, int(most.read()) - int(now.read()))
        except (OSError, ValueError):
            continue
    return max(free, 1 << 20)


def installed_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _meant(size: Budget, what: str) -> int:
    found = parse_size(size, what)
    if found < _LEAST:
        raise InvalidArgument(f"{what} is {found} bytes, in which no model trains: write the unit, such as '8GiB'")
    return found


def _say_if_above(said: Budget, asked: Optional[int], there: int, where: str, what: str) -> None:
    if asked is not None and asked > there:
        log.warning("castor: with %s=%r budgets are above the %s of %s: Castor takes no more than states need, and may not get that", what, said,
                    format_size(there), where)


def local_ranks() -> int:
    """Ranks on this machine, as torchrun, Open MPI and Slurm tell."""
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"):
        if os.environ.get(name, "").isdigit():
            return max(int(os.environ[name]), 1)
    return 1


def host_bytes(host: Budget, device: int) -> int:
    """What host memory may hold for one rank, beside so much of it that is the device's. Activations and the program itself need the rest."""
    if host != "auto":
        return _meant(host, "host")
    spare = int(available_memory() / local_ranks() * 0.7)
    return max(spare - min(device, spare), 1 << 20)


class Budgets:
    """What the device and host memory may hold for one rank, in bytes."""

    def __init__(self, device: Budget, host: Budget, resident: int, gpu: Optional[Gpu], card: Optional[int] = None) -> None:
        """`resident`: what everything takes where all of it is on the device. `gpu`: None where the CPU computes. `card`: of torch and Castor together."""
        spare = int(available_memory() / local_ranks() * 0.7)
        self.device_asked: Optional[int] = None if device == "auto" else _meant(device, "device")
        self._gpu = gpu
        self.card = card
        self.on_gpu = gpu is not None
        self._resident = resident
        if self.device_asked is not None:
            self.device = self.device_asked
        elif gpu is None:
            self.device = min(resident, spare)
        else:
            # Nobody knows yet what activations take.
            self.device = min(resident, (gpu.room() - gpu.in_use()) // 4)
        self.host = host_bytes(host, self.device if gpu is None else 0)
        if gpu is not None:
            _say_if_above(device, self.device_asked, gpu.room(), str(gpu.torch_device), "device")
        there = installed_memory()
        both = self.host if host != "auto" else 0
        if gpu is None:
            both += self.device_asked or 0
        _say_if_above(host if host != "auto" else device, both, there, "this machine", "host" if host != "auto" else "device")
        self.fits = self.device >= resident
        self._aside = 0  # of the host's
        self._left = -1  # to torch, when somebody looked last
        self._others = 0  # in use when the first step began, and not Castor's

    def go_back(self, device: int, host: int) -> None:
        """To budgets of before."""
        self.device, self.host = device, host

    def set_aside(self, size: int, whose: str) -> None:
        """Part of the host's budget is not the engine's."""
        if size >= self.host:
            raise DoesNotFit(f"{whose} keeps {format_size(size)} of states that are not of a parameter's shape, beside chunks in host memory, and the host "
                             f"budget is {format_size(self.host)}; raise the host budget by {size - self.host + (1 << 20)} bytes")
        self.host -= size
        self._aside = size

    def share(self, card: int, device: int, host: int) -> None:
        """A card's first step is known: chunks have so much of the card, and of the host all but what was set aside."""
        self.card, self.device, self.device_asked = card, device, device
        self.host = max(host - self._aside, 1)
        self.fits = device >= self._resident

    @property
    def measures(self) -> bool:
        """Whether what torch needs says what is Castor's."""
        return self._gpu is not None and self.device_asked is None

    @property
    def gives_back(self) -> bool:
        """Whether memory goes to torch between steps where torch comes to need more."""
        return self._gpu is not None and (self.device_asked is None or self.card is not None)

    @property
    def taken(self) -> int:
        """Bytes of a GPU that Castor has."""
        return self._gpu.taken if self._gpu is not None else 0

    def gave_back(self, device: int) -> None:
        """Castor has so much from now on; what was needed beside it is measured anew."""
        self.device, self._left = device, -1
        if self._gpu is not None:
            self._gpu.peak(begin=True)

    def begin(self) -> None:
        """The first step begins, Castor's memory being taken."""
        if self._gpu is not None:
            self._gpu.begin_measuring()
            self._others = self._gpu.in_use() - self._gpu.taken

    def measure(self) -> None:
        """The first step has shown what torch needs of a GPU beside Castor."""
        if self._gpu is None or self.device_asked is not None:
            return
        activations = (self._gpu.most_beside() - self._others) * 11 // 10
        room = self._gpu.room() * 31 // 32 - self._others
        self.device = max(min(self._resident, room - activations), self._gpu.taken)

    def wanted(self) -> int:
        """The device budget that leaves torch what it has needed since, and asked for in vain; the one that there is where it leaves so much."""
        gpu = self._gpu
        if gpu is None:
            return self.device
        lacked, gpu.lacked = gpu.lacked, 0
        others = gpu.peak() - gpu.taken
        if lacked == 0 and others <= self._left:
            return self.device
        room = gpu.room() * 31 // 32 if self.card is None else min(gpu.room() * 31 // 32, self.card)
        self._left = room - gpu.taken
        if lacked == 0 and others <= self._left:
            return self.device
        # By a sixteenth at least, since each time moves states.
        return max(min(room - (others + lacked) * 11 // 10, gpu.taken - gpu.taken // 16), 1)
