# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The C ABI (castor.h) through ctypes: its structs, constants and functions, one to one.

A call lets other Python threads run. tests/python/package/test_abi.py compares all of it with the header.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

from castor.errors import BY_CODE, BudgetRaise, CastorError, DoesNotFit, FailedPrecondition, Unavailable

ABI_VERSION = 1

LR, BETA1, BETA2, EPS, WEIGHT_DECAY, MOMENTUM = 1, 2, 4, 8, 16, 32
PARAM, GRAD, MASTER, OPTIMIZER_STATE = range(4)
STATES = 11
DEVICE, HOST, NVME = range(3)

AllGather = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p, c_int64)
AllToAll = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, POINTER(c_int64), c_void_p, POINTER(c_int64))
Barrier = CFUNCTYPE(c_int32, c_void_p, c_uint64)
Abort = CFUNCTYPE(None, c_void_p, c_char_p)
Release = CFUNCTYPE(None, c_void_p)
Log = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
Initializer = CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64, POINTER(c_float))
Interrupt = CFUNCTYPE(c_int32, c_void_p)
Allocate = CFUNCTYPE(c_int32, c_void_p, c_int64, POINTER(c_void_p))
ReleaseMemory = CFUNCTYPE(None, c_void_p, c_void_p)


class _Sized(Structure):
    """A struct that begins with its own size."""

    def __init__(self, **members: object) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


class Raise(Structure):
    _fields_ = [("device", c_int64), ("host", c_int64), ("nvme", c_int64)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dims", POINTER(c_int64)), ("dim_count", c_int32), ("frozen", c_int32), ("dtype", c_char_p)]


class WorldOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("threads", c_int32), ("gpu", c_int32), ("timeout_ms", c_int64), ("log", Log),
        ("log_context", c_void_p),
    ]


class Callbacks(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("context", c_void_p), ("all_gather", AllGather), ("all_to_all", AllToAll), ("barrier", Barrier),
        ("abort", Abort), ("release", Release),
    ]


class NcclUniqueId(Structure):
    _fields_ = [("bytes", c_char * 4096)]


class Allocator(_Sized):
    _fields_ = [("struct_size", c_size_t), ("context", c_void_p), ("allocate", Allocate), ("release", ReleaseMemory)]


class PinnedArenaStats(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("allocator", c_char_p), ("locked", c_int32), ("bound", c_int32), ("budget_bytes", c_int64),
        ("in_use_bytes", c_int64), ("peak_bytes", c_int64), ("largest_gap_bytes", c_int64), ("requested_bytes", c_int64), ("buffers", c_int64),
        ("allocated", c_int64), ("refused", c_int64), ("live_bytes", c_int64), ("active_bytes", c_int64), ("resident_bytes", c_int64),
        ("retained_bytes", c_int64), ("metadata_bytes", c_int64),
    ]


class RecordOptions(_Sized):
    _fields_ = [("struct_size", c_size_t), ("first_step", c_int64), ("last_step", c_int64), ("every", c_int64)]


class Held(Structure):
    _fields_ = [("params", POINTER(c_int32)), ("param_count", c_size_t), ("grads", POINTER(c_int32)), ("grad_count", c_size_t)]


class SealOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("held", POINTER(Held)), ("held_count", c_size_t), ("largest_lease_bytes", c_int64),
        ("micro_batches", c_int64), ("grow", c_int32), ("estimate", c_int32),
    ]


class ResealOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("device_budget_bytes", c_int64), ("host_budget_bytes", c_int64), ("seal", POINTER(SealOptions)),
    ]


class Park(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("moved_bytes", c_int64), ("remaining_bytes", c_int64), ("held_bytes", c_int64), ("shortfall", c_char_p),
    ]


class Step(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("step", c_int64), ("grad_norm", c_double), ("clip_factor", c_double), ("loss_scale", c_double),
        ("applied", c_int32), ("not_finite", c_int32),
    ]


class HyperParameters(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("fields", c_uint32), ("reserved", c_uint32), ("lr", c_double), ("beta1", c_double),
        ("beta2", c_double), ("eps", c_double), ("weight_decay", c_double), ("momentum", c_double),
    ]


class LossScale(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("scale", c_double), ("clean_steps", c_int64), ("skipped_steps", c_int64),
        ("overflows_left", c_int32), ("reserved", c_int32),
    ]


class ParamInfo(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_char_p), ("dims", POINTER(c_int64)), ("dim_count", c_int32),
        ("frozen", c_int32), ("elements", c_int64), ("offset_elements", c_int64), ("updates", c_int64), ("chunk", c_int32),
        ("homes", c_int32 * STATES),
    ]


class UpdateRun(Structure):
    _fields_ = [
        ("first_element", c_int64), ("elements", c_int64), ("step", c_int64), ("lr", c_double), ("values", c_void_p), ("grad", c_void_p),
        ("states", c_void_p * 8), ("param", c_int32), ("reserved", c_int32),
    ]


