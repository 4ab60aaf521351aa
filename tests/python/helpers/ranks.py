# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks of one host for tests: forked from one process that has imported what they need, since importing takes longer than most tests.

What torchrun itself does is tried by the tests of the examples and the trainers.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "ranks_worker.py"


@functools.cache
def _server() -> subprocess.Popen:
    server = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def run(what: str, ranks: int, folder: Path, timeout_s: int = 240, **environment: str) -> Any:
    """What rank 0 returned of a function of ranks_worker.py, which all ranks call."""
    out, log = folder / f"{what}-{ranks}.json", folder / f"{what}-{ranks}.log"
    log.write_text("")
    out.unlink(missing_ok=True)
    server = _server()
    assert server.stdin and server.stdout
    print(json.dumps([what, ranks, str(folder), str(out), str(log), environment]), file=server.stdin, flush=True)
    if not select.select([server.stdout], [], [], timeout_s)[0] or not server.stdout.readline():
        _end(server)
        _server.cache_clear()
        raise AssertionError(f"{what} on {ranks} ranks did not end within {timeout_s} s: {log.read_text()[-4000:]}")
    assert out.exists(), log.read_text()[-4000:]
    return json.loads(out.read_text())


def _rank(rank: int, ranks: int, port: int, log: str, environment: dict[str, str], main: Callable[[], None]) -> int:
    """Forks the rank, whose process never returns. Returns the process's number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(port))
        main()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(children: set[int]) -> None:
    """A rank that fails leaves the others five seconds: their words of the failure are what some tests look at."""
    until = float("inf")
    while children:
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.remove(child)
                if status:
                    until = min(until, time.monotonic() + 5)
        if time.monotonic() > until:
            for child in children:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def serve(main: Callable[[str, str, str], None]) -> None:
    """Runs what each line of the standard input says, until there is none. `main` gets what to do, a folder, and the file for rank 0's answer."""
    for line in sys.stdin:
        what, ranks, folder, out, log, environment = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        _wait({_rank(rank, ranks, port, log, environment, lambda: main(what, folder, out)) for rank in range(ranks)})
        print("done", flush=True)
