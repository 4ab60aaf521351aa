# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Streams of torch's that Castor uses on a GPU, in the order of the calls: what torch.cuda is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from castor.torch._machine import _device


class Stream:
    said: list[str] = []

    def __init__(self, name: Any, device: Any = None) -> None:
        self.name = f"engine's {name}" if device is not None else f"torch's of {name}"

    def wait_stream(self, other: Stream) -> None:
        self.said.append(f"{self.name} waits for {other.name}")


@contextlib.contextmanager
def current(stream: Stream) -> Iterator[None]:
    Stream.said.append(f"begins on {stream.name}")
    yield
    Stream.said.append("ends")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    for name, made in (("ExternalStream", Stream), ("Stream", Stream), ("stream", current)):
        monkeypatch.setattr(torch.cuda, name, made)
    monkeypatch.setattr(Stream, "said", [])
    _device._updating_stream.cache_clear()
    yield Stream.said
    _device._updating_stream.cache_clear()


def test_an_optimizers_own_code_never_runs_on_a_stream_that_castor_destroys(said: list[str]) -> None:
    gpu = object.__new__(_device.Gpu)
    gpu.torch_device = torch.device("cuda", 1)
    for stream in (7, 9):
        with gpu.made_current(stream):
            said.append("updates")
    with pytest.raises(ValueError, match="no"), gpu.made_current(11):
        raise ValueError("no")
    pool = "torch's of 1"
    for stream in (7, 9):
        order, said[:5] = said[:5], []
        assert order == [f"{pool} waits for engine's {stream}", f"begins on {pool}", "updates", "ends", f"engine's {stream} waits for {pool}"]
    assert said[-1] == f"engine's 11 waits for {pool}"
    assert _device._updating_stream.cache_info().currsize == 1
