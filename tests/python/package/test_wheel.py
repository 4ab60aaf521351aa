# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The package by itself: its version, and no need of PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import castor
from castor import _abi
from castor._version import VERSION

ROOT = Path(__file__).parents[3]


def test_the_version_is_that_of_the_library() -> None:
    assert _abi.lib.castor_version().decode() == VERSION
    assert f'kVersion = "{VERSION}"' in (ROOT / "chunk" / "base" / "version.h").read_text()


def test_castor_alone_imports_no_torch() -> None:
    code = "import castor, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_line_of_the_example_runs() -> None:
    out = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "examples" / "torch" / "gpt2.py"), "--small", "--steps", "3"],
        capture_output=True, text=True, timeout=200, check=False,
    )
    assert out.returncode == 0, out.stderr[-2000:]
    losses = re.findall(r"losses (\S+) to (\S+),", out.stdout)
    plain, wrapped = ([float(loss) for loss in pair] for pair in losses)
    assert wrapped == pytest.approx(plain, rel=1e-6), out.stdout  # their last digit is the processor's


def test_sizes_are_read_and_written() -> None:
    assert castor.parse_size("1.5 GiB") == 3 << 29
    assert castor.parse_size(4096) == 4096
    assert castor.format_size(3 << 29) == "1.50 GiB"
    for wrong in ("", "8GB", "-1", 0, True, "GiB"):
        try:
            castor.parse_size(wrong)
        except castor.InvalidArgument:
            continue
        raise AssertionError(f"{wrong!r} was taken")