class Update(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("runs", POINTER(UpdateRun)), ("run_count", c_int64), ("grad_dtype", c_char_p), ("stream", c_void_p),
        ("grad_factor", c_float), ("on_device", c_int32),
    ]


UpdateFunction = CFUNCTYPE(c_int32, c_void_p, POINTER(Update))


class SaveOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("trainer", c_void_p), ("trainer_size", c_size_t), ("max_file_bytes", c_int64), ("keep", c_int64),
        ("background", c_int32), ("reserved", c_int32),
    ]


class LoadOptions(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("step", c_int64), ("one_step", c_int32), ("weights_only", c_int32), ("unverified", c_int32),
        ("convert", c_int32), ("aliases", POINTER(c_char_p)), ("alias_count", c_size_t), ("others", POINTER(c_char_p)), ("other_count", c_size_t),
        ("begin_missing", c_int32), ("trainer_only", c_int32),
    ]


class EngineStats(_Sized):
    _fields_ = [
        ("struct_size", c_size_t), ("device_budget_bytes", c_int64), ("device_peak_bytes", c_int64), ("host_budget_bytes", c_int64),
        ("host_peak_bytes", c_int64), ("nvme_peak_bytes", c_int64), ("host_to_device_bytes", c_int64),
        ("device_to_host_bytes", c_int64), ("nvme_read_bytes", c_int64), ("nvme_written_bytes", c_int64),
        ("wire_sent_bytes", c_int64), ("gathers", c_int64), ("prefetched_gathers", c_int64), ("divergences", c_int64),
        ("stall_ns", c_int64), ("tier_allocations", c_int64), ("chunks", c_int64), ("chunk_bytes", c_int64),
        ("grown_slots", c_int64), ("extra_slots", c_int64), ("exchange_bytes", c_int64),
    ]


_H = c_void_p  # a handle, and what is given out of one
_CODES: dict[str, list] = {
    "castor_world_create": [c_int32, POINTER(WorldOptions), POINTER(_H)],
    "castor_world_create_callbacks": [c_int32, c_int32, POINTER(Callbacks), POINTER(WorldOptions), POINTER(_H)],
    "castor_world_create_shared": [c_int32, c_int32, c_char_p, POINTER(WorldOptions), POINTER(_H)],
    "castor_nccl_id": [POINTER(NcclUniqueId)],
    "castor_world_create_nccl": [c_int32, c_int32, POINTER(NcclUniqueId), POINTER(WorldOptions), POINTER(_H)],
    "castor_world_abort": [_H, c_char_p],
    "castor_world_destroy": [_H],
    "castor_world_record": [_H, c_char_p, POINTER(RecordOptions)],
    "castor_engine_mark": [_H, c_char_p],
    "castor_engine_stats_json": [_H, POINTER(c_char_p)],
    "castor_plan_run": [POINTER(Tensor), c_size_t, c_char_p, POINTER(c_char_p)],
    "castor_search_run": [POINTER(Tensor), c_size_t, c_char_p, POINTER(c_char_p)],
    "castor_world_end_record": [_H],
    "castor_pinned_arena_create": [c_int64, POINTER(_H)],
    "castor_pinned_arena_allocate": [_H, c_int64, c_int64, POINTER(_H)],
    "castor_pinned_arena_free": [_H, _H],
    "castor_pinned_arena_get_stats": [_H, POINTER(PinnedArenaStats)],
    "castor_pinned_arena_destroy": [_H],
    "castor_device_open_cuda": [_H, c_int32, POINTER(_H)],
    "castor_device_set_allocator": [_H, POINTER(Allocator)],
    "castor_device_destroy": [_H],
    "castor_lane_adopt_stream": [_H, c_void_p, POINTER(_H)],
    "castor_lane_destroy": [_H],
    "castor_engine_use_lane": [_H, _H],
    "castor_engine_create": [_H, c_int32, _H, c_char_p, POINTER(_H)],
    "castor_engine_destroy": [_H],
    "castor_engine_close": [_H],
    "castor_engine_set_update": [_H, UpdateFunction, c_void_p],
    "castor_engine_register": [_H, POINTER(Tensor), c_char_p, Initializer, c_void_p, POINTER(c_int32)],
    "castor_engine_seal": [_H, POINTER(SealOptions)],
    "castor_engine_reseal": [_H, POINTER(ResealOptions)],
    "castor_engine_begin_micro_batch": [_H, c_int32],
    "castor_engine_acquire": [_H, POINTER(c_int32), c_size_t, POINTER(c_void_p), POINTER(_H)],
    "castor_param_lease_release": [_H],
    "castor_engine_grad": [_H, c_int32, POINTER(c_void_p)],
    "castor_engine_grad_ready": [_H, c_int32],
    "castor_engine_give_grad": [_H, c_int32, c_void_p, c_size_t],
    "castor_engine_step": [_H, c_double, POINTER(Step)],
    "castor_engine_clip_gradients": [_H, c_double, POINTER(c_double)],
    "castor_engine_finish_gradients": [_H],
    "castor_engine_drop_gradient": [_H, c_int32],
    "castor_engine_park": [_H, c_int32, POINTER(Park)],
    "castor_engine_resume": [_H],
    "castor_engine_update_early": [_H, c_double],
    "castor_engine_set_hyper_parameters": [_H, c_char_p, POINTER(HyperParameters)],
    "castor_engine_get_loss_scale": [_H, POINTER(LossScale)],
    "castor_engine_set_loss_scale": [_H, POINTER(LossScale)],
    "castor_engine_begin_evaluation": [_H],
    "castor_engine_end_evaluation": [_H],
    "castor_engine_abandon": [_H],
    "castor_engine_get_param": [_H, c_int32, POINTER(ParamInfo)],
    "castor_engine_explain_home": [_H, c_int32, c_int32, POINTER(c_char_p)],
    "castor_engine_read": [_H, c_int32, c_int32, c_void_p, c_int64],
    "castor_engine_write": [_H, c_int32, c_int32, c_void_p, c_int64],
    "castor_engine_least_of_ranks": [_H, POINTER(c_int64), c_size_t],
    "castor_engine_write_back": [_H, POINTER(c_int32), POINTER(c_void_p), c_size_t],
    "castor_engine_set_updates": [_H, c_int32, c_int64],
    "castor_engine_weight_digest": [_H, POINTER(c_uint64)],
    "castor_engine_save": [_H, c_char_p, POINTER(SaveOptions)],
    "castor_engine_finish_save": [_H, POINTER(c_char_p)],
    "castor_engine_load": [_H, c_char_p, POINTER(LoadOptions), POINTER(c_int64)],
    "castor_engine_loaded_trainer": [_H, POINTER(c_void_p), POINTER(c_size_t)],
    "castor_checkpoint_list": [c_char_p, POINTER(c_int64), c_size_t, POINTER(c_size_t)],
    "castor_checkpoint_verify": [c_char_p, POINTER(c_int64)],
    "castor_engine_get_stats": [_H, POINTER(EngineStats)],
}


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
        if version != ABI_VERSION:
            raise Unavailable(f"{path} has version {version} of the C ABI, and this package needs {ABI_VERSION}")
        for name, arguments in _CODES.items():
            function = getattr(loaded, name)
            function.argtypes = arguments
            function.restype = c_int32
        loaded.castor_last_error.restype = c_char_p
        loaded.castor_last_raises.argtypes = [c_void_p, c_size_t]
        loaded.castor_last_raises.restype = c_size_t
        loaded.castor_version.restype = c_char_p
        loaded.castor_set_error.argtypes = [c_char_p]
        loaded.castor_set_error.restype = None
        loaded.castor_set_interrupt.argtypes = [c_void_p, c_void_p]
        loaded.castor_set_interrupt.restype = None
        return loaded
    raise Unavailable(
        "libcastor.so.0 cannot be loaded: install the wheel, or name the library by CASTOR_LIBRARY (" + "; ".join(refused) + ")"
    )


