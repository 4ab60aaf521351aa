# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What all tests share: the tests' folder on the path, one thread, quiet libraries."""

import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore", FutureWarning)
