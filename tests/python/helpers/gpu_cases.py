# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What holds on a GPU alone: torch's memory and streams, and budgets that are measured. test_fake_gpu.py runs these on a GPU in memory of the host."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor._abi import lib
from castor.torch._card import _sharing
from castor.torch._card._rates import Rates
from castor.torch._machine import _device
from castor.torch._model import Unit
from castor.torch._parameters._leases import _Lease
from fake_gpu import ROOM, FakeGpu
from harness import train
from models import PLAIN, Case, gpt2, language, of_transformers, squares
from queued_torch import queued

BUDGETS: dict[str, Any] = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB", "config": {"poison": True}}
MiB = 1 << 20


def wrapped(**budgets: Any) -> tuple[Any, Any, FakeGpu]:
    torch.manual_seed(0)
    model: Any = gpt2()
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-3), **budgets)
    return model, optimizer, model._castor.device


def step(model: Any, optimizer: Any, number: int = 0) -> None:
    language(model, number).backward()
    optimizer.step()


def test_memory_is_torchs_and_goes_back() -> None:
    gc.collect()  # of what tests before have left
    events = lib.castor_fake_live(1)
    model, optimizer, gpu = wrapped(**BUDGETS)
    step(model, optimizer)
    assert 0 < gpu.taken <= 600 << 10
    assert not lib.castor_fake_live(2), "nothing is of CUDA's own allocator"
    kept = model.transformer.wte.weight.sum()
    del model, optimizer, kept
    gc.collect()
    assert gpu.taken == 0 and gpu.handle is None
    assert lib.castor_fake_live(1) == events


def test_a_gpu_whose_allocator_is_refused_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        ended = 0

        def __getattr__(self, name: str) -> Any:
            if name == "castor_device_set_allocator":
                return lambda handle, allocator: 1
            self.ended += name == "castor_device_destroy"
            return getattr(lib, name)

    gc.collect()
    events, refusing = lib.castor_fake_live(1), Refusing()
    with monkeypatch.context() as patch:
        patch.setattr(_device, "lib", refusing)
        with pytest.raises(castor.CastorError):
            wrapped(**BUDGETS)
    gc.collect()
    assert refusing.ended == 1 and lib.castor_fake_live(1) == events
    model, optimizer, _ = wrapped(**BUDGETS)
    step(model, optimizer)


@pytest.mark.parametrize("activations", [0, 300 * MiB])
def test_the_first_step_measures_what_torch_needs_beside_castor(activations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "activations", activations)
    model, optimizer, gpu = wrapped(host="64MiB", chunk="16KiB")
    budget = model._castor.engine.stats()["device_budget_bytes"]
    assert budget <= ROOM // 4
    step(model, optimizer)
    assert model._castor.engine.stats()["device_budget_bytes"] <= ROOM - activations


def test_what_is_left_of_a_gpu_becomes_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    from castor.torch._machine._budgets import Budgets

    monkeypatch.setattr(FakeGpu, "activations", 300 * MiB)
    _, _, gpu = wrapped(**BUDGETS)
    budgets = Budgets("auto", "64MiB", resident=4 * ROOM, gpu=gpu)
    assert budgets.device == (ROOM - gpu.taken) // 4 and not budgets.fits
    budgets.begin()
    budgets.measure()
    assert budgets.device == ROOM * 31 // 32 - 330 * MiB
    # What Castor takes and gives back in the step is no activation.
    budgets = Budgets("auto", "64MiB", resident=4 * ROOM, gpu=gpu)
    budgets.begin()
    stays, goes = [0], [0]
    gpu._allocate(50 * MiB, goes)
    gpu._allocate(20 * MiB, stays)
    gpu._release(goes[0])
    budgets.measure()
    assert budgets.device == ROOM * 31 // 32 - 330 * MiB
    gpu._release(stays[0])
    few = Budgets("auto", "64MiB", resident=5 * MiB, gpu=gpu)
    assert few.fits and few.device == 5 * MiB
    asked = Budgets("7MiB", "64MiB", resident=ROOM, gpu=gpu)
    asked.measure()
    assert asked.device == 7 * MiB


