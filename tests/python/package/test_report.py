# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Reports of recorded runs, as Python sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor
import castor.torch


def trained(where: Path, steps: int = 5, every: int = 1, **wrap: Any) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh())], nn.Linear(256, 4))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with castor.torch.record(where, every=every):
        model, optimizer = castor.torch.wrap(model, optimizer, **wrap)
        for step in range(steps):
            model(torch.randn(4, 256, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def test_a_report_says_what_holds_the_run_up_and_shows_it(tmp_path: Path) -> None:
    trained(tmp_path / "run.rec", device="2MiB", host="4MiB", nvme=str(tmp_path), chunk="256KiB")
    report = castor.report(tmp_path / "run.rec")
    assert report.headline and report.headline in repr(report)
    assert report.step_seconds is not None and report.step_seconds > 0
    document = report.document
    # The run is described so well that it can be simulated.
    assert document["unread_documents"] == [] and document["simulated_step_ns"] > 0
    for proposal in report.proposals:
        assert proposal.step_seconds < document["simulated_step_ns"] / 1e9 and "castor.wrap" in proposal.lines["Python"]
    names = [name for chunk in document["chunk_list"] for name in chunk["params"]]
    assert sorted(names) == sorted(f"{2 * layer}.{what}" for layer in range(7) for what in ("weight", "bias"))
    assert all(home["why"] for chunk in document["chunk_list"] for home in chunk["homes"])
    rank = document["detail"]["ranks"][0]
    assert [phase["phase"] for phase in rank["phases"]] == ["forward", "backward", "update"] and rank["spans"] and rank["moves"]

    report.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and len(page) < 5 * 2**20
    assert json.loads(page.split('id="document">')[1].split("</script>")[0])["headline"] == report.headline
    assert "srcdoc" in report._repr_html_()

    as_it_was = castor.simulate(tmp_path / "run.rec")
    assert as_it_was.step_seconds == pytest.approx(document["simulated_step_ns"] / 1e9)
    roomy = castor.simulate(tmp_path / "run.rec", host_budget="64MiB", device_budget="64MiB")
    assert roomy.fits and roomy.points[0][:2] == (64 * 2**20, 64 * 2**20)


def test_steps_are_chosen_and_what_is_no_record_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "run.rec", steps=4)
    assert [step["step"] for step in castor.report(tmp_path / "run.rec", steps="2-3").document["steps"]] == [2, 3]
    with pytest.raises(castor.InvalidArgument, match="the record holds steps 1 to 4"):
        castor.report(tmp_path / "run.rec", steps="9")
    trained(tmp_path / "some.rec", steps=10, every=4)
    assert [step["step"] for step in castor.report(tmp_path / "some.rec").document["steps"]] == [1, 5, 9]
    with pytest.raises(castor.InvalidArgument, match="every -1 steps"):
        trained(tmp_path / "none.rec", every=-1)
    (tmp_path / "other").write_text("no record")
    with pytest.raises(castor.Malformed, match="not a record"):
        castor.report(tmp_path / "other")
