# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Weights that others wrote: buffers, tied weights under any name, other types; and checkpoints of another dtype."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

safetensors = pytest.importorskip("safetensors.torch")
WHERE: dict[str, dict[str, Any]] = {"on the device": {}, "on the host": {"place": {"*": "host"}}}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.BatchNorm1d(8)
        self.extra = nn.Linear(8, 8)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.extra(self.norm(self.embed(ids))))


def other() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    model = Model()
    model(torch.randint(11, (16,)))
    return {name: values.clone() for name, values in model.state_dict().items()}


def wrapped(ignores: bool = False, **arguments: Any) -> tuple[Any, Any]:
    torch.manual_seed(1)
    model: Any = Model()
    ignored = [model.extra] if ignores else []
    trained = [p for name, p in model.named_parameters() if not (ignores and name.startswith("extra"))]
    return castor.wrap(model, torch.optim.AdamW(trained, lr=1e-2), ignore=ignored, **arguments)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("leaves_out", [["out.weight"], ["embed.weight"], []])
def test_buffers_and_tied_weights_come_by_any_of_their_names(leaves_out: list[str], ignores: bool, where: str, tmp_path: Path) -> None:
    want = other()
    safetensors.save_file({name: values for name, values in want.items() if name not in leaves_out}, tmp_path / "model.safetensors")
    model, _ = wrapped(ignores, **WHERE[where])
    castor.load_weights(model, str(tmp_path))
    for name, values in model.state_dict().items():
        assert torch.equal(values, want[name]), name


@pytest.mark.parametrize("saved", [torch.bfloat16, torch.float16, torch.float32])
def test_other_types_are_converted(saved: torch.dtype, tmp_path: Path) -> None:
    want = {name: values.to(saved) if values.is_floating_point() else values for name, values in other().items()}
    files = {"a.safetensors": {"out.weight": want["out.weight"]}, "b.safetensors": {name: v for name, v in want.items() if "weight" not in name or "t.w" not in name}}
    for file, tensors in files.items():
        safetensors.save_file({name: values.clone() for name, values in tensors.items()}, tmp_path / file)
    index = {"weight_map": {name: file for file, tensors in files.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    model, _ = wrapped(dtype=torch.bfloat16)
    castor.load_weights(model, str(tmp_path))
    for name, values in model.state_dict().items():
        assert torch.equal(values.float(), want[name].to(values.dtype).float()), name


def test_what_belongs_to_nothing_is_named(tmp_path: Path) -> None:
    safetensors.save_file(other() | {"strange": torch.ones(1), "out.weight": other()["embed.weight"].clone()}, tmp_path / "model.safetensors")
    model, _ = wrapped()
    with pytest.raises(castor.InvalidArgument, match="strange"):
        castor.load_weights(model, str(tmp_path))
    for garbage in (b"\xff" * 64, (16).to_bytes(8, "little") + b"not JSON at all!"):
        (tmp_path / "model.safetensors").write_bytes(garbage)
        with pytest.raises(castor.CastorError, match="safetensors"):
            castor.load_weights(model, str(tmp_path))
    wrong = {name: values for name, values in other().items() if name != "out.weight"} | {"norm.running_mean": torch.ones(3)}
    safetensors.save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(castor.InvalidArgument, match="norm.running_mean has the shape"):
        castor.load_weights(model, str(tmp_path))


@pytest.mark.parametrize(("first", "second"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_a_checkpoint_of_another_type_is_converted_where_that_is_said(first: torch.dtype, second: torch.dtype, tmp_path: Path) -> None:
    model, optimizer = wrapped(dtype=first)
    for _ in range(2):
        model(torch.randint(11, (16,))).float().pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    castor.save(str(tmp_path), model)
    again, _ = wrapped(dtype=second)
    with pytest.raises(castor.InvalidArgument, match="convert"):
        castor.load(str(tmp_path), again)
    castor.load(str(tmp_path), again, convert=True)
    for mine, theirs in zip(again.parameters(), model.parameters()):
        assert torch.equal(castor.exact(mine), castor.exact(theirs))
    assert torch.equal(again.norm.running_mean, model.norm.running_mean)
    fresh, _ = wrapped(dtype=second)
    castor.load_weights(fresh, str(tmp_path))
    assert torch.equal(castor.exact(fresh.extra.weight), castor.exact(model.extra.weight))
    assert torch.equal(fresh.norm.running_mean, model.norm.running_mean)
