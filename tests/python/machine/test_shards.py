# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""`castor.wrap(..., shard=...)`: four ranks of one machine, which are told that they are on two hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run
from torch import nn

import castor.torch as castor
from castor.torch._card._sharing import _planned
from castor.torch._machine._groups import groups_in


def test_bits_are_those_of_one_set_of_shards_and_memory_is_that_of_a_group(tmp_path: Path) -> None:
    """Bits are equal, not near: sums over ranks run in rank order, whatever the groups."""
    found: dict[str, dict[str, Any]] = run("shards", 4, tmp_path)
    assert len(found) == 13
    assert len({one["digest"] for one in found.values()}) == 1
    assert len({one["norm"] for one in found.values()}) == 1
    whole = found["3 None group aabb"]["host"]
    assert found["3 host group aabb"]["host"] == found["3 2 group aabb"]["host"] == 2 * whole
    assert found["3 1 group aabb"]["host"] == 4 * whole
    # Of four states, parameters alone are kept twice where the optimizer's states and gradients are cut among all ranks.
    assert found["3 host world aabb"]["host"] * 3 == whole * 4
    assert found["3 host group aaaa"]["host"] == whole
    assert found["3 host group abcd"]["host"] == 4 * whole


def test_checkpoints_of_one_grouping_load_under_another(tmp_path: Path) -> None:
    found = run("shards_saved", 4, tmp_path)
    assert len(found["resumed"]) == 9
    assert set(found["resumed"].values()) == {found["went on"]}


def test_groups_that_cannot_be_formed_are_refused_on_all_ranks(tmp_path: Path) -> None:
    assert run("shards_refused", 4, tmp_path) == {
        "other sizes": "InvalidArgument: shard='host' takes hosts with equal numbers of ranks, and host-a has 3 and host-b 1: start as many on each, or give "
        "shard= a number of ranks",
        "not next to each other": "InvalidArgument: shard='host' takes ranks that are numbered host by host, and rank 2 is on host-a, as rank 0 is, with other "
        "hosts' ranks between: number the ranks as torchrun does, or leave shard= away",
        "does not divide": "InvalidArgument: shard=3 does not divide the number of ranks, 4: give one of 1, 2, 4, or None for one set of shards",
        "ranks differ": "InvalidArgument: rank 0 has shard=2, shard_states='group', and rank 3 has shard=4, shard_states='group': give all ranks the same groups",
        "nothing is cut": "InvalidArgument: stage 0 keeps optimizer states whole on every rank, so they cannot span the world: choose stage 1 to 3, or let them "
        "span the group",
    }


@pytest.mark.parametrize("given, words", [
    ({"shard": "hosts"}, "shard is 'hosts': give 'host', a number of ranks"),
    ({"shard": True}, "shard is True: give"),
    ({"shard": 0}, "shard is 0: give"),
    ({"shard": 2}, "shard=2 does not divide the number of ranks, 1: give one of 1, or None"),
    ({"shard_states": "all"}, "shard_states is 'all': give 'group', or 'world'"),
    ({"shard": "host", "config": {"shard_group": 1}}, "shard= and 'shard_group' in config= are two names of one thing"),
    ({"shard_states": "world", "config": {"optimizer_span": "group"}}, "shard_states= and 'optimizer_span' in config= are two names of one thing"),
])
def test_values_without_a_meaning_are_refused(given: dict[str, Any], words: str) -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(castor.InvalidArgument, match=words):
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **given)
    castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), shard="host")  # the refused call left the model as it was


def test_ranks_that_are_not_connected_are_told_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(castor.FailedPrecondition, match="call castor.join"):
        groups_in(2, "group", {})


def test_a_card_is_planned_with_the_groups() -> None:
    told = {"stage": 3, "max_norm": 0.0, "units": (), "folders": [], "chunk": None, "update_in_backward": False, "reduce_dtype": None, "state_dtype": None}
    options = _planned({**told, "groups": {"shard_group": 2, "optimizer_span": "world"}}, None) | {"world": 4}
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(16)])

    def bytes_of(**options: Any) -> int:
        plan = castor.plan(model, device_budget="64MiB", host_budget="64MiB", place="host:*", **options)
        assert plan.fits
        return sum(tier.planned_bytes for tier in plan.tiers if tier.tier == "host")

    alone = bytes_of(**{key: value for key, value in options.items() if key not in ("shard_group", "optimizer_span")})
    assert alone < bytes_of(**options) < bytes_of(**{**options, "optimizer_span": "group"})
