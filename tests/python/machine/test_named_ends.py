# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks of several hosts: whoever dies, hangs or leaves is named with its host on all other ranks, in time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
