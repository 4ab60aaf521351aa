# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Activations in host memory between forward and backward. The twin of a GPU's streams copies them as the streams would."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import castor.torch as castor
from castor._abi import lib
from castor.torch._autograd import _activations
from castor.torch._machine._device import dlpack_viewer
from harness import train
from models import PLAIN, checkpointed, gpt2, language
from older_torch import tells_no_hooks

ON_CPU = 1  # DLPack's kDLCPU
TIGHT: dict[str, Any] = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB", "config": {"poison": True}}


class Counting(_activations.HostMover):
    """Also poisons what was copied away, as memory that another tensor has by then."""

    def __init__(self) -> None:
        self.saves, self.loads = 0, 0

    def save(self, source: torch.Tensor, place: torch.Tensor) -> Any:
        self.saves += 1
        return super().save(source, place)

    def load(self, place: torch.Tensor, saved: Any) -> Any:
        self.loads += 1
        return super().load(place, saved)


@pytest.fixture
def mover(monkeypatch: pytest.MonkeyPatch) -> Counting:
    made = Counting()
    monkeypatch.setattr(_activations, "mover_of", lambda device: made)
    return made


def inside(saver: Any, loss_of: Any) -> Callable[[nn.Module, int], torch.Tensor]:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        with saver:
            return loss_of(model, step)

    return loss


@pytest.mark.parametrize("wrap", [None, TIGHT], ids=["plain", "wrapped"])
@pytest.mark.parametrize("make", [gpt2, lambda: checkpointed(False), lambda: checkpointed(True)], ids=["gpt2", "checkpointed", "reentrant"])
def test_losses_and_weights_are_the_same_bits(make: Any, wrap: Any, mover: Counting) -> None:
    want = train(make, language, wrap, steps=4)
    saver = castor.offload_activations("16MiB", least=1)
    got = train(make, inside(saver, language), wrap, steps=4)
    assert mover.saves > 0 and mover.loads > 0
    assert got.losses == want.losses
    assert all(torch.equal(values, want.weights[name]) for name, values in got.weights.items())
    gc.collect()
    assert saver.saved_bytes == 0 < saver.peak_bytes <= 16 << 20
    assert saver.refused_bytes == 0


