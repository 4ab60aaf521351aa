# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Two hosts of one rank each: network namespaces on one machine, which root makes. Skipped elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
WORKER = HELPERS / "ends_worker.py"
TIMEOUT_S = 5
_NEEDED = "hostname tried && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && ip link add eth0 type veth peer name eth1"
_BEGIN = """
hostname {name}
printf '127.0.0.1 localhost\\n127.0.1.1 {name}\\n' > {names} && mount --bind {names} /etc/hosts
mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && exec sleep infinity
"""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[int]]:
    """Processes that hold the namespaces of two hosts, 10.78.0.1 and 10.78.0.2, whose own names are 127.0.1.1."""
    tried = ["unshare", "--net", "--uts", "--mount", "sh", "-c", _NEEDED]
    if os.geteuid() or shutil.which("nsenter") is None or subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("no namespaces: they need root, iproute2 and a kernel with veth")
    holders: list[subprocess.Popen] = []
    try:
        for number in range(2):
            begin = _BEGIN.format(name=f"host{number}", names=tmp_path / f"names{number}")
            holders.append(subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c", begin], stdout=subprocess.PIPE, text=True))
            ready = holders[-1].stdout
            assert ready is not None and ready.readline() == "ready\n"
        first, second = (str(holder.pid) for holder in holders)
        _run("nsenter", "-t", first, "--net", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second)
        for number, holder in enumerate((first, second)):
            _run("nsenter", "-t", holder, "--net", "ip", "addr", "add", f"10.78.0.{number + 1}/24", "dev", "eth0")
            _run("nsenter", "-t", holder, "--net", "ip", "link", "set", "eth0", "up")
        yield [holder.pid for holder in holders]
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _end(hosts: list[int], *worker: str) -> tuple[list[int], list[str]]:
    """Exit statuses of one rank on each host, and what they printed."""
    said = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(["nsenter", "-t", str(holder), "--net", "--uts", "--mount", sys.executable, *worker], env={**os.environ, **said, "RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank, holder in enumerate(hosts)
    ]
    try:
        words = [rank.communicate(timeout=150)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], words


@pytest.mark.parametrize("ways", [("wraps",), ("live", "destroy", "trains on")], ids=" ".join)
def test_hosts_that_know_themselves_as_loopback_train_and_end_with_0(ways: tuple[str, ...], hosts: list[int]) -> None:
    statuses, words = _end(hosts, str(WORKER), *ways)
    assert statuses == [0, 0], "\n".join(words)


@pytest.mark.parametrize("cut", [0, 1])
def test_ranks_of_hosts_that_are_cut_off_name_each_other(cut: int, hosts: list[int]) -> None:
    _, words = _end(hosts, str(HELPERS / "named_ends_worker.py"), "cut", str(cut), str(TIMEOUT_S))
    said = [[json.loads(line) for line in of_rank.splitlines() if line.startswith('{"')] for of_rank in words]
    ended = said[cut][0]["ends"]
    for rank, lines in enumerate(said):
        caught = lines[-1]
        assert f"rank {1 - rank} on host node{1 - rank}" in caught["words"], words[rank]
        assert caught["caught"] - ended <= TIMEOUT_S + 5, (caught["caught"] - ended, words[rank])
