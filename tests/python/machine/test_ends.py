# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How processes of ranks end: a world is closed before the interpreter is, whatever the script destroyed first."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parents[1] / "helpers" / "ends_worker.py"


def end(*ways: str) -> tuple[list[int], str]:
    """Exit statuses of two ranks that are interpreters of their own, and what they printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(WORKER), *ways], env={**os.environ, **said, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    try:
        words = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], "\n".join(words)


@pytest.mark.parametrize(
    "ways",
    [
        ("gloo", "destroy"),
        ("gloo", "wraps"),
        ("gloo", "wraps", "live", "destroy", "trains on"),
        ("gloo", "handler"),
        ("wraps", "live", "fork", "destroy", "trains on"),
    ],
    ids=" ".join,
)
def test_a_good_run_ends_with_0(ways: tuple[str, ...]) -> None:
    """Groups destroyed before worlds, several worlds, forks, and models that are still there: an aborted process is -6."""
    statuses, words = end(*ways)
    assert statuses == [0, 0], words
    assert "Traceback" not in words


def test_a_rank_that_exits_keeps_its_own_status() -> None:
    statuses, words = end("gloo", "live", "destroy", "exit")
    assert statuses == [0, 3], words
