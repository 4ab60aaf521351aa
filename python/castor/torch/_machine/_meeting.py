# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Where ranks wait for each other before torch.distributed begins: who is missing, and whether all have one version."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from castor._version import VERSION
from castor.errors import FailedPrecondition, InvalidArgument, Unavailable

log = logging.getLogger("castor")

_EVERY_S = 10.0  # words of a rank that waits
_ASK_S = 0.05


@contextlib.contextmanager
def _telling(words: str) -> Iterator[None]:
    """Logs the words every ten seconds while the caller waits."""
    over = threading.Event()

    def tell() -> None:
        begun = time.monotonic()
        while not over.wait(_EVERY_S):
            log.warning("castor: %s for %.0f s", words, time.monotonic() - begun)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{' and others' if len(ranks) > 8 else ''}"


def _store(rank: int, size: int, timeout_s: float) -> Any:
    """The store at MASTER_ADDR, which rank 0 serves, or torchrun's agent."""
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    if not port.isdigit():
        raise InvalidArgument(f"MASTER_PORT is {port!r}: give the number of a port that is free on the host of rank 0")
    of_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    with _telling(f"rank {rank} of {size} on {socket.gethostname()} waits for rank 0 at {address}:{port}"):
        try:
            store: Any = dist.TCPStore(address, int(port), size, rank == 0 and not of_agent, datetime.timedelta(seconds=timeout_s), wait_for_workers=False,
                                       multi_tenant=True)
        except (RuntimeError, ValueError) as error:
            raise Unavailable(f"rank {rank} on {socket.gethostname()} has not reached rank 0 at {address}:{port} within {timeout_s:g} s ({error}): does rank 0 "
                              "run, is MASTER_ADDR its host, and does a firewall let others through to MASTER_PORT?") from error
    # Torch gives each restart of torchrun's a name of its own.
    return dist.PrefixStore(f"castor {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _route(there: str) -> str:
    """The address of this host from which packets go to another one; empty where there is no way."""
    with contextlib.suppress(OSError):
        family, kind, protocol, _, place = socket.getaddrinfo(there, 9, socket.AF_INET, socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as asked:
            asked.connect(place)  # sends nothing
            return str(asked.getsockname()[0])
    return ""


def _interface_of(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""


def _choose_interface(said: list[Any]) -> None:
    """Names gloo an interface where this host's name is an address that no other host reaches, such as the 127.0.1.1 of Debian's installer."""
    mine = socket.gethostname()
    others = [there for host, _, there in said if host != mine]
    if not others or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        own = socket.gethostbyname(mine)
    except OSError:
        own = "no address"
    if own != "no address" and not own.startswith("127."):
        return
    # The host of rank 0 may know itself by a loopback address only.
    found = _route(os.environ["MASTER_ADDR"] if said[0][0] != mine else others[0])
    interface = "" if found.startswith("127.") else _interface_of(found)
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        log.info("castor: %s resolves to %s here, so gloo takes %s (%s)", mine, own, interface, found)
    else:
        log.warning("castor: %s resolves to %s here, which other hosts do not reach: set GLOO_SOCKET_IFNAME to the interface of this host's network", mine, own)


def meet(rank: int, size: int, timeout_s: float) -> Any:
    """A store that all ranks have come to with one version of Castor. Blocks until they have."""
    until = time.monotonic() + timeout_s
    store = _store(rank, size, timeout_s)
    store.set(f"join {rank}", json.dumps([socket.gethostname(), VERSION, _route(os.environ["MASTER_ADDR"])]))
    missing, told = list(range(size)), time.monotonic()
    while missing := [other for other in missing if not store.check([f"join {other}"])]:
        now = time.monotonic()
        if now >= until:
            raise Unavailable(f"castor.join on {socket.gethostname()}: {_named(missing)} of {size} did not come within {timeout_s:g} s: look at what they do, "
                              "or raise join's timeout_s if they are only slow")
        if now - told >= _EVERY_S:
            told = now
            log.warning("castor: rank %d of %d on %s waits for %s", rank, size, socket.gethostname(), _named(missing))
        time.sleep(_ASK_S)
    said = [json.loads(store.get(f"join {other}")) for other in range(size)]
    for other, (host, version, *_) in enumerate(said):
        if version != said[0][1]:
            raise FailedPrecondition(f"rank {other} on {host} has Castor {version}, and rank 0 on {said[0][0]} has Castor {said[0][1]}: install one version on "
                                     "every host")
    _choose_interface(said)
    return dist.PrefixStore("torch", store)
