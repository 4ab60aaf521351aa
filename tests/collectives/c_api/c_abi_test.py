# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""libcastor.so as Python meets it: by ctypes, with nothing built. Arguments: the library, the allocator its arena is expected to use."""

import ctypes
import json
import sys
import threading


class Stats(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("allocator", ctypes.c_char_p), ("locked", ctypes.c_int32), ("bound", ctypes.c_int32)]
        + [(name, ctypes.c_int64) for name in "budget in_use peak largest_gap requested".split()]
        + [(name, ctypes.c_int64) for name in "buffers allocated refused".split()]
        + [(name, ctypes.c_int64) for name in "live active resident retained metadata".split()]
    )


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("dim_count", ctypes.c_int32),
        ("frozen", ctypes.c_int32),
        ("dtype", ctypes.c_char_p),
    ]


def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def expect(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def use(path, allocator):
    castor = ctypes.CDLL(path)
    castor.castor_last_error.restype = ctypes.c_char_p
    expect(castor.castor_abi_version(), 1, "ABI version")

    arena = ctypes.c_void_p()
    expect(castor.castor_pinned_arena_create(ctypes.c_int64(1 << 20), ctypes.byref(arena)), 0, "create")
    data = ctypes.c_void_p()
    expect(castor.castor_pinned_arena_allocate(arena, ctypes.c_int64(100_000), ctypes.c_int64(0), ctypes.byref(data)), 0, "allocate")
    expect(data.value % 4096, 0, "alignment")
    buffer = (ctypes.c_char * 100_000).from_address(data.value)
    buffer[:] = b"x" * 100_000
    expect(buffer[99_999], b"x", "the last byte")
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    expect(castor.castor_pinned_arena_get_stats(arena, ctypes.byref(stats)), 0, "stats")
    expect(stats.allocator.decode().split()[0], allocator, "allocator")
    expect((stats.buffers, stats.requested, stats.budget), (1, 100_000, 1 << 20), "stats")
    expect(stats.in_use, 102_400, "in use")
    expect(castor.castor_pinned_arena_destroy(arena), 11, "destroy while a buffer is alive")
    expect(b"1 buffers" in castor.castor_last_error(), True, "the message")
    expect(castor.castor_pinned_arena_free(arena, data), 0, "free")
    expect(castor.castor_pinned_arena_destroy(arena), 0, "destroy")

    dims = (ctypes.c_int64 * 2)(1000, 1000)
    tensors = (Tensor * 5)(*[Tensor(b"w", dims, 2, 0, b"F32") for _ in range(5)])
    text = ctypes.c_char_p()
    expect(castor.castor_search_run(tensors, ctypes.c_size_t(5), b'{"max": "64MiB"}', ctypes.byref(text)), 0, "search")
    found = json.loads(text.value)
    expect((found["model"]["tensors"], found["model"]["elements"]), (5, 5_000_000), "model")
    expect(found["best"]["waste_elements"], found["best"]["allocated_elements"] - 5_000_000, "waste")


def main():
    path, allocator = sys.argv[1:]
    process = ctypes.CDLL(None)
    names = ["malloc", "free", "calloc", "realloc"]
    before = [address(process, name) for name in names]
    failed = []
    threading.excepthook = lambda args: failed.append(args.exc_value)
    for _ in range(2):
        thread = threading.Thread(target=use, args=(path, allocator))
        thread.start()
        thread.join()
    expect(failed, [], "on a thread")
    use(path, allocator)
    expect([address(process, name) for name in names], before, "malloc and its kin")
    print("ok")


main()