def test_torchs_out_of_memory_is_what_wrap_fails_with() -> None:
    with pytest.raises(castor.CastorError, match="the fake GPU has"):
        wrapped(device="8GiB", host="64MiB", chunk="1GiB")
    model, optimizer, _ = wrapped(**BUDGETS)
    step(model, optimizer)


def measured(monkeypatch: pytest.MonkeyPatch, **attributes: int) -> tuple[Any, Any, FakeGpu]:
    """A model that does not fit into what is taken before the first step."""
    for name, value in {"size": 2 * MiB, **attributes}.items():
        monkeypatch.setattr(FakeGpu, name, value)
    return wrapped(host="64MiB", chunk="16KiB")


def digest_after(steps: int) -> int:
    model, optimizer, _ = wrapped(**BUDGETS)
    for number in range(steps):
        step(model, optimizer, number)
    return model._castor.engine.digest()


def test_memory_that_is_not_to_be_had_after_the_first_step_is_not_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, gpu = measured(monkeypatch)
    assert model._castor.engine.stats()["device_budget_bytes"] == MiB // 2
    monkeypatch.setattr(FakeGpu, "free", 700 << 10)  # all states take 817 KiB
    for number in range(2):
        step(model, optimizer, number)
    assert "are not to be had" in caplog.text and "torch has no" not in caplog.text
    assert gpu.taken <= gpu.free
    monkeypatch.setattr(FakeGpu, "free", ROOM)
    assert model._castor.engine.digest() == digest_after(2)


