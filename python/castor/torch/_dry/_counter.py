# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Counts the bytes that tensors of a step hold: every storage when it is made and when it dies, and what autograd saves of it."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

import torch
from torch import Tensor, nn

from castor.torch._dry._known import KnownValues
from castor.torch._dry._memory import OUTSIDE, StepMemory
from castor.torch._dry._modules_at_work import ModulesAtWork
from castor.torch._torch_internals import DispatchMode, fake_tensor, flop_formulas, graph_task

_PARAMETER, _GIVEN, _COUNTED, _GRADIENT = range(4)


class _Storage:
    """One storage that is alive."""

    __slots__ = ("is_output", "kind", "life", "saved_in", "saves", "size")

    def __init__(self, kind: int, size: int) -> None:
        self.kind, self.size = kind, size
        self.life: Any = None  # a weak reference
        self.saves = 0  # saved tensors over it
        self.saved_in = ""
        self.is_output = False


class _Saved:
    """A tensor that autograd saves."""

    __slots__ = ("storages", "tensor", "version")

    def __init__(self, tensor: Tensor, storages: list[_Storage]) -> None:
        self.tensor, self.storages, self.version = tensor, storages, tensor._version

    def __del__(self) -> None:
        for storage in self.storages:
            storage.saves -= 1


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Tensors of arguments or results, inside lists, tuples and mappings too."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from tensors_in(value)


def _parts(tensor: Tensor) -> Iterable[Tensor]:
    """Tensors with a storage that a tensor is made of."""
    if tensor.layout is torch.strided:
        return (tensor,)
    return (tensor._indices(), tensor._values()) if tensor.layout is torch.sparse_coo else ()


