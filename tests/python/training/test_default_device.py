# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""torch.set_default_device decides where tensors go whose makers name no device. Castor's go where Castor needs them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

import castor.torch as castor
from harness import adamw
from models import PLAIN, Case, of_transformers

CASES = PLAIN + (of_transformers() if importlib.util.find_spec("transformers") else [])
CASTOR = os.path.dirname(os.path.dirname(os.path.abspath(castor.__file__)))


class Unnamed(TorchFunctionMode):
    """Finds Castor's lines that make a tensor without naming its device."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[str] = set()
        self.seen = 0

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if function in _device_constructors():
            caller = sys._getframe(1)
            if caller.f_code.co_filename.startswith(CASTOR):
                self.seen += 1
                if keywords.get("device") is None:
                    self.lines.add(f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}")
        return function(*arguments, **keywords)


def exercise(case: Case, folder: Path, mode: Any, forward: Any) -> None:
    """All that a script asks of Castor, in the mode, but forwards in the mode of `forward`."""
    torch.manual_seed(7)
    model: Any = case.make()
    with mode():
        model, optimizer = castor.wrap(
            model, adamw(p for p in model.parameters() if p.requires_grad), device="512KiB", host="2MiB", nvme=str(folder), chunk="8KiB"
        )
    for step in range(2):
        with forward():
            loss = case.loss(model, step)
        with mode():
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert norm.device.type == "cpu" and norm.item() > 0
            optimizer.step()
            optimizer.zero_grad()
    with mode():
        state, weights = optimizer.state_dict(), model.state_dict()
        assert all(tensor.device.type == "cpu" for tensor in weights.values())
        assert all(value.device.type == "cpu" for one in state["state"].values() for value in one.values())
        castor.save(str(folder / "saved"), model)
        castor.load(str(folder / "saved"), model)
        optimizer.load_state_dict(state)
        model.load_state_dict(weights)
        parameter = next(p for p in model.parameters() if p.numel())
        with castor.gathered(parameter, write=True), torch.no_grad():
            parameter.mul_(2)
        again = castor.exact(parameter)
        first = next(name for name, p in model.named_parameters() if p is parameter)
        assert torch.equal(again, weights[first].float() * 2)


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_castor_works_under_any_default_device(case: Case, device: str, tmp_path: Path) -> None:
    """Where there is no GPU, a tensor that goes there by default cannot be made at all."""
    exercise(case, tmp_path, lambda: torch.device(device), lambda: torch.device("cpu"))


def test_every_tensor_of_castors_names_its_device(tmp_path: Path) -> None:
    unnamed = Unnamed()
    for index, case in enumerate(CASES):
        folder = tmp_path / str(index)
        folder.mkdir()
        exercise(case, folder, lambda: unnamed, lambda: unnamed)
    assert unnamed.seen > 10 and not unnamed.lines


def test_values_are_initialised_lazily_under_any_default_device() -> None:
    def values(device: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        with castor.lazy_init(), torch.device("cpu"):
            model: Any = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
        with torch.device(device):
            model, _ = castor.wrap(model, adamw(model.parameters()), device="64MiB", host="64MiB", on="cpu")
            return model.state_dict()

    want = values("cpu")
    for device in ("meta", "cuda"):
        got = values(device)
        assert all(torch.equal(got[name], tensor) for name, tensor in want.items())
