# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The C ABI through ctypes: the library, its errors, and all that castor.h declares.

Structs, constants and functions are made of castor.h when Castor is built (collectives/c_api/bindings.py). A call lets other Python threads run.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int32, c_void_p
from pathlib import Path

from castor import _castor_h
from castor._castor_h import *  # noqa: F403
from castor.errors import BY_CODE, BudgetRaise, CastorError, DoesNotFit, FailedPrecondition, Unavailable

# Of castor_set_interrupt, which takes null as well.
Interrupt = CFUNCTYPE(c_int32, c_void_p)


def _find() -> list[str]:
    """Where the library may be, best first."""
    named = os.environ.get("CASTOR_LIBRARY")
    if named:
        return [named]
    return [str(Path(__file__).parent / "lib" / "libcastor.so.0"), "libcastor.so.0"]


def _load() -> ctypes.CDLL:
    refused = []
    for path in _find():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            refused.append(str(error))
            continue
        loaded.castor_abi_version.restype = c_int32
        version = loaded.castor_abi_version()
        if version != _castor_h.ABI_VERSION:
            raise Unavailable(f"{path} has version {version} of the C ABI, and this package needs {_castor_h.ABI_VERSION}")
        for name, (result, arguments) in _castor_h.FUNCTIONS.items():
            function = getattr(loaded, name)
            function.argtypes = arguments
            function.restype = result
        return loaded
    raise Unavailable(
        "libcastor.so.0 cannot be loaded: install the wheel, or name the library by CASTOR_LIBRARY (" + "; ".join(refused) + ")"
    )


lib = _load()


# Functions of castor.h that errors name, as a script in Python has them.
IN_PYTHON = {
    "castor_engine_abandon": "optimizer.zero_grad()", "castor_engine_begin_micro_batch": "a forward", "castor_engine_clip_gradients": "clip_grad_norm_",
    "castor_engine_close": "the end of the model", "castor_engine_finish_gradients": "reading p.grad", "castor_engine_finish_save": "the next castor.save",
    "castor_engine_give_grads": "loss.backward()", "castor_engine_grad": "loss.backward()", "castor_engine_guess_updates": "loss.backward()",
    "castor_engine_load": "castor.load", "castor_engine_park": "castor.sleep(model)",
    "castor_engine_reseal": "other budgets", "castor_engine_resume": "castor.wake(model)", "castor_engine_save": "castor.save", "castor_engine_seal": "castor.wrap",
    "castor_engine_set_loss_scale": "setting the loss scale", "castor_engine_set_update": "castor.wrap", "castor_engine_set_updates": "optimizer.load_state_dict",
    "castor_engine_step": "optimizer.step()", "castor_engine_update_early": "update_in_backward=True", "castor_engine_write": "writing values",
    "castor_engine_write_back": "writing values",
}
_NAMES = re.compile(r"\bcastor_engine_\w+")


def in_python(words: str) -> str:
    """A message of the library's, as a script in Python reads it."""
    return _NAMES.sub(lambda found: IN_PYTHON.get(found[0], found[0]), words)


# What the ranks of a world know of an error's words, such as the hosts of the ranks that they name; the newest world is last.
tellers: list[Callable[[str], str]] = []


def error(code: int) -> CastorError:
    """The exception for what this thread's last call failed with."""
    words = lib.castor_last_error().decode(errors="replace")
    if words == "engine is null":
        return FailedPrecondition("the wrapped model is gone: keep it as long as its optimizer, its parameters and losses computed by it are used")
    if tellers:
        words = tellers[-1](words)
    failed = BY_CODE.get(code, CastorError)(in_python(words))
    if isinstance(failed, DoesNotFit):
        raises = (_castor_h.Raise * lib.castor_last_raises(None, 0))()
        lib.castor_last_raises(raises, len(raises))
        failed.raises = tuple(BudgetRaise(each.device, each.host, each.nvme) for each in raises)
    return failed


def check(code: int) -> None:
    """Raises what a call failed with."""
    if code:
        raise error(code)
