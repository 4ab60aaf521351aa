# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Groups of ranks that share one set of shards: `castor.wrap`'s ``shard=`` and ``shard_states=`` as keys of the engine's config."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch.distributed as dist

from castor.errors import InvalidArgument
from castor.torch._machine import _world

Shard = Union[int, str, None]
"""A number of ranks, ``"host"`` for those of a host, or None for all ranks."""

_STATES = ("group", "world")


def groups_in(shard: Shard, states: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the engine's config: ``shard_group`` and ``optimizer_span``, each where it is not the engine's default. All ranks call the function.

    Args:
      shard: what a group is.
      states: ``"group"`` or ``"world"``: the ranks among which the optimizer's states are cut.
      config: keys that the script gives itself.

    Raises:
      InvalidArgument: a value has no meaning, `config` has the same key, ranks give different values, or no such groups can be formed of the ranks.
    """
    _refuse_values(shard, states, config)
    places = _said(shard, states)
    keys: dict[str, Any] = {}
    if shard is not None:
        size = _size_on_hosts(places) if shard == "host" else _divisor(int(shard), len(places))
        if size < len(places):
            keys["shard_group"] = size
    if states != "group":
        keys["optimizer_span"] = states
    return keys


def _refuse_values(shard: Shard, states: str, config: Mapping[str, Any]) -> None:
    is_number = isinstance(shard, int) and not isinstance(shard, bool) and shard > 0
    if shard is not None and shard != "host" and not is_number:
        raise InvalidArgument(f"shard is {shard!r}: give 'host', a number of ranks that share a set of shards, or None for all ranks")
    if states not in _STATES:
        raise InvalidArgument(f"shard_states is {states!r}: give 'group', or 'world' for states that are cut among all ranks")
    for name, given, key in (("shard", shard is not None, "shard_group"), ("shard_states", states != "group", "optimizer_span")):
        if given and key in config:
            raise InvalidArgument(f"{name}= and {key!r} in config= are two names of one thing: give one of them")


def _said(shard: Shard, states: str) -> list[str]:
    """Each rank's host. Ranks compare what they were given, since groups of different sizes would wait for each other."""
    if not _world.several_ranks():
        return [_world._host()]
    said = [json.loads(words) for words in _world.said_by_all(json.dumps([[shard, states], _world._host()]))]
    for rank, (given, _) in enumerate(said):
        if given != said[0][0]:
            first, other = (f"shard={one[0]!r}, shard_states={one[1]!r}" for one in (said[0][0], given))
            raise InvalidArgument(f"rank 0 has {first}, and rank {rank} has {other}: give all ranks the same groups")
    return [host for _, host in said]


def _divisor(size: int, ranks: int) -> int:
    if ranks % size:
        sizes = ", ".join(str(one) for one in range(1, ranks + 1) if ranks % one == 0)
        raise InvalidArgument(f"shard={size} does not divide the number of ranks, {ranks}: give one of {sizes}, or None for one set of shards")
    return size


def _size_on_hosts(places: Sequence[str]) -> int:
    """How many ranks each host has. Groups of the engine are consecutive ranks."""
    runs = [(host, len(list(ranks))) for host, ranks in itertools.groupby(places)]
    first_rank = 0
    met: set[str] = set()
    for host, count in runs:
        if host in met:
            raise InvalidArgument(f"shard='host' takes ranks that are numbered host by host, and rank {first_rank} is on {_name(host)}, as rank "
                                  f"{places.index(host)} is, with other hosts' ranks between: number the ranks as torchrun does, or leave shard= away")
        met.add(host)
        first_rank += count
    sizes = dict(runs)
    host, count = runs[0]
    other = next((one for one in sizes if sizes[one] != count), None)
    if other is not None:
        raise InvalidArgument(f"shard='host' takes hosts with equal numbers of ranks, and {_name(host)} has {count} and {_name(other)} {sizes[other]}: start as "
                              "many on each, or give shard= a number of ranks")
    return count


def _name(host: str) -> str:
    """Without the number of the boot."""
    return host.split()[0]
