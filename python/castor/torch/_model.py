# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What all parts of a wrapped model know: its parameters, the units in which they come and go, and what the parts ask of their owner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Optional, Protocol

import torch
from torch import Tensor

from castor import _abi
from castor._engine import Engine
from castor._interrupts import uninterrupted
from castor.errors import CastorError, FailedPrecondition, InvalidArgument
from castor.torch._machine._device import Viewer
from castor.torch._parameters._stored import are_bytes, bytes_of, from_floats, stored_elements, to_floats
from castor.torch._torch_internals import plain_functions

# Two training forwards, or as many other uses: looking at all bytes takes time, on a GPU the host's as well.
WATCHED, TRAINING_FORWARD = 32, 16
SAMPLE = 1 << 18  # elements
NEVER = -1  # no values' digest
_HOLE = 0xA5  # each byte of a frozen weight where it is not
METHODS = ("register_hook", "register_post_accumulate_grad_hook")  # that change a parameter, called on an alias too
Moments = list[tuple[list[int], list[int]]]  # what a step holds at once: numbers of parameters, and of those with gradients


class Owner(Protocol):
    """What has the parts of one model and keeps its state: the Runtime of _runtime.py, which says what each member is."""

    engine: Engine
    device: Any  # a Cpu or Gpu of _device.py
    optimizer: Any
    opening: Any

    # Other parts.
    modules: Any
    params: Params
    steps: Any
    forwards: Any
    backwards: Any
    leases: Any
    uses: Any
    residents: Any
    gradients: Any
    values: Any

    def acquire(self, unit: Unit) -> list[Tensor]: ...
    def acquire_behind(self, error: CastorError, unit: Unit) -> list[Tensor]: ...
    def call_with(self, found: Iterable[Param], function: Callable, arguments: tuple, keywords: dict) -> Any: ...
    def flush(self) -> None: ...
    def alias_of(self, p: Param) -> Tensor: ...
    def check_names(self) -> None: ...
    def let_go(self) -> None: ...
    def choose_residents(self) -> None: ...


def _format_of(tensor: Tensor) -> torch.memory_format:
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if channels_last is not None and tensor.is_contiguous(memory_format=channels_last) and not tensor.is_contiguous():
        return channels_last
    return torch.contiguous_format


def _call_method(tensor: Tensor, name: str, *arguments: Any, **keywords: Any) -> Any:
    return getattr(tensor, name)(*arguments, **keywords)


class Param:
    """What Castor knows of one parameter."""

    __slots__ = (
        "again", "alias", "are_bytes", "block", "digest", "dtype", "elements", "format", "frozen", "given", "grad_view", "group", "has_master", "hole", "hook", "kept", "marks", "name", "number",
        "outline", "pins", "plain", "ready", "runtime", "sample", "seen", "shape", "state", "streams", "take", "tensor", "unit", "uses", "values", "version", "view", "watched", "where",
    )

    def __init__(self, runtime: Owner, name: str, tensor: torch.nn.Parameter, dtype: torch.dtype, group: str, frozen: bool) -> None:
        self.runtime = runtime
        self.name = name
        self.tensor = tensor
        self.plain = type(tensor)  # the class of aliases while they are in use
        self.shape = tensor.shape
        self.dtype = dtype
        self.are_bytes = are_bytes(dtype)
        self.has_master = dtype is not torch.float32 and not self.are_bytes
        self.elements = tensor.numel()
        # Of copies that leave the chunk; inside, values are row-major.
        self.format = _format_of(tensor)
        self.group = group
        self.frozen = frozen
        self.view = runtime.device.viewer(self.shape, dtype)  # over its memory
        self.number = -1
        self.hole: Tensor  # one NaN, in its shape
        self.alias: Optional[Tensor] = None  # a tensor with its values, while it is in use: see _uses.py
        self.seen = 0  # the alias's counter of writes, when it was last looked at
        self.values: Optional[Tensor] = None  # a view of its chunk, with a lease, where it is kept between uses
        self.kept = False  # it is
        self.streams: set[int] = set()  # which have a lease of what is kept
        self.grad_view: Viewer  # over its gradient's
        self.take: Callable[[Tensor], None]  # takes its gradient from autograd
        self.hook: Any = None  # of autograd's, while that calls `take`
        self.unit: Unit
        self.block: Optional[Unit] = None  # with which it comes and goes, where ranks may differ inside
        self.pins = 0  # uses under way
        self.where = 0  # its address in the last use
        self.version = 0  # changes of its values that autograd is to know of
        self.outline = torch.empty(self.shape, dtype=dtype, device="meta")  # of its values' memory
        self.marks: dict[str, Any] = {"_castor": self, "_castor_step": -1, **{name: partial(_call_method, tensor, name) for name in METHODS}}  # of an alias
        self.watched = WATCHED  # while positive, digests from before and after a use are compared
        self.digest = 0
        self.sample: Optional[int] = None  # the element at which a part begins that alone is looked at; None: all
        self.again = -1  # the micro-batch in whose backward its module ran again
        self.uses = 0  # since the last backward ended
        self.given = -1  # the micro-batch that has had its gradient
        self.ready = False  # whether that is handed back

    def storage_at(self) -> int:
        """Where the storage begins that the parameter has, if any."""
        with plain_functions():
            return self.tensor.untyped_storage().data_ptr()

    def write(self, values: Tensor) -> None:
        """Whole values into its chunk. All ranks write the same."""
        with self.runtime.forwards.turn:
            self._write(values)

    def _write(self, values: Tensor) -> None:
        self.runtime.values.settle()
        if values.shape != self.shape:
            raise InvalidArgument(f"parameter {self.name} has the shape {tuple(self.shape)}, and the values have {tuple(values.shape)}")
        if are_bytes(self.dtype) and values.dtype is not self.dtype:
            raise InvalidArgument(f"parameter {self.name} is {self.dtype}, held as bytes, and the values are {values.dtype}: give values of its type")
        kept = to_floats(values, self.dtype)
        self.runtime.leases.end_those_over()
        with uninterrupted():
            self.runtime.engine.write(self.number, _abi.PARAM, kept.data_ptr(), kept.numel())
            self.runtime.steps.change_weights()
            self.runtime.values.refresh()


