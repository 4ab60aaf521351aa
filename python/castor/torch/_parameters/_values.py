# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Values of parameters outside their modules' forwards, in torch's memory while somebody reads or writes them there.

A function that touches such a parameter without gradients gets its *copy* in its place: a plain tensor with a version counter of its own. What
was written to a copy goes to the chunk before the next use of the parameter: a forward, a backward, a step, a checkpoint. While an alias of a copy
lives (``p.data``, ``p.detach()``, ``p[0]``), the copy stays, is refreshed after each update, and is written back like any other.

A write is known by the counter, and where an alias is out by a digest too: numpy and torch.distributed move no counter.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

import torch
from torch import Tensor

from castor._interrupts import whole
from castor.errors import FailedPrecondition
from castor.sizes import format_size
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._compile import uncompiled
from castor.torch._model import Owner, Param
from castor.torch._parameters._given import Given
from castor.torch._parameters._stored import to_floats
from castor.torch._parameters._memory import alone, device_digest_of, digest_of, uses_of_storage

log = logging.getLogger("castor")
_MUCH = 256 << 20


class _Copy:
    """One parameter's."""

    __slots__ = ("changed", "digest", "digest_of", "inside", "param", "size", "values", "version")

    def __init__(self, param: Param, values: Tensor) -> None:
        self.param = param
        self.digest_of = param.runtime.values.digest_of
        self.values = values
        self.version = values._version
        self.size = values.numel() * values.itemsize
        self.changed = False  # found by its digest
        self.inside = False  # written to inside a forward, which the parameter's own counter says
        self.digest: Optional[int] = None  # of a copy with aliases, when it was known last

    def has_aliases(self) -> bool:
        return uses_of_storage(self.values) > alone()

    def written(self) -> bool:
        if not self.changed and self.digest is not None:
            self.changed = self.digest_of(self.values) != self.digest
        return self.marked()

    def marked(self) -> bool:
        """The same as far as nobody has to look at its bytes."""
        return self.changed or self.inside or self.values._version != self.version

    def note(self) -> None:
        """What it has now is known."""
        self.changed = self.inside = False
        self.version = self.values._version
        self.digest = self.digest_of(self.values) if self.has_aliases() else None


