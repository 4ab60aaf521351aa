# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The `castor` command that the wheel carries: for Python to ask, and for people, as a command of the environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from castor.errors import BY_CODE, CastorError, Unavailable


def find() -> str:
    """The path of the command: CASTOR_COMMAND, else the wheel's, else what the shell finds."""
    named = os.environ.get("CASTOR_COMMAND")
    if named:
        return named
    carried = Path(__file__).parent / "bin" / "castor"
    if carried.exists():
        return str(carried)
    # The wheel's own entry point would call itself.
    found = shutil.which("castor")
    if found and Path(found).parent != Path(sys.executable).parent:
        return found
    raise Unavailable("the castor command is not here: install the wheel, or name the command by CASTOR_COMMAND")


def flags_of(options: Mapping[str, Any]) -> list[str]:
    """``device_budget="8GiB", recompute=True, limit=["a", "b"]`` as flags of the command. What is None or False is left away."""
    flags: list[str] = []
    for word, value in options.items():
        flag = "--" + word.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                flags.append(flag)
            elif one is not None and one is not False:
                flags += [flag, str(one)]
    return flags


def _environment() -> dict[str, str]:
    """With the Python that runs this, which the command asks what is installed beside it."""
    return {"CASTOR_PYTHON": sys.executable} | os.environ


def ask(arguments: Sequence[str], given: Optional[str] = None) -> dict[str, Any]:
    """The JSON document of a command. An answer of "it does not fit" is one; other failures are exceptions by kind."""
    run = subprocess.run(
        [find(), *arguments, "--json"], input=given or "", env=_environment(), capture_output=True, text=True, check=False
    )
    if run.stdout.startswith("{"):
        document: dict[str, Any] = json.loads(run.stdout)
        return document
    said = [line for line in run.stderr.splitlines() if line and not line.startswith("castor: note:")]
    raise BY_CODE.get(run.returncode, CastorError)("\n".join(said) or f"castor ended with {run.returncode}")


def main() -> None:
    """Becomes the command."""
    try:
        command = find()
    except Unavailable as error:
        sys.exit(f"castor: {error}")
    os.execve(command, ["castor", *sys.argv[1:]], _environment())
