# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What older torches lack: skips of tests that need it, and a newer torch that acts as an older one."""

from __future__ import annotations

import re

import pytest
import torch

from castor.torch import _torch_internals as internals
from castor.torch._autograd import _saves


def is_before(version: str) -> bool:
    """Whether this torch is older than `version`."""
    return _numbers(torch.__version__) < _numbers(version)


def needs_torch(version: str, what: str) -> pytest.MarkDecorator:
    """Skips a test under an older torch than `version`, the first that has what the test uses."""
    return pytest.mark.skipif(is_before(version), reason=f"torch {torch.__version__} is before {version}: {what}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.match(r"\d+(\.\d+)*", version)[0].split("."))  # type: ignore[index]


_CALLS = {"push_saving_hooks": "_push_saved_tensors_default_hooks", "pop_saving_hooks": "_pop_saved_tensors_default_hooks"}


def tells_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch before 2.8, which does not say what the innermost hooks on saved tensors are: Castor notes those that come."""
    place = torch._C._autograd
    for name in _CALLS.values():
        monkeypatch.setattr(place, name, getattr(place, name))  # for what undoes the replacement
    monkeypatch.setattr(_saves, "top_saving_hooks", internals.follow_saving_hooks())
    for ours, name in _CALLS.items():
        monkeypatch.setattr(_saves, ours, getattr(place, name))
