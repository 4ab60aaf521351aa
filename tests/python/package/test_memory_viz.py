# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What ``castor report --memory-viz`` writes of a run is what torch's own viewer of memory reads."""

from __future__ import annotations

import gc
import pickle
import subprocess
from typing import Any

import pytest
from torch.cuda import _memory_viz

import castor.torch as castor
from castor import _command
from harness import train
from models import gpt2, language


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("record")
    with castor.record(folder / "run.rec"):
        train(gpt2, language, {"device": "600KiB", "host": "64MiB", "chunk": "16KiB"}, steps=3)
        gc.collect()
    subprocess.run([_command.find(), "report", str(folder / "run.rec"), "--memory-viz", str(folder / "run.pickle")], check=True, capture_output=True)
    return pickle.loads((folder / "run.pickle").read_bytes())


def test_each_tier_is_a_device_with_its_segment(snapshot: Any) -> None:
    named = [segment["frames"][0]["name"] for segment in snapshot["segments"]]
    assert named == ["rank 0, device", "rank 0, host"]
    assert len(snapshot["device_traces"]) == len(named)
    said = [event["frames"][0]["name"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"]
    assert any("(fetched ahead)" in words for words in said)
    homes = [event["frames"][0]["name"] for event in snapshot["device_traces"][1] if event["action"] == "alloc"]
    assert any(words.startswith("exp_avg at home on host, ") for words in homes)


def test_it_sums_segments_and_tells_the_trace(snapshot: Any) -> None:
    assert f"segments: {len(snapshot['segments'])}" in _memory_viz.segsum(snapshot)
    told = _memory_viz.trace(snapshot)
    assert "Device 0 -------" in told and "cudaMalloc" in told
    assert "MEM[" not in told, "an allocation lies in no segment"


def test_it_folds_stacks(snapshot: Any) -> None:
    lines = _memory_viz.memory(snapshot, format_flamegraph=lambda folded: folded).splitlines()
    assert any(line.startswith("stream_0;active_allocated;castor:0:rank 0, host;castor:0:exp_avg at home") for line in lines), lines
    _memory_viz.segments(snapshot, format_flamegraph=lambda folded: folded)


def test_it_draws_each_view(snapshot: Any) -> None:
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Active Cached Memory Timeline" in _memory_viz.trace_plot(snapshot, plot_segments=True)
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)


def test_what_is_left_at_the_end_is_what_was_never_freed(snapshot: Any) -> None:
    left = [sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated") for segment in snapshot["segments"]]
    kept = _memory_viz.filter_alloc_free_pairs(pickle.loads(pickle.dumps(snapshot)))
    never = [sum(event["size"] for event in trace if event["action"] == "alloc") for trace in kept["device_traces"]]
    assert left == never
