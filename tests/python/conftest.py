# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What all tests share: their helpers on the path, one thread, quiet libraries.

With CASTOR_TEST_FAKE_GPU models are trained on a GPU in memory of the host (helpers/fake_gpu.py), as many streams as it says taking turns.
"""

import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)


def pytest_configure() -> None:
    """Temporary directories are what tests give as drives, and castor.wrap refuses memory."""
    from castor.torch._machine._drives import is_memory

    if "TMPDIR" not in os.environ and is_memory(tempfile.gettempdir()):
        os.environ["TMPDIR"] = tempfile.tempdir = "/var/tmp"


@pytest.fixture(autouse=True, scope="module")
def little_garbage_to_look_at() -> Iterator[None]:
    """Libraries make a million objects, and each collection of garbage would look at all of them."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore", FutureWarning)


@pytest.fixture(autouse=True)
def on_a_fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = os.environ.get("CASTOR_TEST_FAKE_GPU")
    if streams:
        from fake_gpu import FakeGpu

        monkeypatch.setattr("castor.torch._wrap.device_of", lambda world, device: FakeGpu(world, device, int(streams)))


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Trainers leave variables and process groups behind, which processes of later tests would take for theirs."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    if dist.is_initialized():
        dist.destroy_process_group()
