# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Dry steps say to the byte what the same step on real tensors saves, and what is alive at each of its operators."""

from __future__ import annotations

import dataclasses
import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import castor.torch as castor
from castor.torch._dry._step import counted_step
from castor.torch._torch_internals import graph_task
from dry_cases import CASES, DryCase, Towers, language_batch, of_transformers, small, squares, values

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"
_KERNEL_KNOWS = {"LSTM"}  # whose kernel keeps a workspace of a size that only the kernel knows


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """Cycles of garbage die at moments of their own."""
    gc.disable()
    yield
    gc.enable()


def case(name: str) -> DryCase:
    if name.startswith("LoRA"):
        pytest.importorskip("peft", reason="peft is not installed")
    return CASES[name]


class Held:
    """What autograd keeps in place of a tensor that it saves."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def saved_in_forward(model: nn.Module, step: Any, batch: Any) -> int:
    """Bytes of distinct storages that autograd holds when the backward of a real step begins, without parameters, counted by hooks alone."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held: weakref.WeakSet[Held] = weakref.WeakSet()
    sizes: list[int] = []  # when a tensor is read for the first time

    def pack(tensor: Tensor) -> Held:
        packed = Held(tensor)
        if graph_task() == -1:
            held.add(packed)
        return packed

    def unpack(packed: Held) -> Tensor:
        if not sizes:
            storages = {packed.tensor.untyped_storage().data_ptr(): packed.tensor.untyped_storage().nbytes() for packed in held}
            sizes.append(sum(size for address, size in storages.items() if address not in parameters))
        return packed.tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = step(model, batch)
        if loss is not None:
            loss.backward()
    return sizes[0]


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_are_those_of_a_real_step(name: str) -> None:
    made = case(name)
    dry = castor.dry_step(made.make(), made.step, made.batch())
    real = saved_in_forward(made.make(), made.step, made.batch())
    assert sum(dry.saved_by_module.values()) == dry.saved_bytes > 0
    if name in _KERNEL_KNOWS:
        assert dry.saved_bytes < real
    else:
        assert dry.saved_bytes == real


@pytest.mark.parametrize("name", [name for name in CASES if name not in _KERNEL_KNOWS])
def test_what_is_alive_at_each_operator_is_that_of_a_real_step(name: str) -> None:
    made = case(name)
    dry = castor.dry_step(made.make(), made.step, made.batch())
    model = made.make()
    real = counted_step(model, made.step, made.batch(), "cpu")
    assert dry.curve == real.curve
    assert dry == real
    assert dry.peak_bytes == max(alive for _, _, alive in dry.curve) > dry.after_forward_bytes / 2
    assert dry.gradient_bytes == sum(p.grad.untyped_storage().nbytes() for p in model.parameters() if p.grad is not None)


def test_the_numbers_of_two_layers_are_those_of_arithmetic() -> None:
    """Of 3 rows through 4, 8 and 2 columns: 48, 96 and 24 bytes of activations, 4 of the loss and of its gradient."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    dry = castor.dry_step(model, lambda model, batch: model(batch).sum(), torch.zeros(3, 4))
    assert dry.saved_by_module == {"0": 48, "1": 96}  # its input; the result of Tanh, which the last layer has no second copy of
    assert dry.after_forward_bytes == 48 + 96 + 4 + 4
    assert dry.logits_bytes == 0
    assert dry.gradient_bytes == 4 * (4 * 8 + 8 + 8 * 2 + 2)
    assert dry.curve[0] == ("forward", "(step)", 48)
    assert ("forward", "2", 48 + 96 + 24) in dry.curve
    assert {module for moment, module, _ in dry.curve if moment == "backward"} == {"(step)", "0", "1", "2"}
    assert dry.peak_moment == "backward"


def test_outputs_that_a_step_holds_are_told() -> None:
    def holds(model: Any, batch: Any) -> None:
        output = model(**batch)
        output.loss.backward()

    model, logits = small("GPT2"), 2 * 16 * 128 * 4
    assert castor.dry_step(model, holds, language_batch()).logits_bytes == logits
    assert castor.dry_step(model, of_transformers, language_batch()).logits_bytes == 0


def test_several_backwards_count_by_the_largest() -> None:
    def twice(model: Any, batch: Tensor) -> None:
        for rows in (batch[:2], batch):
            squares(model, rows).backward()

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    batch = values(6, 4)
    whole, both = castor.dry_step(model, squares, batch), castor.dry_step(model, twice, batch)
    assert both.saved_bytes == whole.saved_bytes
    assert both.gradient_bytes == whole.gradient_bytes
    assert [moment for moment, _, _ in both.curve].index("backward") < len(both.curve) - [m for m, _, _ in both.curve[::-1]].index("forward")


def test_values_that_the_batch_has_choose_the_real_path() -> None:
    """transformers makes no mask where all is ones, or where a batch is not packed; a dry step finds the same."""
    from transformers import BatchEncoding

    tokens = language_batch()["input_ids"]
    for mask in (torch.ones_like(tokens), torch.ones_like(tokens).tril()):
        batch = BatchEncoding({"input_ids": tokens, "attention_mask": mask, "labels": tokens})
        assert castor.dry_step(small("Llama"), of_transformers, batch) == counted_step(small("Llama"), of_transformers, batch, "cpu")
        assert batch["attention_mask"] is mask

    def counts(model: Any, batch: Any) -> Tensor:
        loss: Tensor = model(input_ids=batch["input_ids"]).logits.sum() / (batch["labels"] != -100).sum().item()
        return loss

    assert castor.dry_step(small("GPT2"), counts, language_batch()).saved_bytes > 0


def test_autocast_is_applied() -> None:
    def step(model: Any, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            output = model(batch)
        loss: Tensor = output.float().pow(2).mean()
        return loss

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    dry = castor.dry_step(model(), step, values(8, 16))
    assert dry == counted_step(model(), step, values(8, 16), "cpu")
    assert dry.saved_bytes != castor.dry_step(model(), squares, values(8, 16)).saved_bytes


def test_a_type_is_that_of_parameters_and_of_the_batch() -> None:
    batch = (values(6, 12), torch.zeros(6, 4, dtype=torch.long))

    def step(model: Any, batch: Any) -> Tensor:
        loss: Tensor = model(*batch).float().sum()
        return loss

    half = castor.dry_step(Towers(), step, batch, dtype=torch.bfloat16)
    real = counted_step(Towers().bfloat16(), step, (batch[0].bfloat16(), batch[1]), "cpu")
    assert half == real
    assert half.gradient_bytes * 2 == castor.dry_step(Towers(), step, batch).gradient_bytes


def test_a_result_is_read_and_not_written() -> None:
    dry = castor.dry_step(nn.Linear(256, 256), squares, torch.zeros(64, 256))
    assert repr(dry).splitlines() == [
        "peak       385.01 KiB, in the backward of the model itself",  # the batch, an output's gradient, those of weight and bias
        "saved      128.00 KiB",
        "forward    128.01 KiB alive at its end, 64.00 KiB of the model's outputs",
        "gradients  257.00 KiB, apart",
        "  64.00 KiB saved by the model itself",
        "  64.00 KiB saved by (step)",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        dry.peak_bytes = 0  # type: ignore[misc]


def test_the_script_of_the_page_says_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S) if "dry_step" in block]
    exec(compile(code, str(PAGE), "exec"), {"torch": torch, "castor": castor, "transformers": transformers})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
