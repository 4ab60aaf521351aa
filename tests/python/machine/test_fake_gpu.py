# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The package on a GPU in memory of the host, whose streams run beside the caller: its own cases, and what holds on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
LIBRARY = next(
    (path for path in (HERE.parents[1] / ".venv" / "libcastor_fake_gpu.so", HERE.parents[1] / "bazel-bin/tests/python/libcastor_fake_gpu.so") if path.exists()),
    None,
)


@pytest.mark.parametrize("streams", [1, 3])
def test_what_holds_on_the_cpu_holds_on_a_gpu(streams: int) -> None:
    assert LIBRARY is not None, "build it: bazel build //tests/python:libcastor_fake_gpu.so"
    files: list[str] = []
    chosen: list[str] = []
    if streams == 1:
        files += ["checkpoints/test_state.py", "parameters/test_lazy.py", "parameters/test_as_tensor.py", "autograd/test_gradients.py"]
        files += ["parameters/test_kept.py", "parameters/test_copies.py", "parameters/test_bytes.py", "training/test_threads.py", "optimizers/test_thaw.py"]
    else:
        files += ["helpers/gpu_cases.py", "training/test_training.py"]
        # Kernels that torch queues show more than streams that take turns, which five kinds of models try.
        chosen = ["-k", "gpu_cases or not random and not micro_batches and not first_step and not does_not_tell and not resnet and not bert and not vit "
                  "and (not plain_script or lstm or branches or autocast_checkpointed or mixtral or t5)"]
    environment = {**os.environ, "CASTOR_LIBRARY": str(LIBRARY), "CASTOR_TEST_FAKE_GPU": str(streams)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *(str(HERE / name) for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 30, done.stdout