def _is_hole(values: Tensor) -> Tensor:
    return bytes_of(values) == _HOLE if are_bytes(values.dtype) else torch.isnan(values)


class Params(list[Param]):
    """Those of one model, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.by_tensor: dict[int, Param] = {}  # by id
        self.holes: dict[torch.dtype, Tensor] = {}  # one NaN for each parameter, where its values would be
        self._whole_holes: dict[torch.dtype, bytes] = {}  # what they are while nobody has written to one

    def add(self, p: Param) -> None:
        self.append(p)
        self.by_tensor[id(p.tensor)] = p

    def make_holes(self, dtype: torch.dtype, device: torch.device) -> list[Param]:
        """For the parameters of one type, which are given back."""
        those = [p for p in self if p.dtype is dtype]
        if are_bytes(dtype):
            holes = torch.full((len(those) * dtype.itemsize,), _HOLE, dtype=torch.uint8, device=device).view(dtype)
        else:
            holes = torch.full((len(those),), float("nan"), dtype=dtype, device=device)
        self.holes[dtype] = holes
        for index, p in enumerate(those):
            p.hole = holes[index].expand(p.shape)
        return those

    def check_holes(self) -> None:
        """Nobody has written to a parameter where it was not."""
        for dtype, hole in self.holes.items():
            found = ctypes.string_at(hole.data_ptr(), hole.nbytes) if hole.is_cpu else None
            if found is not None and found == self._whole_holes.get(dtype):
                continue  # as torch found them to be NaN: to ask torch takes as long as a small model's forward
            if bool(_is_hole(hole).all()):
                if found is not None:
                    self._whole_holes[dtype] = found
            else:
                written = [p.name for p in self if p.dtype is dtype and p.elements and not bool(_is_hole(p.hole.reshape(-1)[:1]).all())]
                if are_bytes(dtype):
                    hole.view(torch.uint8).fill_(_HOLE)
                else:
                    hole.fill_(float("nan"))
                raise FailedPrecondition(
                    f"parameter {', '.join(written[:3])} was written to after castor.wrap, and its values are in a chunk: the write is lost. "
                    "Write inside castor.gathered([...], write=True)"
                )


class Unit:
    """Parameters that are acquired together, with what a call needs of them made ahead."""

    __slots__ = ("addresses", "block", "ids", "kept", "params", "size")

    def __init__(self, params: tuple[Param, ...], block: bool = False) -> None:
        """`block`: see _blocks.py."""
        self.block = block
        self.kept = False  # each keeps a view of its chunk
        self.params = params
        self.size = len(params)
        self.ids = (ctypes.c_int32 * self.size)(*(p.number for p in params))
        self.addresses = (ctypes.c_void_p * self.size)()


def read(p: Param, state: int = _abi.PARAM) -> torch.Tensor:
    """Whole values of a parameter's state on the CPU: fp32, or of bytes in their own type."""
    floats = torch.empty(stored_elements(p.dtype, p.elements), device="cpu")
    with p.runtime.forwards.turn:
        p.runtime.values.given.settle()
        p.runtime.values.settle()
        p.runtime.leases.end_those_over()
        p.runtime.engine.read(p.number, state, floats.data_ptr(), floats.numel())
    return from_floats(floats, p.dtype, p.shape).contiguous(memory_format=p.format)
