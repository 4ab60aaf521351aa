# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""torch as it is on a GPU: a call queues its work on the current stream and returns, and the values come later.

For models on a FakeGpu. A tensor is the device's if it lies in a chunk, or was computed from one that is the device's. What is computed of such
tensors is queued on the fake's streams. What the host asks for waits: values of one element, random numbers, sizes that depend on values, copies to
the host. A queued call holds no lease, as a kernel does not, so memory that is used again too soon shows as a wrong number.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from castor._abi import lib
from castor.torch._autograd import _alone

Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
lib.castor_fake_launch.argtypes = [ctypes.c_void_p, Work, ctypes.c_void_p]
lib.castor_fake_stream_wait.argtypes = [ctypes.c_void_p]

_VERSIONS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # they were counted when the call was made
_AT_ONCE = {"set_", "resize_", "_local_scalar_dense", "equal", "is_nonzero", "lift_fresh"}
# Those of oneDNN keep what no shape tells.
_TAGS = {torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_TO_THE_HOST = {torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.numpy, torch.Tensor.tolist}


def _unowned(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, which nothing keeps."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size:
        return torch.empty_like(tensor)
    flat = torch.frombuffer((ctypes.c_byte * size).from_address(storage.data_ptr()), dtype=torch.uint8).view(tensor.dtype)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


class QueuedTorch(TorchDispatchMode):
    """The queue of one thread. `current_stream`: a stream of the fake's."""

    active: Optional[QueuedTorch] = None

    def __init__(self, current_stream: Any) -> None:
        super().__init__()
        self.current_stream = current_stream
        self.queued = self.waited = 0
        self._threads = torch.get_num_threads()  # for some kernels the bits depend on them
        self._of_device: dict[int, StorageWeakRef] = {}
        self._of_castor: dict[int, StorageWeakRef] = {}
        self._streams: set[int] = set()  # with work
        self._works: list[Any] = []  # which C calls
        self._error: Optional[BaseException] = None

    # Whose a tensor is.

    def add(self, tensor: torch.Tensor, in_chunk: bool = False) -> torch.Tensor:
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        self._of_device[storage._cdata] = reference
        if in_chunk:
            self._of_castor[storage._cdata] = reference
        return tensor

    @staticmethod
    def _has(known: dict[int, StorageWeakRef], tensor: torch.Tensor) -> bool:
        reference = known.get(tensor.untyped_storage()._cdata)
        return reference is not None and not reference.expired()

    def _in_queue(self, tensor: torch.Tensor) -> torch.Tensor:
        return _unowned(tensor) if self._has(self._of_castor, tensor) else tensor

    # Work.

    def wait(self) -> None:
        """For all that is queued. The engine queues copies on the current stream, which the mode does not see."""
        self.waited += 1
        streams, self._streams = self._streams | {self.current_stream()}, set()
        for stream in streams:
            assert lib.castor_fake_stream_wait(stream) == 0
        self._works.clear()
        if self._error is not None:
            raise self._error

    def _queue(self, function: Any, arguments: tuple, keywords: dict, results: Optional[list[Any]]) -> None:
        arguments, keywords = tree_map_only(torch.Tensor, self._in_queue, (arguments, keywords))

        def run(_context: Any) -> None:
            try:
                if torch.get_num_threads() != self._threads:
                    torch.set_num_threads(self._threads)
                with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(_VERSIONS):
                    made = function(*arguments, **keywords)
                    if results is not None:
                        for place, value in zip(results, tree_leaves(made)):
                            if isinstance(place, torch.Tensor):
                                place.copy_(value)
            except BaseException as error:  # noqa: BLE001 - told to who waits
                self._error = self._error or error

        work = Work(run)
        self._works.append(work)
        self.queued += 1
        stream = self.current_stream()
        self._streams.add(stream)
        lib.castor_fake_launch(stream, work, None)

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        schema = function._schema
        tensors = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
        if not any(self._has(self._of_device, tensor) for tensor in tensors):
            if schema.is_mutable and self._streams:
                self.wait()  # what is queued may read it
            return function(*arguments, **keywords)
        if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
            return function(*arguments, **keywords)  # a view
        written = [value for argument, value in zip(schema.arguments, arguments) if argument.alias_info is not None and argument.alias_info.is_write]
        written += [keywords[a.name] for a in schema.arguments if a.name in keywords and a.alias_info is not None and a.alias_info.is_write]
        written = [leaf for leaf in tree_leaves(written) if isinstance(leaf, torch.Tensor)]
        name = schema.name.split("::")[-1]
        if name in _AT_ONCE or name.startswith("mkldnn_") or _TAGS & set(function.tags) or not all(self._has(self._of_device, tensor) for tensor in written):
            return self._now(function, arguments, keywords)
        if written:
            if not schema.returns:
                self._queue(function, arguments, keywords, None)
                return None
            if len(written) == len(schema.returns) == 1:
                self._queue(function, arguments, keywords, None)
                return written[0]
            return self._now(function, arguments, keywords)
        try:
            shapes = tree_map_only(torch.Tensor, lambda t: torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="meta"), (arguments, keywords))
            if "device" in shapes[1]:
                shapes[1]["device"] = torch.device("meta")
            described = function(*shapes[0], **shapes[1])
        except (NotImplementedError, RuntimeError):
            return self._now(function, arguments, keywords)
        made = tree_map_only(torch.Tensor, lambda t: self.add(torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="cpu")), described)
        self._queue(function, arguments, keywords, tree_leaves(made))
        return made

    def _now(self, function: Any, arguments: tuple, keywords: dict) -> Any:
        self.wait()
        made = function(*arguments, **keywords)
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return made


class _ToTheHost(TorchFunctionMode):
    """Calls after which the host reads. Device and host are one here, so torch would do nothing."""

    def __init__(self, queue: QueuedTorch) -> None:
        super().__init__()
        self._queue = queue

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function in _TO_THE_HOST and threading.current_thread() is threading.main_thread():
            self._queue.wait()
        return function(*arguments, **(keywords or {}))


@contextlib.contextmanager
def queued(current_stream: Any) -> Iterator[QueuedTorch]:
    """What torch computes inside is queued."""
    queue = QueuedTorch(current_stream)
    QueuedTorch.active = queue
    disable = _alone.outside_modes

    @contextlib.contextmanager
    def disable_but_the_gpu() -> Iterator[None]:
        with disable(), queue:
            yield

    _alone.outside_modes = disable_but_the_gpu
    try:
        with _ToTheHost(queue), queue:
            yield queue
            queue.wait()
    finally:
        QueuedTorch.active = None
        _alone.outside_modes = disable