def test_torch_gets_memory_back_where_it_needs_more_than_at_first(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, gpu = measured(monkeypatch)
    step(model, optimizer, 0)
    taken = gpu.taken
    step(model, optimizer, 1)
    assert gpu.taken == taken and not caplog.records
    longer = MiB * 5 // 4
    monkeypatch.setattr(FakeGpu, "activations", longer)  # a longer sequence
    step(model, optimizer, 2)
    budget = 2 * MiB * 31 // 32 - longer * 11 // 10
    stats = model._castor.engine.stats()
    assert stats["device_budget_bytes"] == budget and gpu.taken <= budget
    assert "(1 times so far)" in caplog.text
    step(model, optimizer, 3)
    assert model._castor.opening.placement.given_back == 1
    assert model._castor.engine.digest() == digest_after(4)


def test_a_longer_batch_than_that_of_a_card_gets_memory_between_steps(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The card is 2 MiB of a GPU of 1 GiB."""
    batch = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(9))
    monkeypatch.setattr(_sharing, "measured", lambda device, dtype: Rates(1e10, 1e10))
    model, optimizer, gpu = wrapped(card="2MiB", batch={"input_ids": batch, "labels": batch}, host="64MiB", chunk="16KiB")
    choice = model._castor.opening.card
    monkeypatch.setattr(FakeGpu, "activations", choice.step_bytes)
    for number in range(2):
        step(model, optimizer, number)
    assert "castor" not in {record.name for record in caplog.records} and gpu.taken <= choice.device_bytes
    longer = choice.step_bytes * 3 // 2
    monkeypatch.setattr(FakeGpu, "activations", longer)
    step(model, optimizer, 2)
    assert model._castor.engine.stats()["device_budget_bytes"] == choice.card_bytes - longer * 11 // 10
    assert "than a step of batch=" in caplog.text and "a batch= of the largest size from the start" in caplog.text
    step(model, optimizer, 3)
    assert model._castor.opening.placement.given_back == 1
    assert model._castor.engine.digest() == digest_after(4)


@pytest.mark.parametrize("backward", [False, True])
def test_a_smaller_batch_after_torch_ran_out_of_memory_finds_more(backward: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, gpu = measured(monkeypatch)
    step(model, optimizer, 0)
    step(model, optimizer, 1)
    budget = model._castor.engine.stats()["device_budget_bytes"]

    def fails(*_: Any) -> None:
        _device._ran_out(gpu.torch_device.index, MiB, 0, 0)  # as torch's allocator calls it
        raise torch.OutOfMemoryError("CUDA out of memory")

    dropout = torch.get_rng_state()
    if backward:
        loss = language(model, 2)
        loss.register_hook(fails)
        with pytest.raises(torch.OutOfMemoryError):
            loss.backward()
        del loss
    else:
        handle = model.transformer.h[2].register_forward_hook(fails)
        with pytest.raises(torch.OutOfMemoryError):
            language(model, 2)
        handle.remove()
    assert "a smaller batch" in caplog.text
    torch.set_rng_state(dropout)
    step(model, optimizer, 2)
    assert model._castor.engine.stats()["device_budget_bytes"] < budget
    assert model._castor.engine.digest() == digest_after(3)


def test_memory_that_castor_cannot_do_without_stays(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer, gpu = measured(monkeypatch)
    step(model, optimizer, 0)
    monkeypatch.setattr(FakeGpu, "activations", 2 * MiB)
    for number in range(1, 4):
        step(model, optimizer, number)
    assert "(1 times so far)" in caplog.text and gpu.taken < 200 << 10, "all that Castor can do without"
    assert caplog.text.count("Castor cannot do with") == 1
    assert model._castor.engine.digest() == digest_after(4)


def leases() -> int:
    return sum(isinstance(one, _Lease) for one in gc.get_objects())


def test_an_exception_in_a_backward_is_the_scripts_own() -> None:
    """Leases end while it is on its way."""
    model, _, _ = wrapped(**BUDGETS)

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(weight)
            return x @ weight

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            (weight,) = ctx.saved_tensors
            raise ValueError(f"of the script, with {weight.numel()} weights at hand")

    x = torch.ones(2, model.lm_head.weight.shape[0])
    with pytest.raises(ValueError, match="of the script"):
        Failing.apply(x, model.lm_head.weight).sum().backward()


def test_a_tensor_over_a_chunk_keeps_its_lease_and_no_other() -> None:
    model, _, gpu = wrapped(**BUDGETS)
    runtime = model._castor
    first, second = runtime.params[0], runtime.params[1]
    alive = leases()
    view = runtime.acquire(first.unit)[0]
    assert view.shape == first.shape and view.dtype == first.dtype and view.is_contiguous()
    alias = view[1:].t()
    del view
    runtime.acquire(second.unit)
    assert leases() == alive + 1
    with torch.no_grad():
        want = castor.exact(first.tensor)
    assert torch.equal(alias, want[1:].t())
    del alias
    assert leases() == alive


def test_types_and_shapes_come_through_dlpack() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((), (1,), (3, 5), (2, 1, 4)):
            values = torch.randn(shape).to(dtype)
            seen = _device.dlpack_viewer(values.shape, dtype, _device.ON_CPU, 0)(values.data_ptr(), values)
            assert seen.dtype is dtype and seen.shape == values.shape
            assert torch.equal(seen, values) and seen.data_ptr() == values.data_ptr()


def test_other_streams_give_the_same_bits() -> None:
    want = train(gpt2, language, BUDGETS, steps=3)
    for _ in range(3):
        got = train(gpt2, language, BUDGETS, steps=3)
        assert got.losses == want.losses
        assert all(torch.equal(values, want.weights[name]) for name, values in got.weights.items())


def test_tensors_may_outlive_the_model_and_python() -> None:
    """The process that runs this file has to end in order."""
    model, _, _ = wrapped(**BUDGETS)
    torch._castor_test_kept = model._castor.acquire(model._castor.params[0].unit)[0]  # type: ignore[attr-defined]


def test_a_rank_of_nccl_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    from castor._engine import Gpus, World, nccl_id

    want = train(gpt2, language, BUDGETS | {"device": "8MiB"}, steps=3)
    lib.castor_fake_gpu_begin()
    worlds: list[World] = []

    def make_world(timeout_s: float, device: torch.device) -> World:
        worlds.append(World(timeout_s=timeout_s, meeting=Gpus(0, 1, nccl_id(), 0)))
        return worlds[-1]

    monkeypatch.setattr("castor.torch._wrap.make_world", make_world)
    got = train(gpt2, language, BUDGETS | {"device": "8MiB"}, steps=3)
    assert worlds[0].size == 1 and got.losses == want.losses


CASES = PLAIN + (of_transformers() if importlib.util.find_spec("transformers") else [])


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Some kernels of the CPU's add up by threads, and the queue's work is another thread's. Attention leaves its fast path where a mode such as the queue is on."""
    before, fast = torch.get_num_threads(), torch.backends.mha.get_fastpath_enabled()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(fast)
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_work_that_torch_queues_gives_the_same_bits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks move, slots are used again, and a step ends, while the kernels of the trainer are still to come."""
    monkeypatch.setattr(FakeGpu, "takes_turns", False)
    want = train(case.make, case.loss, BUDGETS, steps=3)
    with queued(lambda: FakeGpu.latest.now) as queue:
        got = train(case.make, case.loss, BUDGETS, steps=3)
    assert queue.queued > 40
    assert got.losses == want.losses
    for name, values in want.weights.items():
        assert torch.equal(got.weights[name], values), name


def test_a_lease_ends_behind_the_stream_on_which_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "takes_turns", False)
    kept: list[torch.Tensor] = []

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(12))
            self.side = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gpu = FakeGpu.latest
            kept.clear()
            for layer in self.layers:
                aliases: list[Any] = []
                handle = layer.register_forward_hook(lambda module, *_, to=aliases: to.append(module.weight.data.view(-1)), prepend=True)
                x = layer(x)
                handle.remove()
                main = gpu.now
                with gpu.stream(1 if self.side else 0):
                    gpu.wait_for(main)
                    if self.side:
                        gpu.delay(10)
                    kept.append(aliases.pop().sum())  # used, and let go, on this stream
            return x

    def sums(side: bool) -> list[float]:
        torch.manual_seed(0)
        model: Any = Layers()
        model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="48KiB", host="1MiB", chunk="4KiB",
                                       config={"poison": True})
        model.side = side
        with queued(lambda: FakeGpu.latest.now):
            for number in range(3):
                squares(4, 32)(model, number).backward()
                optimizer.step()
        return [total.item() for total in kept]

    assert sums(side=True) == sums(side=False)


def test_gradients_of_a_unit_come_from_several_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """As autograd runs each backward on the stream of its forward. Units hold gradients back on several ranks only; here on one."""
    monkeypatch.setattr(FakeGpu, "takes_turns", False)
    monkeypatch.setattr("castor.torch._wrap.Unit", lambda params, block=False: Unit(params, block=len(params) > 2))

    class Paths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.paths = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for p in self.parameters():
                p.register_hook(lambda gradient: switch(0))  # where the unit began, and its aliases were made
            made = [path(x) for path in self.paths]
            for number, y in enumerate(made):
                y.register_hook(lambda gradient, number=number: switch(number % 2))
            return sum(made)

    def losses(streams: int) -> list[float]:
        nonlocal several
        several = streams > 1
        return train(lambda: nn.Sequential(Paths(), nn.Tanh()), squares(4, 32), BUDGETS | {"units": [Paths]}, steps=4).losses

    def switch(to: int) -> None:
        gpu = FakeGpu.latest
        if several and gpu.now != gpu.streams[to]:
            before, gpu.now = gpu.now, gpu.streams[to]
            gpu.wait_for(before)  # as autograd has it
            if to:
                gpu.delay(4)

    several = False
    with queued(lambda: FakeGpu.latest.now):
        want = losses(1)
        assert losses(2) == want


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("name", ["NAdam", "Adafactor"])
def test_other_optimizers_update_on_the_devices_stream(name: str, dtype: Any) -> None:
    """As they do in host memory, to the same bits here, where the CPU does both."""
    ends = []
    for budgets in ({"device": "64MiB", "host": "64MiB"}, {"device": "64MiB", "host": "64MiB", "place": {"*": "host"}}):
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        optimizer: Any = getattr(torch.optim, name)(model.parameters(), lr=1e-2)
        model, optimizer = castor.wrap(model, optimizer, dtype=dtype, **budgets)
        before = FakeGpu.latest.updates
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
            model(x if dtype is None else x.to(dtype)).float().pow(2).sum().backward()
            optimizer.step()
        assert (FakeGpu.latest.updates > before) == ("place" not in budgets)
        ends.append([p.detach().clone() for p in model.parameters()])
    for one, other in zip(*ends):
        assert torch.equal(one, other)


class Collecting(torch.optim.NAdam):
    def step(self, closure: Any = None) -> Any:
        gc.collect()
        return super().step(closure)


def test_no_lease_that_an_update_ends_makes_the_engines_stream_a_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []

    def noted(gpu: FakeGpu) -> int:
        stream = _device.Gpu.trainers_stream(gpu)
        if getattr(gpu._inside, "own", False):
            inside.append(stream)
        return stream

    monkeypatch.setattr(FakeGpu, "trainers_stream", noted)
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    model, optimizer = castor.wrap(model, Collecting(model.parameters(), lr=1e-2), device="64MiB", host="64MiB")
    gpu = FakeGpu.latest
    gc.disable()
    gc.freeze()  # what was there before need not be looked at each time
    try:
        for _ in range(3):
            model(torch.ones(4, 8)).pow(2).sum().backward()
            cycle: list[Any] = model._castor.acquire(model._castor.params[0].unit)
            cycle.append(cycle)
            del cycle
            optimizer.step()
    finally:
        gc.unfreeze()
        gc.enable()
    model(torch.ones(4, 8))
    assert inside
    assert set(inside) | set(gpu._lanes) <= set(gpu.streams)


def test_a_stream_waits_for_another() -> None:
    _, _, gpu = wrapped(**BUDGETS)
    gpu.taking_turns = False
    with queued(lambda: gpu.now) as queue:
        total = queue.add(torch.zeros(4))
        with gpu.stream(1):
            gpu.delay(10)
            total.add_(1)
        gpu.wait_for(gpu.streams[1])
        total.mul_(3)
    assert total.tolist() == [3.0] * 4


@pytest.mark.parametrize("order", ["before", "after", "inside", "late"])
def test_cuda_graphs_are_refused_by_name(order: str) -> None:
    def compiled(module: nn.Module) -> Any:
        return torch.compile(module, mode="reduce-overhead")

    model: Any = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    if order == "inside":
        model[0] = compiled(model[0])
    if order == "before":
        model = compiled(model)
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-3), device="1MiB", host="1MiB")
    if order == "late":
        for _ in range(4):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    if order in ("after", "late"):
        model = compiled(model)
    with pytest.raises(castor.CastorError, match="reduce-overhead.*max-autotune-no-cudagraphs"):
        model(torch.ones(2, 8))


def test_a_model_that_sleeps_gives_all_memory_back() -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), device="1MiB", host="8MiB")

    def step() -> None:
        model(torch.ones(2, 16)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    before = [castor.exact(p) for p in model.parameters()]
    had = FakeGpu.latest.taken
    with castor.sleep(model):
        assert had > 0 and FakeGpu.latest.taken == 0
    assert FakeGpu.latest.taken == had
    assert all(torch.equal(castor.exact(p), values) for p, values in zip(model.parameters(), before))
    step()
