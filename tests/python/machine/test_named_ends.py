# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks of several hosts: whoever dies, hangs or leaves is named with its host on all other ranks, in time."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from castor.torch._machine import _gloo
from castor.torch._machine._presence import Presence

WORKER = Path(__file__).parents[1] / "helpers" / "named_ends_worker.py"
TIMEOUT_S = 5


def end(way: str, victim: int, size: int) -> tuple[float, dict[int, dict[str, Any]], dict[int, int]]:
    """When the victim ended, what every other rank caught, and the others' exit statuses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = {"WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen([sys.executable, str(WORKER), way, str(victim), str(TIMEOUT_S)], env={**os.environ, **said, "RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(size)
    ]
    others = [rank for rank in range(size) if rank != victim]
    try:
        words = {rank: ranks[rank].communicate(timeout=90)[0] for rank in others}
        ranks[victim].kill()
        words[victim] = ranks[victim].communicate(timeout=10)[0]
    finally:
        for process in ranks:
            process.kill()
            process.wait()

    def told(rank: int, key: str) -> dict[str, Any]:
        lines = [json.loads(line) for line in words[rank].splitlines() if line.startswith('{"' + key)]
        assert len(lines) == 1, f"rank {rank}:\n" + "\n".join(f"--- {each}\n{words[each]}" for each in sorted(words))
        return lines[0]

    return told(victim, "ends")["ends"], {rank: told(rank, "caught") for rank in others}, {rank: ranks[rank].returncode for rank in others}


WAYS = ["kill", "stop", "raise", "exit", "sleep"]


@pytest.mark.parametrize(
    "way, size, victim", [(way, size, victim) for size, victim in ((2, 1), (3, 0)) for way in WAYS] + [("kill", 3, 1), ("stop", 3, 1), ("exit", 3, 1)]
)
def test_others_name_the_rank_and_its_host_in_time(way: str, size: int, victim: int) -> None:
    """Rank 0, which serves the store that the signs of life are in, and another one."""
    ended, caught, statuses = end(way, victim, size)
    for rank, error in caught.items():
        assert f"rank {victim}" in error["words"] and f"on host node{victim}" in error["words"], (rank, error)
        assert error["caught"] - ended <= TIMEOUT_S + 5, (rank, error["caught"] - ended, error)
        if way == "raise":
            assert "ValueError: the data of this rank is gone" in error["words"], error
        for third in set(caught) - {rank}:
            assert f"rank {third} on host node{third} has not answered" not in error["words"], error
    assert not any(statuses.values()), statuses


def test_signs_tell_who_never_came_who_fell_silent_and_where() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    first, second = (Presence(dist.PrefixStore("signs", store), rank, 3) for rank in range(2))
    try:
        host = socket.gethostname()
        assert first.with_hosts("ranks 1-2 did not come") == f"ranks 1-2 did not come (rank 1 is on host {host})"
        assert first.with_hosts("rank 0 alone") == "rank 0 alone" and first.with_hosts(f"rank 1 on host {host} did") == f"rank 1 on host {host} did"
        with second.calling("all-gather"):
            time.sleep(1.5)
            second.stop()
        said = first.explain("closed", time.monotonic() + 6)
        assert "rank 2 has not answered" in said and "its last sign was before its first call" in said
        time.sleep(3)
        said = first.explain("closed", time.monotonic() + 6)
        assert f"rank 1 on host {host} has not answered for" in said and "its last sign was in call 1, all-gather" in said and "(closed)" in said
    finally:
        first.stop()
        second.stop()


def test_a_rank_that_leaves_for_want_of_another_is_not_named_for_it() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    first, second, third = (Presence(dist.PrefixStore("left", store), rank, 3) for rank in range(3))
    try:
        third.stop()
        assert "rank 2 on host" in second.explain("closed", time.monotonic() + 6)
        second.leave("its script is over")
        said = first.explain("closed", time.monotonic() + 6)
        assert f"rank 2 on host {socket.gethostname()} has not answered" in said and "has left" not in said
    finally:
        for each in (first, second, third):
            each.stop()


def test_a_store_that_cannot_be_cloned_leaves_errors_without_names(caplog: pytest.LogCaptureFixture) -> None:
    group = _gloo.Gloo.__new__(_gloo.Gloo)
    group._store = object()
    with caplog.at_level(logging.WARNING, "castor"):
        assert group._present() is None
    assert "an error of gloo's names no rank" in caplog.text
    group._presence = None
    assert group.tell("rank 1 is gone") == "rank 1 is gone"
