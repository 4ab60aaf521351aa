# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parts of torch that torch does not promise stand in one file, and a torch that lacks one is no reason for an import to fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import castor.torch
from castor.torch import _torch_internals as internals
from older_torch import is_before

_UNPROMISED = re.compile(r"\btorch(\.[a-z]\w*)*\._[A-Za-z]\w*|\bfrom torch(\.[a-z]\w*)* import _|\bfrom torch(\.\w+)*\._|_execution_engine")


def test_this_torch_has_all_of_them() -> None:
    """Those that are known to be of later torches aside."""
    assert [part.path for part in internals.PARTS.values() if not part.there and not is_before(part.since or "0")] == []


def test_no_other_file_names_one() -> None:
    found = []
    for path in Path(castor.torch.__file__).parent.rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            named = _UNPROMISED.search(re.sub(r"castor\.torch(\.\w+)*", "", line.split("  # ")[0]))
            if named and path.name != "_torch_internals.py":
                found.append(f"{path.name}:{number}: {named[0]}")
    assert found == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_an_import_does_without_any_one_of_them() -> None:
    """And what Castor cannot do without says so, with the version of torch, once it is used."""
    program = textwrap.dedent("""
        import importlib, os, sys, torch
        import torch._functorch.eager_transforms, torch._functorch.vmap, torch.jit._recursive, torch._subclasses.fake_tensor
        for path in sys.argv[1:]:
            module, _, names = path.partition(":")
            *holders, name = names.split(".")
            child = os.fork()
            if child == 0:
                place = importlib.import_module(module)
                for holder in holders:
                    place = getattr(place, holder)
                try:
                    delattr(place, name)
                except (AttributeError, TypeError):
                    os._exit(0)  # of a class of C++'s, or found anew: it cannot be gone
                try:
                    import castor.torch
                    from castor.torch import _torch_internals as internals
                    os._exit(0 if not internals.PARTS[path].there else 3)
                except BaseException as error:
                    print(path, type(error).__name__, error, flush=True)
                    os._exit(4)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, path
        print("all", len(sys.argv) - 1)
    """)
    ran = subprocess.run([sys.executable, "-c", program, *internals.PARTS], capture_output=True, text=True, timeout=600, check=False)
    assert ran.stdout.split("\n")[-2:-1] == [f"all {len(internals.PARTS)}"], ran.stdout + ran.stderr


def test_what_is_missing_is_named_when_it_is_used() -> None:
    missing = internals._part("torch._C:_of_a_torch_to_come", "a test")
    internals.PARTS.pop("torch._C:_of_a_torch_to_come")
    with pytest.raises(castor.torch.CastorError, match=rf"torch {re.escape(torch.__version__)} has no torch\._C\._of_a_torch_to_come, which Castor needs for a test"):
        missing()