lib = _load()


# Functions of castor.h that errors name, as a script in Python has them.
IN_PYTHON = {
    "castor_engine_abandon": "optimizer.zero_grad()", "castor_engine_begin_micro_batch": "a forward", "castor_engine_clip_gradients": "clip_grad_norm_",
    "castor_engine_close": "the end of the model", "castor_engine_finish_gradients": "reading p.grad", "castor_engine_finish_save": "the next castor.save",
    "castor_engine_grad": "loss.backward()", "castor_engine_load": "castor.load", "castor_engine_park": "castor.sleep(model)",
    "castor_engine_reseal": "other budgets", "castor_engine_resume": "castor.wake(model)", "castor_engine_save": "castor.save", "castor_engine_seal": "castor.wrap",
    "castor_engine_set_loss_scale": "setting the loss scale", "castor_engine_set_update": "castor.wrap", "castor_engine_set_updates": "optimizer.load_state_dict",
    "castor_engine_step": "optimizer.step()", "castor_engine_update_early": "update_in_backward=True", "castor_engine_write": "writing values",
    "castor_engine_write_back": "writing values",
}
_NAMES = re.compile(r"\bcastor_engine_\w+")


def in_python(words: str) -> str:
    """A message of the library's, as a script in Python reads it."""
    return _NAMES.sub(lambda found: IN_PYTHON.get(found[0], found[0]), words)


def error(code: int) -> CastorError:
    """The exception for what this thread's last call failed with."""
    words = lib.castor_last_error().decode(errors="replace")
    if words == "engine is null":
        return FailedPrecondition("the wrapped model is gone: keep it as long as its optimizer, its parameters and losses computed by it are used")
    failed = BY_CODE.get(code, CastorError)(in_python(words))
    if isinstance(failed, DoesNotFit):
        raises = (Raise * lib.castor_last_raises(None, 0))()
        lib.castor_last_raises(raises, len(raises))
        failed.raises = tuple(BudgetRaise(each.device, each.host, each.nvme) for each in raises)
    return failed


def check(code: int) -> None:
    """Raises what a call failed with."""
    if code:
        raise error(code)