def test_an_arena_that_cannot_be_pinned_goes(mover: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            if name != "castor_pinned_arena_destroy":
                return getattr(lib, name)
            return lambda handle: codes.append(lib.castor_pinned_arena_destroy(handle))

    def refuse(address: int, size: int) -> None:
        raise RuntimeError("no pins left")

    monkeypatch.setattr(_activations, "lib", Noting())
    monkeypatch.setattr(mover, "register", refuse)
    model = gpt2()
    with pytest.raises(RuntimeError, match="no pins left"), castor.offload_activations("16MiB", least=1):
        language(model, 0)
    gc.collect()
    assert codes == [0]


def test_it_may_be_around_a_whole_training_and_every_kind_of_model(mover: Counting) -> None:
    with castor.offload_activations("16MiB", least="64B"):
        for case in PLAIN:
            want = train(case.make, case.loss, TIGHT | {"device": "2MiB"}, steps=3)
            assert want.losses == train(case.make, case.loss, TIGHT, steps=3).losses, case.name
    assert mover.saves > 0


def test_torches_that_do_not_tell_their_hooks_save_activations_too(mover: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    tells_no_hooks(monkeypatch)
    want = train(gpt2, language, TIGHT, steps=3)
    assert not mover.saves
    got = train(gpt2, inside(castor.offload_activations("16MiB", least=1), language), TIGHT, steps=3)
    assert mover.saves > 0 and got.losses == want.losses


def test_what_finds_no_room_stays_where_it_is(mover: Counting) -> None:
    want = train(gpt2, language, steps=3)
    saver = castor.offload_activations("64KiB", least=1)
    got = train(gpt2, inside(saver, language), steps=3)
    assert got.losses == want.losses
    assert saver.refused_bytes > 0 and 0 < saver.peak_bytes <= 64 << 10


def test_tensors_of_one_storage_are_copied_once(mover: Counting) -> None:
    with castor.offload_activations("1MiB", least=1):
        x = torch.randn(8, 12, requires_grad=True)
        whole = x * 2
        query, key = whole.chunk(2, dim=1)
        loss = (query.exp() * key.t().contiguous().t()).sum() + (query @ key.t()).sum() + (query @ query.t()).sum()
    saves = mover.saves
    loss.backward()
    assert saves < 6
    assert x.grad is not None and mover.loads <= saves
    want = torch.autograd.grad(_again(x), x)[0]
    assert torch.equal(x.grad, want)


def _again(x: torch.Tensor) -> torch.Tensor:
    whole = x * 2
    query, key = whole.chunk(2, dim=1)
    return (query.exp() * key.t().contiguous().t()).sum() + (query @ key.t()).sum() + (query @ query.t()).sum()


def test_memory_that_another_tensor_has_by_then_is_not_taken_for_it(mover: Counting) -> None:
    """Addresses come again: each tensor dies before the next one is made."""
    x = torch.ones(64, requires_grad=True)
    with castor.offload_activations("1MiB", least=1):
        parts = []
        for number in range(20):
            parts.append((x.detach() * number * torch.ones(1) * x).sum())
        total = torch.stack(parts).sum()
    total.backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((64,), float(sum(range(20)))))


@pytest.mark.parametrize("least", [1, "1MiB"], ids=["copied", "kept"])
def test_writes_between_forward_and_backward_are_refused(least: Any, mover: Counting) -> None:
    """As without the context. On a GPU a write may come before the copy to the host."""
    for write in (lambda hidden: hidden.detach().zero_(), lambda hidden: hidden.detach()[3:].add_(1)):
        x = torch.randn(16, requires_grad=True)
        with castor.offload_activations("1MiB", least=least):
            hidden = x.sigmoid()
            loss = hidden.pow(2).sum()
        write(hidden)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(loss, x)


def test_values_on_lease_stay_where_they_are(mover: Counting) -> None:
    """A copy on another stream would not keep the lease."""
    x = torch.randn(16, requires_grad=True)
    memory = torch.randn(16)
    values = dlpack_viewer(memory.shape, memory.dtype, ON_CPU, 0)(memory.data_ptr(), object())
    with castor.offload_activations("1MiB", least=1):
        loss = (x * values).sum()
    assert mover.saves == 0
    assert torch.equal(torch.autograd.grad(loss, x)[0], values)


def test_memory_that_is_not_torchs_stays_where_it_is(mover: Counting) -> None:
    """Torch's allocator would give the memory to others behind the copy. Another owner may free it before."""
    x = torch.randn(16, requires_grad=True)
    numbers = numpy.arange(16, dtype=numpy.float32)
    with castor.offload_activations("1MiB", least=1):
        loss = (x * torch.from_numpy(numbers)).sum()
    assert mover.saves == 0
    assert torch.equal(torch.autograd.grad(loss, x)[0], torch.arange(16.0))


def test_a_second_backward_has_them_again(mover: Counting) -> None:
    x = torch.randn(16, requires_grad=True)
    with castor.offload_activations("1MiB", least=1):
        loss = x.sigmoid().pow(2).sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(loss, x)[0], first)


def test_copies_back_go_ahead_in_reverse_order(mover: Counting) -> None:
    x = torch.randn(16, requires_grad=True)
    loads = []
    with castor.offload_activations("1MiB", least=1):
        hidden = x
        for _ in range(6):
            hidden = hidden.sigmoid()
            hidden.register_hook(lambda _: loads.append(mover.loads))
        loss = hidden.sum()
    loss.backward()
    assert loads[0] == 0 and loads[1] == 3 and mover.loads == 6


def test_on_the_cpu_nothing_is_copied_and_sizes_are_read() -> None:
    saver = castor.offload_activations("1GiB")
    want = train(gpt2, language, steps=2)
    got = train(gpt2, inside(saver, language), steps=2)
    assert got.losses == want.losses and saver.peak_bytes == 0
    with pytest.raises(castor.InvalidArgument, match="budget"):
        castor.offload_activations("much")
