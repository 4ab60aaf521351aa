# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What launchers say about ranks, told to torch.distributed in its own words."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import pytest

import castor.torch as castor
from castor.torch._machine import _join, _meeting

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
    for name, value in {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(castor.InvalidArgument, match="MASTER_ADDR and MASTER_PORT"):
        castor.join()
    monkeypatch.setenv("MASTER_ADDR", "first")
    with pytest.raises(castor.InvalidArgument, match="MASTER_PORT"):
        castor.join()
    monkeypatch.setenv("MASTER_PORT", "4000")
    assert _join._take_names()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]) == ("3", "4", "1")


@pytest.mark.parametrize(("hosts", "first"), [("node[07-09,12],gpu[1-2]", "node07"), ("a,b", "a"), ("n[1,3]-ib,z", "n1-ib"), ("one", "one")])
def test_ranks_of_srun_meet_at_the_first_host_of_the_step(hosts: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": hosts, "SLURM_JOB_ID": "1234", "SLURM_STEP_ID": "2"}
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    assert _join._take_names()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == (first, str(15000 + (1234 * 17 + 2) % 15000))


def test_a_batch_script_of_slurm_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert castor.join() == (0, 1)


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def test_missing_ranks_are_named_while_others_wait_and_in_the_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_meeting, "_EVERY_S", 0.2)
    with pytest.raises(castor.Unavailable, match="ranks 1, 2 of 3 did not come within 1 s"):
        castor.join(timeout_s=1)
    assert "waits for ranks 1, 2" in caplog.text
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_PORT", _free_port())
    with pytest.raises(castor.Unavailable, match="rank 1 on .* has not reached rank 0 at 127.0.0.1"):
        castor.join(timeout_s=1)


def test_a_host_whose_name_is_a_loopback_address_names_gloo_an_interface(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    mine = socket.gethostname()
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1")
    monkeypatch.setattr(_meeting, "_route", {"10.0.0.2": "10.0.0.1", "first": "127.0.1.1"}.get)
    monkeypatch.setattr(_meeting, "_interface_of", {"10.0.0.1": "eth7"}.get)
    _meeting._choose_interface([[mine, "", "127.0.1.1"], [mine, "", "127.0.1.1"]])  # one host
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    _meeting._choose_interface([[mine, "", "127.0.1.1"], ["b", "", "10.0.0.2"]])
    assert os.environ.pop("GLOO_SOCKET_IFNAME") == "eth7"
    _meeting._choose_interface([["a", "", ""], [mine, "", "127.0.1.1"]])  # no way to rank 0
    assert "GLOO_SOCKET_IFNAME" not in os.environ and f"{mine} resolves to 127.0.1.1" in caplog.text and "set GLOO_SOCKET_IFNAME" in caplog.text


def test_addresses_have_interfaces() -> None:
    assert _meeting._interface_of("127.0.0.1") == "lo" and _meeting._route("127.0.0.1") == "127.0.0.1"


def test_a_mix_of_versions_is_refused_with_rank_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}.items():
        monkeypatch.setenv(name, value)
    store = _meeting._store(0, 2, 5)
    store.set("join 1", json.dumps(["b", "0.0.9", "10.0.0.2"]))
    with pytest.raises(castor.FailedPrecondition, match=r"rank 1 on b has Castor 0\.0\.9, and rank 0 on .* has Castor"):
        _meeting.meet(0, 2, 5)


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
