# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parts of transformers that transformers does not promise stand in one file of castor.torch, which needs no transformers."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import castor.torch
from castor.torch import _transformers_internals as internals


def test_this_transformers_has_all_of_them() -> None:
    pytest.importorskip("transformers", minversion="5.0")
    for path in internals.PARTS:
        module, _, name = path.partition(":")
        assert hasattr(importlib.import_module(module), name), path
    assert internals.conversion() is not None


def test_no_other_file_names_one() -> None:
    names = [word for path in internals.PARTS for word in (path.partition(":")[0], path.partition(":")[2])]
    for path in Path(castor.torch.__file__).parent.rglob("*.py"):
        if path.name != "_transformers_internals.py":
            assert not [name for name in names if name in path.read_text()], path


def test_an_import_of_castor_torch_needs_no_transformers() -> None:
    program = "import sys; sys.modules['transformers'] = None\nimport castor.torch\nfrom castor.torch import _transformers_internals as it\nassert it.conversion() is None"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
