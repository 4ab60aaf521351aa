# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What launchers say about ranks, told to torch.distributed in its own words."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import castor.torch as castor
from castor.torch._machine import _join

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name in NAMES or name.startswith(("OMPI_", "PMI_", "SLURM_", "MPI_")):
            monkeypatch.delenv(name)
    yield


def test_without_a_launcher_there_is_one_rank() -> None:
    assert castor.join() == (0, 1)


@pytest.mark.parametrize(
    "said",
    [
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    ],
)
def test_ranks_of_mpi_on_one_host_find_each_other(said: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert _join._take_names()
    taken = {name: os.environ[name] for name in NAMES}
    assert taken == {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": taken["MASTER_PORT"]}
    assert taken["MASTER_PORT"].isdigit()


def test_ranks_of_several_hosts_are_asked_where_rank_0_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(castor.InvalidArgument, match="MASTER_ADDR and MASTER_PORT"):
        castor.join()
    monkeypatch.setenv("MASTER_ADDR", "first")
    with pytest.raises(castor.InvalidArgument, match="MASTER_PORT"):
        castor.join()
    monkeypatch.setenv("MASTER_PORT", "4000")
    assert _join._take_names()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]) == ("3", "4", "1")


def test_what_torchrun_says_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert _join._take_names()
    assert os.environ["RANK"] == "2"


def test_a_rank_that_mpirun_bound_to_one_processor_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    cases = [({0, 1}, "0", 0), ({0}, None, 0), ({0}, "0", 1)]
    for processors, rank, warnings in cases:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, found=processors: found)
        if rank is not None:
            monkeypatch.setenv("OMPI_COMM_WORLD_RANK", rank)
        else:
            monkeypatch.delenv("OMPI_COMM_WORLD_RANK", raising=False)
        _join.warn_where_bound.cache_clear()
        caplog.clear()
        for _ in range(2):
            _join.warn_where_bound()
        assert len(caplog.records) == warnings
    assert "bound this rank to one of 8 processors" in caplog.text and "--bind-to none" in caplog.text
