# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A signal's checkpoint: a preempted run goes on to the bit, on several ranks too, and a script's handlers stay its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
import ranks
from castor.torch._checkpoints import _save_on

WORKER = Path(__file__).parents[1] / "helpers" / "save_on_worker.py"
PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


def started(what: str, folder: Path, *launcher: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "CASTOR_TEST_GO": str(folder / "go")}
    return subprocess.Popen([sys.executable, *launcher, str(WORKER), what, str(folder / "saved")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    lines: list[str] = []
    assert process.stdout is not None
    late = threading.Timer(60, process.kill)
    late.start()
    while not lines or lines[-1] != last:
        line = process.stdout.readline()
        assert line, (lines, process.communicate()[1])
        lines.append(line.strip())
    late.cancel()
    return lines


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before
    signal.signal(signal.SIGTERM, before)


def made() -> tuple[nn.Module, Any]:
    torch.manual_seed(3)
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), device="8MiB", host="32MiB")


def step(model: nn.Module, optimizer: Any) -> None:
    model(torch.ones(2, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def ask(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_a_preempted_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    """The signal comes twice, as from a batch system and from a launcher."""
    first = started("first", tmp_path)
    want, _ = lines_until(first, "step 2")
    first.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    _, words = first.communicate(timeout=60)
    assert first.returncode == 143, words
    assert "SIGTERM came: saving step 3" in words and "ends with status 143" in words
    assert castor.checkpoints(str(tmp_path / "saved")) == [3]
    resumed = started("resumed", tmp_path)
    got, words = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, words
    assert got.split() == [want]


def test_a_second_signal_ends_the_process_amid_the_save(tmp_path: Path) -> None:
    process = started("second", tmp_path)
    lines_until(process, "step 2")
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    lines_until(process, "saving")
    time.sleep(1.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM
    assert not (tmp_path / "saved").exists()


def test_torchrun_passes_the_signal_on(tmp_path: Path) -> None:
    process = started("ranks", tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    lines_until(process, "step 2")
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    _, words = process.communicate(timeout=60)
    assert process.returncode != 0
    assert words.count("SIGTERM came: saving step 3") == 1, words
    assert castor.checkpoints(str(tmp_path / "saved")) == [3]


@pytest.mark.parametrize("gloo", [False, True])
def test_ranks_agree(gloo: bool, tmp_path: Path) -> None:
    """The signal comes to one rank, and to both at different moments. Steps may share an agreement, which comes behind steps 1, 9 and 17 then."""
    assert ranks.run("save_on", 2, tmp_path, **({"CASTOR_TEST_GLOO": "1"} if gloo else {})) == {
        "one": [[143, 3], [143, 3]], "both": [[143, 3], [143, 3]], "none": [[0, 5], [0, 5]], "same": True, "shared": [[143, 17], [143, 17]]}


def test_a_signal_between_steps_waits_for_the_next(tmp_path: Path) -> None:
    model, optimizer = made()
    with castor.save_on(tmp_path, model, extra={"name": "kept"}, keep=1):
        step(model, optimizer)
        ask()
        with torch.no_grad():
            model(torch.ones(2, 8))
        assert castor.checkpoints(str(tmp_path)) == []
        with pytest.raises(SystemExit) as end:
            step(model, optimizer)
        assert end.value.code == 143
        step(model, optimizer)  # of a script that goes on: one signal is one save
    assert castor.checkpoints(str(tmp_path)) == [2]
    assert castor.load(str(tmp_path), model) == {"name": "kept"}


def test_the_end_of_the_context_saves_behind_the_last_step(tmp_path: Path) -> None:
    model, optimizer = made()
    with pytest.raises(SystemExit) as end, castor.save_on(tmp_path, model, signals=[signal.SIGUSR1], extra=lambda: "at the end"):
        step(model, optimizer)
        ask(signal.SIGUSR1)
    assert end.value.code == 128 + signal.SIGUSR1
    assert castor.load(str(tmp_path), model) == "at the end"
    with pytest.raises(ValueError, match="own"), castor.save_on(tmp_path, model):
        ask()
        raise ValueError("of the script's own")


def test_a_scripts_own_handler_is_called_before(tmp_path: Path) -> None:
    model, optimizer = made()
    said: list[str] = []

    def own(*_: Any) -> None:
        said.append("own")

    before = signal.signal(signal.SIGTERM, own)
    try:
        with castor.save_on(tmp_path, model, extra=lambda: said.append("saves")):
            ask()
            with pytest.raises(SystemExit):
                step(model, optimizer)
        assert said == ["own", "saves"]
        assert signal.getsignal(signal.SIGTERM) is own
        with castor.save_on(tmp_path, model):  # a handler from inside stays
            later = signal.signal(signal.SIGTERM, lambda *_: said.append("later"))
            assert callable(later)
            inside = signal.getsignal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is inside
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_later_handler_may_call_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the save is on, a second time, and behind the end: each signal reaches the script's first handler once."""
    monkeypatch.setattr(_save_on, "_SAME_SIGNAL_S", 0.0)
    model, optimizer = made()
    said: list[int] = []
    number = signal.SIGRTMIN + 1  # which has no name
    before = signal.signal(number, lambda number, _: said.append(number))
    try:
        with castor.save_on(tmp_path, model, signals=(number,)):
            chained: Any = signal.getsignal(number)
            signal.signal(number, lambda *arguments: chained(*arguments))
            ask(number)
            with pytest.raises(SystemExit) as end:
                step(model, optimizer)
            assert end.value.code == 128 + number
            ask(number)
        ask(number)
    finally:
        signal.signal(number, before)
    assert said == [number] * 3


def test_a_handler_that_raises_has_the_signal(tmp_path: Path) -> None:
    model, optimizer = made()

    def own(*_: Any) -> None:
        raise RuntimeError("of the script's own")

    before = signal.signal(signal.SIGTERM, own)
    try:
        with castor.save_on(tmp_path, model):
            with pytest.raises(RuntimeError, match="own"):
                ask()
            step(model, optimizer)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert castor.checkpoints(str(tmp_path)) == []


def test_ctrl_c_can_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_save_on, "_SAME_SIGNAL_S", 0.0)
    model, optimizer = made()
    with castor.save_on(tmp_path, model, signals=(signal.SIGINT,)):
        ask(signal.SIGINT)
        with pytest.raises(SystemExit) as end:
            step(model, optimizer)
        assert end.value.code == 130
        with pytest.raises(KeyboardInterrupt):
            ask(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_late_save_can_be_ended_inside_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python calls no handler there."""
    monkeypatch.setattr(_save_on, "_SAME_SIGNAL_S", 0.1)
    model, optimizer = made()
    found: list[Any] = []
    with castor.save_on(tmp_path, model, extra=lambda: found.append(signal.getsignal(signal.SIGTERM))):
        ask()
        time.sleep(0.1)
        with pytest.raises(SystemExit):
            step(model, optimizer)
    assert found == [signal.getsignal(signal.SIGTERM)]


def test_a_forked_child_ends_as_without(tmp_path: Path) -> None:
    model, _ = made()
    with castor.save_on(tmp_path, model):
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            os.write(writes, b"forked")  # until when Python drops signals
            time.sleep(20)
            os._exit(1)
        assert os.read(reads, 6)
        os.kill(child, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
        os.close(reads)
        os.close(writes)


def test_records_and_background_saves_are_whole(tmp_path: Path) -> None:
    saved, record = str(tmp_path / "saved"), tmp_path / "run.rec"
    with pytest.raises(SystemExit), castor.record(record):
        model, optimizer = made()
        with castor.save_on(saved, model):
            step(model, optimizer)
            castor.save(saved, model, background=True)
            ask()
            step(model, optimizer)
    assert castor.checkpoints(saved) == [1, 2]
    for number in (1, 2):
        castor.load(saved, model, step=number)
    size = record.stat().st_size
    step(model, optimizer)
    assert size == record.stat().st_size > 0


def test_the_page_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = PAGE.read_text().split("### Preemption")[1].split("<!-- tested -->\n```python\n")[1].split("```")[0].replace("1000", "6")

    def run(signal_in: int) -> dict[str, torch.Tensor]:
        def loss_of(model: nn.Module, number: int) -> torch.Tensor:
            if number == signal_in:
                ask()
            return model(torch.full((2, 8), float(number))).pow(2).mean()

        model, optimizer = made()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)
        there = {"os": os, "castor": castor, "model": model, "optimizer": optimizer, "scheduler": scheduler, "loss_of": loss_of}
        exec(compile(code, "pytorch.md", "exec"), there)
        return {name: values.clone() for name, values in model.state_dict().items()}

    want = run(-1)
    for number in (2, 4):
        with pytest.raises(SystemExit):
            run(number)
    assert castor.checkpoints("run") == [3, 5]
    for name, values in run(-1).items():
        assert torch.equal(values, want[name]), name


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    model, _ = made()
    found: list[BaseException] = []

    def elsewhere() -> None:
        try:
            castor.save_on(tmp_path, model)
        except castor.InvalidArgument as error:
            found.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "call it in the main thread" in str(found[0])
    with pytest.raises(castor.InvalidArgument, match="cannot handle the signal .*signal.SIGTERM"):
        castor.save_on(tmp_path, model, signals=(signal.SIGTERM, signal.SIGKILL))
    with pytest.raises(castor.InvalidArgument, match="was given no signals"):
        castor.save_on(tmp_path, model, signals=())
    with pytest.raises(castor.FailedPrecondition, match="not wrapped"):
        castor.save_on(tmp_path, nn.Linear(2, 2))
    first = castor.save_on(tmp_path, model)
    other, _ = made()
    with pytest.raises(castor.FailedPrecondition, match="on for another model"):
        castor.save_on(tmp_path, other)
    castor.save_on(tmp_path, model).close()  # the same model's takes the place
    first.close()
    castor.save_on(tmp_path, other).close()