class Values:
    """The copies of one model.

    Which ones there are decides who takes part in what. So on several ranks a copy that was once aliased stays until all ranks have agreed that
    nobody has an alias, whichever rank's garbage collector comes first.
    """

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self.given = Given()
        self.takes_copies = False
        self.copies: dict[int, _Copy] = {}  # by number
        self._aliased: set[int] = set()  # on several ranks: that were, and are not agreed to be free
        self._views: list[tuple[Param, Tensor, int, int]] = []  # and the memory, the counter and the digest of each
        self.unsettled = False  # a chunk may lack what was written, alike on all ranks
        self._enough = _MUCH  # before ranks ask each other again
        self._said = False
        self.digest_of: Callable[[Tensor], int] = digest_of if runtime.device.follow is None else device_digest_of

    def __bool__(self) -> bool:
        return bool(self.copies)

    @contextlib.contextmanager
    def taking_copies(self) -> Iterator[None]:
        """What is copied to a parameter inside is written into its chunk."""
        self.takes_copies = True
        try:
            yield
        finally:
            self.takes_copies = False

    @property
    def _several(self) -> bool:
        return self._runtime.engine.world.size > 1

    def _stays(self, copy: _Copy) -> bool:
        return copy.param.number in self._aliased if self._several else copy.has_aliases()

    # Access.

    @uncompiled
    @whole
    def take(self, params: list[Param]) -> list[_Copy]:
        """Copies of these, for somebody who calls `taken` when done."""
        with self._runtime.forwards.turn:
            if self.copies:
                self._let_go()
            return list(self._take(params).values())

    @uncompiled
    @whole
    def taken(self, copies: list[_Copy]) -> None:
        self.unsettled = True
        for copy in copies:
            number, p = copy.param.number, copy.param
            if copy.values.shape != p.shape or copy.values.stride() != p.outline.stride():
                del self.copies[number]
                raise FailedPrecondition(f"{p.name} was given another shape in place, and its place in a chunk has none: use what the function gives without the _")
            if copy.has_aliases() and self._several:
                self._aliased.add(number)
            if self._stays(copy):
                if copy.digest is None and not copy.written():
                    copy.digest = self.digest_of(copy.values)
            elif not copy.written():
                self.copies.pop(number, None)
        self._say()

    def _let_go(self) -> None:
        """A loop over all parameters holds few copies at a time."""
        self.copies = {number: copy for number, copy in self.copies.items() if self._stays(copy) or copy.written()}
        copies = self.copies.values()
        if self._several and sum(copy.size for copy in copies) > self._enough:
            self._agree()
        if sum(copy.size for copy in copies if copy.marked()) > _MUCH:
            self.settle()

    def _agree(self) -> None:
        """Finds the copies that no rank has an alias of."""
        numbers = sorted(self._aliased)
        mine = [-int(number in self.copies and self.copies[number].has_aliases()) for number in numbers]
        alive = self._runtime.engine.least_of_ranks(mine)
        self._aliased = {number for number, least in zip(numbers, alive) if least < 0}
        self.copies = {number: copy for number, copy in self.copies.items() if number in self._aliased or copy.written()}
        self._enough = 2 * sum(copy.size for copy in self.copies.values()) + _MUCH

    def _take(self, params: list[Param]) -> dict[int, _Copy]:
        missing = tuple(p for p in params if p.number not in self.copies)
        if missing:
            for p, values in zip(missing, self._read(missing)):
                self.copies[p.number] = _Copy(p, values)
        return {p.number: self.copies[p.number] for p in params}

    def _read(self, params: tuple[Param, ...]) -> list[Tensor]:
        """Values as they are in chunks, in memory of torch's."""
        runtime = self._runtime
        inside = bool(runtime.forwards.evaluating or runtime.backwards.under_way or runtime.forwards.under_way)
        if not inside:
            self.given.settle()
            runtime.flush()
            runtime.engine.begin_evaluation()
        try:
            with torch.inference_mode(False), torch.no_grad():
                # One after another, so that no more than one has to fit.
                return [runtime.acquire(p.unit)[0].clone() for p in params]
        finally:
            if not inside:
                runtime.flush()
                runtime.engine.end_evaluation()

    @whole
    def keep(self, p: Param, values: Tensor) -> None:
        """Of a parameter that was written to inside its module's forward, where `values` are its chunk's memory."""
        copy = self.copies.get(p.number)
        with torch.inference_mode(False), torch.no_grad():
            if copy is None:
                copy = self.copies[p.number] = _Copy(p, values.detach().clone())
            else:
                copy.values.copy_(values)
                copy.version = copy.values._version
            copy.inside = self.unsettled = True

    @whole
    def replace(self, p: Param, values: Tensor) -> None:
        """``p.data = values``: these follow the parameter from now on, and aliases of what was before no more."""
        with torch.inference_mode(False), torch.no_grad():
            there = values.detach().to(self._runtime.device.torch_device)
            if there.is_inference() or not there.is_contiguous():
                there = there.clone(memory_format=torch.contiguous_format)
            copy = self.copies[p.number] = _Copy(p, there)
        copy.changed = self.unsettled = True
        if self._several:
            self._aliased.add(p.number)

    @whole
    def watch(self, p: Param, memory: Tensor) -> None:
        """A view over a chunk's memory is out, with gradients as a rule. What is written to it before the next use of the parameter is kept."""
        self._views.append((p, memory, memory._version, self.digest_of(memory)))
        self.unsettled = True

    def _look_at_views(self) -> None:
        views, self._views = self._views, []
        for p, memory, version, digest in views:
            now = memory._version  # which is the alias's, too
            if now != version or self.digest_of(memory) != digest:
                p.version += now - version
                p.seen = now
                self.keep(p, memory)
                self.copies[p.number].inside = False
                self.copies[p.number].changed = True

    # To and from chunks.

    @whole
    def settle(self, quickly: bool = False) -> None:
        """Writes to chunks what was written to copies; all ranks call it alike. Copies that nobody can use any more go.

        Args:
          quickly: by counters alone, as within a forward.
        """
        runtime = self._runtime
        runtime.residents.find_writes()
        if self._views:
            self._look_at_views()
        written = [copy for _, copy in sorted(self.copies.items()) if (copy.marked() if quickly else copy.written())]
        if written or (self._several and not runtime.steps.asleep):
            self._write(written)
        self.copies = {number: copy for number, copy in self.copies.items() if self._stays(copy)}
        self.unsettled = bool(self.copies) and not self._several

    def _write(self, written: list[_Copy]) -> None:
        runtime = self._runtime
        values = [to_floats(copy.values, copy.param.dtype) for copy in written]
        runtime.flush()
        evaluating = runtime.forwards.evaluating
        if evaluating:
            runtime.engine.end_evaluation()
        runtime.engine.write_back([copy.param.number for copy in written], [v.data_ptr() for v in values])
        if evaluating:
            runtime.engine.begin_evaluation()
        for copy in written:
            if not copy.inside or copy.values._version != copy.version:
                # What autograd saved before is of other values.
                runtime.uses.count_write(copy.param)
            copy.note()

    @whole
    def refresh(self) -> None:
        """Chunks have other values than before: aliases show them."""
        if self._aliased:
            self._agree()
        self.copies = {number: copy for number, copy in self.copies.items() if self._stays(copy)}
        copies = [copy for _, copy in sorted(self.copies.items())]
        if not copies:
            return
        fresh = self._read(tuple(copy.param for copy in copies))
        with torch.inference_mode(False), torch.no_grad():
            for copy, values in zip(copies, fresh):
                copy.values.copy_(values)
                copy.note()

    def _say(self) -> None:
        if self._said or len(self.copies) < 2:
            return
        size = sum(copy.size for copy in self.copies.values())
        if size > _MUCH:
            self._said = True
            log.warning("castor: aliases of parameters outside their forwards keep %s of copies in torch's memory, beside Castor's budgets", format_size(size))


