# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Ranks that are processes: next to DDP, at every stage, with leases that end at random on each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import run

@pytest.mark.parametrize("ranks", [2, 3])
def test_losses_are_those_of_ddp_and_bits_the_same_at_every_stage(ranks: int, tmp_path: Path) -> None:
    for case in run("equal", ranks, tmp_path):
        digests = {made["digest"] for made in case["castor"]}
        assert len(digests) == 1, case["name"]
        for made in case["castor"]:
            assert made["losses"] == pytest.approx(case["plain"]["losses"], rel=1e-5), case["name"]


def test_ranks_of_several_hosts_meet_by_gloo(tmp_path: Path) -> None:
    (tmp_path / "gloo").mkdir()
    shared, gloo = run("save", 2, tmp_path), run("save", 2, tmp_path / "gloo", CASTOR_TEST_GLOO="1")
    assert shared["losses"] == gloo["losses"] and shared["digest"] == gloo["digest"]
    assert "rank 1" in run("alone", 2, tmp_path / "gloo", CASTOR_TEST_GLOO="1")


def test_experts_are_units_whose_inner_calls_may_differ_by_rank(tmp_path: Path) -> None:
    found = run("experts", 2, tmp_path)
    assert len({made["digest"] for made in found["castor"]}) == 1
    for made in found["castor"]:
        assert made["losses"] == pytest.approx(found["plain"]["losses"], rel=1e-5)


def test_experts_that_are_no_units_are_named(tmp_path: Path) -> None:
    said = run("experts_without_units", 2, tmp_path)
    assert "units=" in said, said


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_ranks_share_the_cores_that_they_may_all_use(tmp_path: Path) -> None:
    assert run("cores", 2, tmp_path) == [2, 1]


@pytest.mark.parametrize("gloo", [False, True])
def test_models_that_are_gone_leave_no_world_behind(gloo: bool, tmp_path: Path) -> None:
    second, files, sixth, more_files = run("many_models", 2, tmp_path, **({"CASTOR_TEST_GLOO": "1"} if gloo else {}))
    assert sixth <= second and more_files <= files


def test_every_rank_has_the_names_of_a_state_dict_and_rank_0_its_values(tmp_path: Path) -> None:
    """So PEFT's load_adapter does on two ranks what it does on one. What would take names for values is refused at once."""
    pytest.importorskip("peft")
    alone, (of_one, _) = run("names", 1, tmp_path)
    losses, (of_0, none), (of_1, refused) = run("names", 2, tmp_path)
    assert losses == pytest.approx(alone, rel=1e-4) and losses[2] == pytest.approx(losses[0], rel=0.2)
    assert of_0 == of_1 == of_one and not none
    assert len(refused) == 5 and all("this rank has names and shapes, and rank 0 the values" in said for said in refused)


def test_each_rank_takes_its_own_random_states_from_a_checkpoint(tmp_path: Path) -> None:
    saved = run("streams_saved", 2, tmp_path)
    assert all(mine != theirs for mine, theirs in zip(*saved))
    assert run("streams_loaded", 2, tmp_path) == saved
    assert run("streams_loaded", 1, tmp_path) == saved[:1]
    three = run("streams_loaded", 3, tmp_path)
    assert three[:2] == saved
    assert all(mine not in of_them for mine, *of_them in zip(three[2], *saved))


