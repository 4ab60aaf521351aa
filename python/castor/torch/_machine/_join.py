# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks, whoever launched them."""

from __future__ import annotations

import functools
import logging
import os
from typing import Optional

import torch
import torch.distributed as dist

from castor.errors import InvalidArgument

# torchrun's variables, and who says the same by another name: Open MPI, Slurm, MPICH and Intel MPI.
_NAMES = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE"),
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


def join(backend: Optional[str] = None) -> tuple[int, int]:
    """Begins torch.distributed for ranks of torchrun, mpirun or srun, and returns this rank and how many there are.

    (0, 1) where nobody launched ranks; what is begun already is left as it is. Ranks of mpirun and srun on several hosts need MASTER_ADDR and
    MASTER_PORT, as torchrun's do. Where there are GPUs, the rank's own becomes the current one.

    Args:
      backend: of torch.distributed. None: gloo, and NCCL for what is on GPUs.

    Raises:
      InvalidArgument: MASTER_ADDR or MASTER_PORT is missing.
    """
    if not dist.is_initialized():
        if not _take_names():
            return 0, 1
        gpus = torch.cuda.device_count()
        if gpus:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        warn_where_bound()
        dist.init_process_group(backend or ("cpu:gloo,cuda:nccl" if gpus else "gloo"))
    return dist.get_rank(), dist.get_world_size()


def _take_names() -> bool:
    for name, others in _NAMES.items():
        said = next((os.environ[other] for other in others if other in os.environ), None)
        if said is not None:
            os.environ.setdefault(name, said)
    size = os.environ.get("WORLD_SIZE")
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
