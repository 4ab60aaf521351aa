# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Search, plan and simulation before training, and the command that the wheel carries."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import PLAIN

import castor
from castor import _command

CASE = PLAIN[0]
ROOT = Path(__file__).parents[3]
MACHINE = ROOT / "tools" / "examples" / "traces" / "machine.json"
BUDGETS: dict[str, Any] = {"device_budget": "2MiB", "host_budget": "64MiB", "chunk": "64KiB"}


def test_a_search_takes_modules_paths_and_lists(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = CASE.make()
    found = castor.search(model, min="1KiB", max="64KiB")
    assert found.optimal
    assert found.recommended.waste_fraction <= max(c.waste_fraction for c in found.candidates)
    with torch.device("meta"):
        assert castor.search(CASE.make(), min="1KiB", max="64KiB") == found
    as_list = [(name, tuple(p.shape), "F32") for name, p in model.named_parameters()]
    assert castor.search(as_list, min="1KiB", max="64KiB") == found
    save_file({name: p.detach() for name, p in model.named_parameters()}, tmp_path / "model.safetensors")
    assert castor.search(tmp_path, min="1KiB", max="64KiB").elements == found.elements
    assert "waste" in repr(found) and "<table>" in found._repr_html_()
    with pytest.raises(castor.InvalidArgument, match="chunk_size"):
        castor.search(as_list, chunk_size="1MiB")


def test_a_plan_says_what_lies_where() -> None:
    with torch.device("meta"):
        model = CASE.make()
    plan = castor.plan(model, **BUDGETS)
    assert plan.fits and not plan.reason
    held = {tier.tier: tier for tier in plan.tiers}
    assert held["device"].planned_bytes <= held["device"].budget_bytes == 2 << 20
    states = 4 * sum(p.numel() for p in model.parameters()) * 4  # parameters, gradients, two moments
    assert held["device"].planned_bytes + held["host"].planned_bytes >= states
    assert "device" in repr(plan) and "srcdoc" in plan._repr_html_()
    assert plan.command.startswith("castor plan - ")


def test_a_plan_that_does_not_fit_proposes_what_does() -> None:
    model = CASE.make()
    plan = castor.plan(model, device_budget="128KiB", host_budget="64MiB", chunk="64KiB")
    assert not plan.fits and "device budget" in plan.reason and not plan.tiers
    assert plan.changes
    assert plan.changes[0].what in repr(plan) and html.escape(plan.changes[0].what) in plan._repr_html_()


def test_a_plan_says_what_activations_leave_of_the_budget(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=32)
    config.save_pretrained(tmp_path)
    plan = castor.plan(tmp_path / "config.json", seq=32, batch=8, device_budget=4500000, host_budget="64MiB", chunk="64KiB")
    assert not plan.fits and re.search(r"beside .* of activations and overhead", plan.reason), plan


def test_a_plan_is_written_for_trainers_and_wrong_options_are_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert castor.plan(CASE.make(), output=file, **BUDGETS).fits
    assert json.loads(file.read_text())["schema"] == "castor.plan/1"
    with pytest.raises(castor.InvalidArgument, match="--device-budge"):
        castor.plan(CASE.make(), device_budge="1MiB")
    with pytest.raises(castor.CastorError, match="nothing"):
        castor.plan(tmp_path / "nothing")


def test_a_config_is_planned_without_its_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=32)
    config.save_pretrained(tmp_path)
    plan = castor.plan(tmp_path / "config.json", seq=32, **BUDGETS)
    assert plan.fits and plan.document["model"]["elements"] == sum(p.numel() for p in transformers.GPT2LMHeadModel(config).parameters())


def test_a_simulation_tells_a_steps_time() -> None:
    options = BUDGETS | {"nvme": "1GiB", "world": 1, "compute": "5ms"}
    one = castor.simulate(CASE.make(), machine=MACHINE, **options)
    assert one.fits and len(one.points) == 1
    assert "Simulation" in repr(one) and "<table>" in one._repr_html_()
    trace = ROOT / "tools" / "examples" / "traces" / "gpt_25m.json"
    swept = castor.simulate(trace, machine=MACHINE, host_budget="1GiB", sweep="device-budget=64MiB..512MiB", points=3)
    assert len(swept.points) == 3 and swept.fits
    seconds = [seconds for _, _, seconds in swept.points if seconds is not None]
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] > 0


def test_the_command_of_the_environment_is_the_command() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from castor._command import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == subprocess.run([_command.find(), "--version"], capture_output=True, text=True, check=True).stdout
