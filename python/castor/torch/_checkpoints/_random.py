# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Every rank's random states: torch's, Python's, numpy's and the device's. A checkpoint has those of all ranks, and a rank takes back its own."""

from __future__ import annotations

import io
import random
import sys
from typing import Any, Union

import torch

from castor.torch._runtime import Runtime

_WORD = 7  # bytes of a word, which stays positive and below the greatest int64
_ABSENT = (1 << 63) - 1


def states_of_ranks(runtime: Runtime) -> list[bytes]:
    """All ranks call it, and get the same."""
    numpy: Any = sys.modules.get("numpy.random")  # a script that has not loaded it draws nothing from it
    state = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": None if numpy is None else numpy.get_state(),
        "device": runtime.device.random_state(),
    }
    text = io.BytesIO()
    torch.save(state, text)
    return _of_ranks(runtime, text.getvalue())


def take_own(runtime: Runtime, states: Union[list[bytes], dict[str, Any]]) -> None:
    """A rank that the saved world did not have keeps the states that it has."""
    rank = runtime.engine.world.rank
    if rank >= (1 if isinstance(states, dict) else len(states)):
        return
    if isinstance(states, dict):  # an earlier Castor saved rank 0's alone, and none of numpy's
        state = states
    else:
        state = torch.load(io.BytesIO(states[rank]), map_location="cpu", weights_only=False)
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if state.get("numpy") is not None:
        import numpy

        numpy.random.set_state(state["numpy"])
    if state.get("device") is not None:
        runtime.device.set_random_state(state["device"])


def _of_ranks(runtime: Runtime, mine: bytes) -> list[bytes]:
    """Each rank's bytes, by the least of words that one rank alone has said."""
    world = runtime.engine.world
    if world.size == 1:
        return [mine]
    sizes = [_ABSENT] * world.size
    sizes[world.rank] = len(mine)
    sizes = runtime.engine.least_of_ranks(sizes)
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] - (-size // _WORD))
    words = [_ABSENT] * starts[-1]
    words[starts[world.rank] : starts[world.rank + 1]] = [int.from_bytes(mine[at : at + _WORD], "little") for at in range(0, len(mine), _WORD)]
    words = runtime.engine.least_of_ranks(words)
    return [
        b"".join(word.to_bytes(_WORD, "little") for word in words[start:end])[:size] for start, end, size in zip(starts, starts[1:], sizes)
    ]


__all__ = ["states_of_ranks", "take_own"]