def test_files_that_lack_a_layer_load_on_every_rank(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    assert run("partial_weights", 2, tmp_path) == {"listed": True, "loaded": True, "kept": True}


def test_experts_in_parts_load_on_every_rank_into_a_model_without_values(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert run("weights_in_parts", 2, tmp_path) == {"left": [[], []], "same": True}


def test_a_checkpoint_is_resumed_at_other_numbers_of_ranks(tmp_path: Path) -> None:
    run("save", 2, tmp_path)
    digests = {run("load", ranks, tmp_path)["digest"] for ranks in (2,)}
    assert len(digests) == 1
    one = run("load", 1, tmp_path)
    three = run("load", 3, tmp_path)
    assert len(one["losses"]) == len(three["losses"]) == 4


def test_ranks_that_would_share_a_gpu_are_told_of_set_device(tmp_path: Path) -> None:
    said = run("gpus", 2, tmp_path)
    assert said["shared"].startswith("InvalidArgument: ranks 0, 1 would share a GPU, here cuda:0: call torch.cuda.set_device(")
    assert not said["own"].startswith("InvalidArgument")


def test_lines_of_a_script_do_on_two_ranks_what_they_do_on_a_plain_model(tmp_path: Path) -> None:
    assert run("as_tensor", 2, tmp_path) == []


def test_ranks_that_write_different_values_are_told_where(tmp_path: Path) -> None:
    said = run("writes_that_differ", 2, tmp_path)
    assert said["differ"] == ["2.weight was written to with different values: all ranks must write the same"] * 2
    assert all("ranks disagree" in words for words in said["alone"])
    assert said["alone"][1].startswith("2.weight: ")


def test_ranks_begin_with_the_values_of_rank_0(tmp_path: Path) -> None:
    assert run("initial_values", 2, tmp_path) == {"made": True, "lazy": True}


def test_branches_that_differ_by_rank_and_by_data_are_for_stages_0_to_2(tmp_path: Path) -> None:
    said = run("branches", 2, tmp_path)
    assert said["differs"] == [] and said["made"] > 70
    assert all("ranks disagree" in words and "stage=2" in words for words in said["at stage 3"]), said


def test_plan_and_wrap_ask_for_the_same_on_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    assert run("budgets", 2, tmp_path) == []


def test_ranks_that_are_not_connected_are_told_so(tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text(
        "import torch, castor.torch as castor\n"
        "model = torch.nn.Linear(4, 4)\n"
        "castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "call castor.join()" in done.stderr


def test_ranks_may_evaluate_unevenly(tmp_path: Path) -> None:
    assert run("evaluations", 2, tmp_path)


def test_gradients_are_read_and_written_as_under_ddp(tmp_path: Path) -> None:
    found = run("gradients", 2, tmp_path)
    for stage in ("0", "1", "2", "3"):
        for mine, theirs in zip(found[stage], found["plain"]):
            assert mine == pytest.approx(theirs, rel=1e-4, abs=2e-6), stage


def test_gradients_of_ignored_modules_are_averaged(tmp_path: Path) -> None:
    found = run("ignored", 2, tmp_path)
    for mine, theirs in zip(found["castor"], found["plain"]):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_collectives_of_torchs_write_to_parameters(tmp_path: Path) -> None:
    assert run("collectives", 2, tmp_path)


def test_data_comes_from_forked_workers(tmp_path: Path) -> None:
    found = run("loaders", 2, tmp_path)
    assert len(found["plain"]) == 8
    assert found["castor"] == pytest.approx(found["plain"], rel=1e-5)


def test_one_rank_alone_is_told_so_within_the_timeout(tmp_path: Path) -> None:
    said = run("alone", 2, tmp_path)
    assert "rank 1" in said, said


def test_other_optimizers_do_as_under_ddp_and_have_the_same_bits_everywhere(tmp_path: Path) -> None:
    for case in run("any_optimizer", 3, tmp_path):
        assert len(set(case["digests"])) == 1, case["name"]
        plain, *castor = case["losses"]
        for losses in castor:
            assert losses == pytest.approx(plain, rel=1e-5), case["name"]
        counts = case["counts"]
        assert counts[0] and all(other == counts[0] for other in counts[1:]), case["name"]


def test_optimizers_of_whole_parameters_have_the_same_bits_at_every_stage(tmp_path: Path) -> None:
    for case in run("whole_on_ranks", 3, tmp_path):
        assert len(set(case["digests"])) == 1, case
        assert len(set(case["states"])) == 1, case
        assert all(case["near"]), case


def test_a_parameter_without_a_gradient_after_a_checkpoint_does_not_count(tmp_path: Path) -> None:
    for counts in run("resumed_without_a_gradient", 2, tmp_path):
        assert counts == [4.0, 4.0, 3.0, 3.0]


def test_ranks_whose_optimizers_have_other_numbers_are_told_so(tmp_path: Path) -> None:
    assert "different steps" in run("numbers_differ", 2, tmp_path)


def test_ranks_that_differ_are_told_so(tmp_path: Path) -> None:
    said = run("differ", 2, tmp_path)
    assert "different parameters" in said, said


def test_layers_are_thawed_on_all_ranks_or_on_none(tmp_path: Path) -> None:
    found = run("thaws", 2, tmp_path)
    refused, kept, went_on = (found.pop(name) for name in ("refused", "kept", "went on"))
    assert len(found) == 6 and all(difference < 1e-6 for difference in found.values()), found
    assert "frozen at castor.wrap, 1.weight the first, and stay frozen" in refused and not refused.startswith("0 raises")
    assert kept and went_on


def test_a_refusal_names_raises_that_are_enough_and_no_byte_more_than_that(tmp_path: Path) -> None:
    assert run("raises", 2, tmp_path) == []


def test_ranks_that_were_all_stopped_go_on(tmp_path: Path) -> None:
    """As by Ctrl-Z and fg of the whole run, which no signal brings to all ranks at once."""
    found: list[Any] = []
    training = threading.Thread(target=lambda: found.append(run("stopped", 2, tmp_path)))
    training.start()
    files = [tmp_path / f"pid-{rank}" for rank in (0, 1)]
    until = time.monotonic() + 60
    while not all(file.exists() and file.read_text() for file in files) and time.monotonic() < until:
        time.sleep(0.05)
    ranks = [int(file.read_text()) for file in files]
    for begin, end in ((0, 1), (1, 0)):
        time.sleep(0.2)
        for rank in (begin, end):
            os.kill(ranks[rank], signal.SIGSTOP)
            time.sleep(0.2)
        time.sleep(3)  # and ranks wait for each other for two seconds
        for rank in (begin, end):
            os.kill(ranks[rank], signal.SIGCONT)
            time.sleep(0.5)
    (tmp_path / "end").touch()
    training.join(60)
    assert found, (tmp_path / "stopped-2.log").read_text()
    assert sum(gap > 2.5 for gap in found[0]) == 2, sorted(found[0])[-5:]


def test_edits_of_groups_and_states_are_those_of_the_plain_script(tmp_path: Path) -> None:
    found = run("edits", 2, tmp_path)
    assert len(found) == 12 and all(difference < 1e-6 for difference in found.values()), found