class OtherLeaves:
    """Real tensors that a dry step meets, as a second model's: what it accumulates into their gradients is taken away behind."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Tensor, Optional[Tensor]]] = {}

    def note(self, tensor: Tensor) -> None:
        if tensor.requires_grad and tensor.is_leaf and not isinstance(tensor, fake_tensor) and id(tensor) not in self._before:
            self._before[id(tensor)] = (tensor, tensor.grad)

    def restore(self) -> None:
        for tensor, grad in self._before.values():
            tensor.grad = grad


class StorageCounter(DispatchMode):
    """While the mode is on, follows each operator on real or on fake tensors of one type of device."""

    def __init__(self, model: nn.Module, batch: Iterable[Tensor], device: str, others: Optional[OtherLeaves] = None, known: Optional[KnownValues] = None) -> None:
        """Of a dry step, `others` notes real tensors that fake ones meet, and `known` has values."""
        super().__init__()
        self._device = device  # its type
        self._others, self._known = others, known
        self._storages: dict[int, _Storage] = {}  # those alive, by address
        self._alive = self._gradients = self._most_gradients = 0
        self._curve: list[tuple[str, str, int]] = []
        self._in_backward = False
        self._after_forward = self._logits = 0
        self._saved: Counter[str] = Counter()
        self._flops: Counter[tuple[str, str]] = Counter()  # by moment and module
        self.modules = ModulesAtWork(model, self._returned)
        self._handles = []
        for parameter in model.parameters():
            self._meet(parameter, _PARAMETER)
            if parameter.requires_grad:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._accumulated))
        for tensor in (*model.buffers(), *batch):
            self._meet(tensor, _COUNTED)
        self._curve.append(("forward", OUTSIDE, self._alive))

    def close(self) -> None:
        """Takes all hooks away."""
        self.modules.close()
        for handle in self._handles:
            handle.remove()

    @property
    def backward_ran(self) -> bool:
        return any(moment == "backward" for moment, _, _ in self._curve)

    def memory(self) -> StepMemory:
        moment, module, peak = max(self._curve, key=lambda point: point[2])
        return StepMemory(
            saved_bytes=sum(self._saved.values()), saved_by_module=dict(self._saved), peak_bytes=peak, peak_module=module, peak_moment=moment,
            after_forward_bytes=self._after_forward, gradient_bytes=self._most_gradients, logits_bytes=self._logits, curve=self._curve,
            flops=self._flops.total(), forward_flops_by_module={module: count for (moment, module), count in self._flops.items() if moment == "forward"},
        )

    # Storages.

    def _meet(self, tensor: Tensor, kind: int) -> list[_Storage]:
        """The storages of a tensor, of this kind where they are new; none on other devices."""
        if tensor.device.type != self._device:
            return []
        found = []
        for part in _parts(tensor):
            memory = part.untyped_storage()
            address, size = memory._cdata, memory.nbytes()
            storage = self._storages.get(address)
            if storage is None:
                storage = self._storages[address] = _Storage(kind, 0)
                storage.life = weakref.ref(memory, functools.partial(self._died, address))
            if storage.size != size:
                self._count(storage, size - storage.size)
                storage.size = size
            found.append(storage)
        return found

    def _count(self, storage: _Storage, change: int) -> None:
        if storage.kind == _COUNTED:
            self._alive += change
        elif storage.kind == _GRADIENT:
            self._gradients += change
            self._most_gradients = max(self._most_gradients, self._gradients)

    def _died(self, address: int, life: Any) -> None:
        storage = self._storages.get(address)
        if storage is not None and storage.life is life:
            del self._storages[address]
            self._count(storage, -storage.size)

    def _accumulated(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            for storage in self._meet(parameter.grad, _COUNTED):
                if storage.kind == _COUNTED:
                    self._count(storage, -storage.size)
                    storage.kind = _GRADIENT
                    self._count(storage, storage.size)

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Optional[dict[str, Any]] = None) -> Any:
        kwargs = kwargs or {}
        in_backward = graph_task() != -1
        if in_backward and not self._in_backward:
            self._forward_ended()
        self._in_backward = in_backward
        # Both kinds of tensor from a literal come through lift_fresh, and its argument was made for it.
        if func is not torch.ops.aten.lift_fresh.default:
            for tensor in tensors_in((args, kwargs)):
                self._meet(tensor, _PARAMETER if isinstance(tensor, nn.Parameter) else _GIVEN)
                if self._others is not None:
                    self._others.note(tensor)
        if self._known is None:
            result = func(*args, **kwargs)
        else:
            answer = self._known.answer(func, args)
            if not self._known.unanswered(answer):
                return answer
            result = func(*args, **kwargs)
            self._known.follow(func, args, kwargs, result)
        # A real tensor among fake ones gets a fake storage inside the operator: what only aliases that one is not new.
        aliases = [returned.alias_info is not None for returned in func._schema.returns]
        results = result if isinstance(result, (list, tuple)) and len(aliases) > 1 else [result]
        made = [
            self._meet(tensor, _GIVEN if is_alias and func is not torch.ops.aten.lift_fresh.default else _COUNTED)
            for is_alias, value in zip(aliases, results)
            for tensor in tensors_in(value)
        ]
        if made:  # what asks a fake tensor for its device or its sizes is no operator of the step
            moment, module = "backward" if in_backward else "forward", self.modules.now()
            self._curve.append((moment, module, self._alive))
            formula = flop_formulas.get(func.overloadpacket)
            if formula is not None:
                self._flops[moment, module] += formula(*args, **kwargs, out_val=result)
        return result

    # What autograd saves.

    def pack(self, tensor: Tensor) -> Any:
        storages = self._meet(tensor, _GIVEN)
        if graph_task() == -1:
            for storage in storages:
                if not storage.saves:
                    storage.saved_in = self.modules.now()
                storage.saves += 1
        else:
            storages = []  # a recomputation's, which the curve has
        return _Saved(tensor, storages)

    def unpack(self, saved: Any) -> Tensor:
        tensor: Tensor = saved.tensor
        if tensor._version != saved.version:
            # torch does not compare counters of what hooks keep.
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape "
                f"{list(tensor.shape)} is at version {tensor._version}; expected version {saved.version} instead"
            )
        return tensor

    def _returned(self, output: Any) -> None:
        for tensor in tensors_in(output):
            if tensor.dim():
                for storage in self._meet(tensor, _GIVEN):
                    storage.is_output = True

    def _forward_ended(self) -> None:
        alive = list(self._storages.values())
        self._after_forward = max(self._after_forward, self._alive)
        self._logits = max(self._logits, sum(storage.size for storage in alive if storage.is_output and storage.kind == _COUNTED))
        saved: Counter[str] = Counter()
        for storage in alive:
            if storage.saves and storage.kind != _PARAMETER:
                saved[storage.saved_in] += storage.size
        if saved.total() > self._saved.total():
            self._saved = saved
