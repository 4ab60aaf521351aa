# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Parameters of a model whose states are all at home on the device of one rank: they stay where they are, and are plain.

A resident parameter has the memory of its chunk for good, so neither a module nor a gradient needs a hook, but the outermost module. Autograd leaves each
gradient at its parameter (_left_gradients.py), as in plain PyTorch.

What a script writes to a parameter is written to the chunk. A parameter in low precision has a master besides, which gets what was written: `find_writes`
compares counters once a step, and digests where no counter moves.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from castor import _abi
from castor._interrupts import whole
from castor.errors import FailedPrecondition
from castor.torch import _record
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._left_gradients import LeftGradients
from castor.torch._model import SAMPLE, Owner, Param, Unit
from castor.torch._parameters._guards import refuse_torchscript
from castor.torch._parameters._params import ChunkedParameter
from castor.torch._parameters._resident_params import OWN_DATA, MirroredParameter, ResidentParameter
from castor.torch._torch_internals import increment_versions, plain_functions

_NO_STATE = -1  # in place of a tier


class Residents:
    """Those of one model: all of its parameters, or none."""

    def __init__(self, runtime: Owner) -> None:
        self._runtime = runtime
        self._may = False  # so the model was wrapped
        self.active = False  # parameters are resident
        self.gradients = LeftGradients(runtime)
        self._views: list[Tensor] = []  # by number, which hold a lease
        self._digests: dict[Param, tuple[int, Optional[int]]] = {}  # of values, with the element that a sample begins at; None: all are looked at
        self._suspects: set[Param] = set()  # that a script may write to past the counter
        self._samples_every = 16 if runtime.device.follow is not None else 1  # steps: on a GPU the host waits

    def allow(self, may: bool) -> None:
        """Whether parameters may be, wherever their states are."""
        self._may = may

    def choose(self) -> None:
        """Between steps: parameters are resident from now on where all states are at home on the device, and else not."""
        fits = self._may and all(self._is_at_home(p) for p in self._runtime.params)
        if fits and not self.active:
            self._begin()
        elif not fits:
            self.end()

    def _is_at_home(self, p: Param) -> bool:
        homes = self._runtime.engine.param(p.number).homes
        return not p.elements or (p.block is None and all(home in (_abi.DEVICE, _NO_STATE) for home in homes))

    @whole
    def _begin(self) -> None:
        runtime = self._runtime
        params = runtime.params
        runtime.flush()
        with unseen(), torch.no_grad():
            runtime.engine.begin_evaluation()
            try:
                self._views = runtime.acquire(Unit(tuple(params)))
            finally:
                runtime.engine.end_evaluation()
            for hooks in runtime.modules.inner_hooks:
                hooks.remove()
            with plain_functions():
                for p, view in zip(params, self._views):
                    if p.hook is not None:
                        p.hook.remove()
                    OWN_DATA.__set__(p.tensor, view)
                    p.tensor.__class__ = MirroredParameter if p.has_master else ResidentParameter
                    p.seen = p.tensor._version
                    p.where = view.data_ptr()
        trained = [p for p in params if not p.frozen]
        borrows = any(p.elements and runtime.engine.param(p.number).homes[_abi.GRAD] == _NO_STATE for p in trained)
        self.gradients.begin(trained, borrows)
        self.active = True

    @whole
    def end(self) -> None:
        """No parameter is resident any more, and Castor itself has no tensor over a chunk's memory."""
        if not self.active:
            return
        runtime = self._runtime
        self.count_changes()  # for graphs, which refer to the parameters themselves
        self.active = False
        self.gradients.end()
        self._digests.clear()
        with unseen(), plain_functions():
            for p in runtime.params:
                OWN_DATA.__set__(p.tensor, p.hole)
                p.tensor.__class__ = ChunkedParameter
                if not p.frozen:
                    runtime.gradients.listen(p)
            for hooks in runtime.modules.inner_hooks:
                hooks.add()
        self._views = []
        runtime.flush()

    def look(self) -> None:
        """A forward begins."""
        runtime = self._runtime
        _record.check()
        if torch.jit.is_tracing() and torch.onnx.is_in_onnx_export():
            refuse_torchscript()
        if torch.is_grad_enabled() and not runtime.steps.begun and not self.gradients.there():
            runtime.optimizer.follow_groups()

    # Values.

    @whole
    def find_writes(self) -> None:
        """What was written to parameters goes to masters with the next `Values.settle`, and to copies."""
        if not self.active:
            return
        values, moved = self._runtime.values, []
        for p in self._runtime.params:
            tensor = p.tensor
            if tensor.data_ptr() != p.where:
                moved.append(p)
            elif tensor._version != p.seen:
                p.seen = tensor._version
                if tensor.shape != p.shape or not tensor.is_contiguous():
                    self._refuse_shape(p)
                if p.has_master or p.number in values.copies:
                    self._keep(p)
        if moved:
            self._take_back(moved)
        for p, (digest, begin) in self._digests.items():
            if digest != self._digest(p, begin):
                self._suspects.add(p)
                self._keep(p)
        self._digests = {p: (self._digest(p, None), None) for p in self._suspects}

    def _keep(self, p: Param) -> None:
        with unseen(), torch.no_grad():
            self._runtime.values.keep(p, Tensor.detach(p.tensor))

    def _refuse_shape(self, p: Param) -> None:
        with plain_functions():
            OWN_DATA.__set__(p.tensor, self._views[p.number])
        raise FailedPrecondition(f"{p.name} was given another shape in place, and its place in a chunk has none: use what the function gives without the _")

    def _take_back(self, moved: list[Param]) -> None:
        """Somebody has given parameters other memory: its values go into their chunks."""
        mine = {view.untyped_storage().data_ptr() for view in self._views if view.numel()}
        with unseen(), torch.no_grad(), plain_functions():
            found = []
            for p in moved:
                values = Tensor.detach(p.tensor)
                found.append(values.clone() if values.untyped_storage().data_ptr() in mine else values)
            for p, values in zip(moved, found):
                OWN_DATA.__set__(p.tensor, self._views[p.number])
                p.seen = p.tensor._version
                self._runtime.values.replace(p, values)

    def suspect(self, p: Param) -> None:
        """A script can write to it past the counter from now on."""
        if p not in self._suspects:
            self._suspects.add(p)
            self._digests[p] = self._digest(p, None), None

    def count_changes(self) -> None:
        """Autograd is to refuse graphs of the values before, as behind torch's optimizers."""
        if not self.active:
            return
        params = self._runtime.params
        increment_versions([p.tensor for p in params])
        for p in params:
            p.seen += 1

    def sample(self) -> None:
        """Values are new: the next look is at suspects, and at a part of one other parameter with a master, of each in its turn."""
        self._digests = {p: (self._digest(p, None), None) for p in self._suspects}
        params, steps = self._runtime.params, self._runtime.steps.number
        if not self.active or not params or steps % self._samples_every:
            return
        turn, number = divmod(steps // self._samples_every, len(params))
        p = params[number]
        if p.has_master and p not in self._suspects:
            begin = turn * SAMPLE % max(p.elements, 1)
            self._digests[p] = self._digest(p, begin), begin

    def _digest(self, p: Param, begin: Optional[int]) -> int:
        with unseen(), torch.no_grad(), plain_functions():
            values = Tensor.detach(p.tensor)
            return self._runtime.values.digest_of(values if begin is None else values.reshape(-1)[begin : begin + SAMPLE])