def call(params: Iterable[Param], function: Callable, arguments: tuple, keywords: dict) -> Any:
    """Calls a function with copies in the parameters' places, and gives back the parameter where the function gives its copy."""
    of_models: dict[int, list[Param]] = {}
    for p in {id(p): p for p in params}.values():
        of_models.setdefault(id(p.runtime), []).append(p)
    with unseen():
        copies = [(some[0].runtime.values, some[0].runtime.values.take(some)) for some in of_models.values()]
    there = {id(copy.param.tensor): copy.values for _, some in copies for copy in some}
    back = {id(copy.values): copy.param.tensor for _, some in copies for copy in some}
    result = replaced(function(*replaced(arguments, there), **replaced(keywords, there)), back)
    with unseen():
        for values, some in copies:
            values.taken(some)
    return result


def collect(of: Any, kind: type, found: list[Any]) -> None:
    """Collects the tensors of exactly this class among arguments, in lists and dicts too, each once."""
    if isinstance(of, Tensor):
        if type(of) is kind and all(one is not of for one in found):
            found.append(of)
    elif isinstance(of, (list, tuple)):
        for one in of:
            collect(one, kind, found)
    elif isinstance(of, dict):
        for one in of.values():
            collect(one, kind, found)


def replaced(of: Any, places: dict[int, Any]) -> Any:
    """The same with other tensors in the places of some, in lists, tuples and dicts too."""
    if isinstance(of, Tensor):
        return places.get(id(of), of)
    if type(of) in (list, tuple):
        return type(of)(replaced(one, places) for one in of)
    if isinstance(of, tuple) and hasattr(of, "_fields"):
        return type(of)(*(replaced(one, places) for one in of))
    if type(of) is dict:
        return {key: replaced(one, places) for key, one in of.items()}
    return of
