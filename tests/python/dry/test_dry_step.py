# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A dry step leaves the model and the process as they were, takes models without values, and names what needs values."""

from __future__ import annotations

import copy
import dataclasses
import gc
import random
import re
import resource
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import castor.torch as castor
from dry_cases import CASES, Recurrent, language_batch, of_transformers, resnet, small, squares, values

pytest.importorskip("transformers", reason="transformers is not installed")
THIS = Path(__file__).name


def state_of(model: nn.Module) -> list[Any]:
    """Identities of all attributes of all modules, and of what their containers hold."""
    found: list[Any] = []
    for name, module in model.named_modules():
        for key, value in module.__dict__.items():
            inner = [id(part) for part in (value.values() if isinstance(value, dict) else value)] if isinstance(value, (list, dict, tuple, deque)) else []
            found.append((name, type(module), key, id(value), inner))
    return found


def assert_whole(model: nn.Module, before: list[Any], values_before: dict[str, Tensor]) -> None:
    assert state_of(model) == before
    assert all(torch.equal(value, values_before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and type(p) is nn.Parameter for p in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_the_model_and_random_states_are_as_before(name: str) -> None:
    if name.startswith("LoRA"):
        pytest.importorskip("peft", reason="peft is not installed")
    case = CASES[name]
    model, batch = case.make(), case.batch()
    before, kept = state_of(model), copy.deepcopy(model.state_dict())
    states = torch.get_rng_state(), random.getstate()
    castor.dry_step(model, case.step, batch)
    assert_whole(model, before, kept)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert gc.isenabled()
    loss = case.step(model, batch)  # and it trains
    if loss is not None:
        loss.backward()
    assert any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


class Remembers(nn.Module):
    """Puts tensors of its forward into attributes, old and new, draws numbers, and may fail."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.layer, self.fails = nn.Linear(4, 4), fails
        self.seen: list[Tensor] = []
        self.by_name: dict[str, Tensor] = {"scale": torch.ones(4)}
        self.last: Any = None
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.last = self.layer(x) * self.by_name["scale"] * random.random() + torch.rand(4)
        self.seen.append(self.last)
        self.by_name["last"] = self.last
        self.new = self.last
        if self.fails:
            raise KeyError("a defect of the script")
        return self.last


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_forward_leaves_behind_is_gone_also_after_an_exception(fails: bool) -> None:
    model = Remembers(fails)
    before, kept = state_of(model), copy.deepcopy(model.state_dict())
    states = torch.get_rng_state(), random.getstate()
    if fails:
        with pytest.raises(KeyError, match="a defect of the script"):
            castor.dry_step(model, squares, values(2, 4))
    else:
        castor.dry_step(model, squares, values(2, 4))
    assert_whole(model, before, kept)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert gc.isenabled()
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert torch.ones(1).numpy() is not None  # no mode is left


def test_a_model_that_only_the_step_knows_keeps_its_gradients() -> None:
    teacher = nn.Linear(4, 4)
    squares(teacher, values(2, 4)).backward()
    assert teacher.weight.grad is not None
    before = teacher.weight.grad, teacher.weight.grad.clone()
    model = nn.Linear(4, 4)
    castor.dry_step(model, lambda model, batch: (model(batch) - teacher(batch)).pow(2).sum(), values(2, 4))
    assert teacher.weight.grad is before[0]
    assert torch.equal(before[0], before[1])
    assert model.weight.grad is None


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return small("Llama")


def lazily() -> nn.Module:
    with castor.lazy_init():
        return small("Llama")


@pytest.mark.parametrize("make", [on_meta, lazily])
def test_models_without_values_give_the_same_numbers(make: Callable[[], nn.Module]) -> None:
    model = make()
    batch = language_batch()
    assert castor.dry_step(model, of_transformers, batch) == castor.dry_step(small("Llama"), of_transformers, batch)
    assert all(p.is_meta for p in model.parameters())


@dataclasses.dataclass(frozen=True)
class Rows:
    x: Tensor
    more: dict[str, list[Any]]


def test_batches_are_of_any_structure_and_stay() -> None:
    rows = Rows(values(2, 4), {"targets": [torch.tensor([1, 3]), "a name", None]})

    def step(model: Any, batch: Rows) -> Tensor:
        assert batch.more["targets"][1:] == ["a name", None]
        return F.cross_entropy(model(batch.x), batch.more["targets"][0])

    flat = castor.dry_step(nn.Linear(4, 4), lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]), (rows.x, rows.more["targets"][0]))
    held = rows.x, rows.more["targets"][0]
    assert castor.dry_step(nn.Linear(4, 4), step, rows) == flat
    assert (rows.x, rows.more["targets"][0]) == held or (rows.x is held[0] and rows.more["targets"][0] is held[1])
    assert castor.dry_step(nn.Linear(4, 4), lambda model, batch: model(batch).sum(), torch.empty(2, 4, device="meta")).saved_bytes == 32


def test_compiled_models_run_as_they_are_written() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    assert castor.dry_step(torch.compile(model), squares, values(2, 4)).saved_bytes == castor.dry_step(model, squares, values(2, 4)).saved_bytes


# What is refused.


def reads_item(model: Any, batch: Tensor) -> Tensor:
    loss = squares(model, batch)
    print(loss.item())  # here
    return loss


def reads_if(model: Any, batch: Tensor) -> Tensor:
    loss = squares(model, batch)
    if loss > 0:  # here
        return loss
    return -loss


def reads_mask(model: Any, batch: Tensor) -> Tensor:
    output = model(batch)
    return output[output > 0].sum()  # here


def reads_numpy(model: Any, batch: Tensor) -> Tensor:
    output = model(batch)
    output.detach().numpy()  # here
    return output.sum()


@pytest.mark.parametrize("step", [reads_item, reads_if, reads_mask, reads_numpy])
def test_the_line_that_needs_values_is_named(step: Any) -> None:
    model = nn.Linear(4, 4)
    before, kept = state_of(model), copy.deepcopy(model.state_dict())
    here = next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "# here" in line and number > step.__code__.co_firstlineno)
    with pytest.raises(castor.InvalidArgument, match=rf"{re.escape(THIS)}:{here} \(.*# here\) needs the values of a tensor, and a dry step has none: leave \.item\(\)"):
        castor.dry_step(model, step, values(2, 4))
    assert_whole(model, before, kept)


def test_experts_that_loop_over_what_was_routed_are_named() -> None:
    with pytest.raises(castor.InvalidArgument, match=r"modeling_mixtral\.py:\d+ \(.*nonzero\(\)\) needs the values of a tensor"):
        castor.dry_step(small("Mixtral", experts_implementation="eager"), of_transformers, language_batch())


def test_an_operator_without_a_form_for_fake_tensors_is_named() -> None:
    with torch.library._scoped_library("castor_dry_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")

        def step(model: Any, batch: Tensor) -> Tensor:
            torch.ops.castor_dry_test.twice(batch)
            return squares(model, batch)

        with pytest.raises(castor.InvalidArgument, match=rf"{re.escape(THIS)}:\d+ .* calls an operator that torch cannot try without values .*twice"):
            castor.dry_step(nn.Linear(4, 4), step, values(2, 4))


def test_arguments_that_have_no_meaning_are_refused() -> None:
    model = nn.Linear(4, 4)
    with pytest.raises(castor.InvalidArgument, match="device is 'meta', on which no step computes"):
        castor.dry_step(model, squares, values(2, 4), device="meta")
    if not torch.cuda.is_available():
        with pytest.raises(castor.InvalidArgument, match="device is 'cuda', and torch finds no GPU here"):
            castor.dry_step(model, squares, values(2, 4), device="cuda")
    with pytest.raises(castor.InvalidArgument, match="step returned tuple: return the loss, or None"):
        castor.dry_step(model, lambda model, batch: (squares(model, batch), 1), values(2, 4))  # type: ignore[arg-type, return-value]
    with pytest.raises(castor.InvalidArgument, match="parameter weight has no shape yet: run the lazy module once before castor.torch.dry_step"):
        castor.dry_step(nn.LazyLinear(4), squares, values(2, 4))
    wrapped, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="1MiB", host="8MiB")
    with pytest.raises(castor.InvalidArgument, match="takes models that castor.wrap has not wrapped"):
        castor.dry_step(wrapped, squares, values(2, 4))


def test_modules_with_running_statistics_keep_their_type() -> None:
    types = set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.lstm = resnet(), Recurrent()

        def forward(self, x: Tensor) -> Tensor:
            types.update({self.net[0].weight.dtype, self.net[1].weight.dtype, self.net[1].running_mean.dtype})
            assert self.lstm.lstm._flat_weights[0] is self.lstm.lstm.weight_ih_l0
            return self.net(x)

    castor.dry_step(Looks(), squares, values(2, 3, 16, 16), dtype=torch.bfloat16)
    assert types == {torch.bfloat16, torch.float32}


def test_a_model_of_a_billion_parameters_takes_seconds_and_no_memory() -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        tie_word_embeddings=True, dtype="bfloat16",
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).train()
    tokens = torch.zeros(2, 2048, dtype=torch.long)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    dry = castor.dry_step(model, of_transformers, {"input_ids": tokens, "labels": tokens})
    assert time.monotonic() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
    assert dry.gradient_bytes == sum(p.nbytes for p in model.parameters()) > 2 << 30
    assert dry.peak_bytes > dry.saved_bytes > 8 << 30
