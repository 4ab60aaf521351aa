# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks, whoever launched them."""

from __future__ import annotations

import functools
import logging
import os
import re
from typing import Optional

import torch
import torch.distributed as dist

from castor.errors import InvalidArgument
from castor.torch._machine import _meeting

# torchrun's variables, and who says the same by another name: Open MPI, Slurm, MPICH and Intel MPI.
_NAMES = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID"),
}
_ON_ONE_HOST = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


log = logging.getLogger("castor")


@functools.cache
def warn_where_bound() -> None:
    """Once in a process: Open MPI has left this rank one processor of several, as it does by default for two ranks."""
    processors = os.cpu_count() or 1
    if "OMPI_COMM_WORLD_RANK" in os.environ and len(os.sched_getaffinity(0)) == 1 < processors:
        log.warning("castor: mpirun has bound this rank to one of %d processors, where transfers and updates wait for the model: mpirun --bind-to none",
                    processors)


def join(backend: Optional[str] = None, timeout_s: float = 600.0) -> tuple[int, int]:
    """Begins torch.distributed for ranks of torchrun, mpirun or srun, and returns this rank and how many there are.

    (0, 1) where nobody launched ranks; what is begun already is left as it is. Ranks of mpirun on several hosts need MASTER_ADDR and MASTER_PORT, as
    torchrun's do. For srun they are the first host of the step and a port made of the step's number. Where there are GPUs, the rank's own becomes the
    current one. A rank that waits logs every 10 s for which ranks.

    Args:
      backend: of torch.distributed. None: gloo, and NCCL for what is on GPUs.
      timeout_s: seconds that ranks wait for each other to begin. The groups of torch.distributed keep torch's own timeouts.

    Raises:
      InvalidArgument: MASTER_ADDR or MASTER_PORT is missing or no number.
      Unavailable: ranks have not come in time; the message names them.
      FailedPrecondition: ranks have different versions of Castor.
    """
    if not dist.is_initialized():
        if not _take_names():
            return 0, 1
        gpus = torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        warn_where_bound()
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = _meeting.meet(rank, size, timeout_s)
        dist.init_process_group(backend or ("cpu:gloo,cuda:nccl" if gpus else "gloo"), store=store, rank=rank, world_size=size)
    return dist.get_rank(), dist.get_world_size()


def _first_host(hosts: str) -> str:
    """node07 of node[07-09,12],gpu[1-2], as collectives/world/launch.cc has."""
    found = re.match(r"([^\[,]*)(?:\[([^\]\-,]*)[^\]]*\]?([^,]*))?", hosts)
    return "".join(part or "" for part in found.groups()) if found else hosts


def _take_step() -> None:
    """Where ranks of srun meet: the rule of collectives/world/launch.cc, whose port steps of one machine at a time do not share."""
    said = [os.environ.get(name, "") for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID")]
    if "SLURM_STEP_NUM_TASKS" in os.environ and said[0] and said[1].isdigit() and said[2].isdigit():
        if not {"MASTER_ADDR", "MASTER_PORT"} & os.environ.keys():
            os.environ["MASTER_ADDR"] = _first_host(said[0])
            os.environ["MASTER_PORT"] = str(15000 + (int(said[1]) * 17 + int(said[2])) % 15000)


def _take_names() -> bool:
    for name, others in _NAMES.items():
        said = next((os.environ[other] for other in others if other in os.environ), None)
        if said is not None:
            os.environ.setdefault(name, said)
    size = os.environ.get("WORLD_SIZE")
    if size != "1" and not any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")):
        _take_step()
    if "RANK" not in os.environ or size is None or (size == "1" and "MASTER_ADDR" not in os.environ):
        return False
    if any(os.environ.get(name) == size for name in _ON_ONE_HOST):
        # The launcher is the parent of all.
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(20000 + os.getppid() % 20000))
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise InvalidArgument(f"{' and '.join(missing)} is not set: say where rank 0 listens, as torchrun does")
    return True
