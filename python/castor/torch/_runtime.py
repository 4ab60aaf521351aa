# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""One wrapped model: the parts that serve it, each with what it knows and no other sets.

    modules     the script's, with hooks and what was ignored     steps       the phase, the step, its micro-batches
    params      what is known of each parameter                   forwards    nested modules, the turn of a thread
    opening     what castor.wrap was told, budgets                backwards   begin and end, by an exception too
    engine      the C ABI's, on `device`                          gradients   from autograd into chunks
    leases      tensors over chunks                               values      copies outside forwards
    uses        aliases of parameters that come and go            residents   parameters that stay
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Callable, Iterable

from torch import Tensor

from castor._engine import Engine
from castor._interrupts import whole
from castor.errors import CastorError, DoesNotFit, FailedPrecondition
from castor.torch import _patches
from castor.torch._autograd._alone import unseen
from castor.torch._autograd._compile import uncompiled
from castor.torch._autograd._gradients import Gradients, told_of
from castor.torch._backwards import Backwards
from castor.torch._forwards import Forwards
from castor.torch._hooks import address_of, tensors_in
from castor.torch._machine._device import Gpu
from castor.torch._model import Param, Params, Unit
from castor.torch._modules import Modules
from castor.torch._opening import Opening
from castor.torch._parameters._leases import Leases
from castor.torch._parameters._residents import Residents
from castor.torch._parameters._uses import Uses
from castor.torch._parameters._values import Values, replaced
from castor.torch._steps import Steps

log = logging.getLogger("castor")


class Runtime:
    """One wrapped model on one engine."""

    modules: Modules
    optimizer: Any

    def __init__(self, engine: Engine, device: Any, opening: Opening, checks_all: bool) -> None:
        """`device`: a Cpu or Gpu of _device.py. `checks_all`: every step is watched for reads of parameters without values."""
        self.engine = engine
        self.device = device
        self.opening = opening
        self.params = Params()
        self.leases = Leases(engine.handle, device)
        self.steps = Steps(self)
        self.forwards = Forwards(self, checks_all)
        self.backwards = Backwards(self)
        self.gradients = Gradients(self)
        self.values = Values(self)
        self.uses = Uses(self)
        self.residents = Residents(self)
        if isinstance(device, Gpu):
            device.out_of_memory = self.forwards.run_out

    def take_modules(self, modules: Modules) -> None:
        """Once, when parameters are in chunks."""
        self.modules = modules
        _patches.hold(self)

    def take_optimizer(self, optimizer: Any) -> None:
        """Once, behind that."""
        self.optimizer = optimizer

    # Values of parameters.

    def acquire(self, unit: Unit) -> list[Tensor]:
        try:
            return self.leases.acquire(unit)
        except CastorError as error:
            return self.acquire_behind(error, unit)

    def acquire_behind(self, error: CastorError, unit: Unit) -> list[Tensor]:
        """Once more where that may help, behind an error of `leases.acquire`."""
        if isinstance(error, DoesNotFit) and self.gradients.hand_back_early():
            return self.acquire(unit)
        raise told_of(unit.params, error) from None

    def flush(self) -> None:
        if self.leases.ended:
            self.leases.end_those_over()

    @uncompiled
    def call_with(self, found: Iterable[Param], function: Callable, arguments: tuple, keywords: dict) -> Any:
        """Calls a function outside the parameters' own modules with their values. It asks again for those of other models."""
        params = tuple({id(p): p for p in found if p.runtime is self}.values())
        unit = params[0].unit if len(params) == 1 else Unit(params)
        forwards = self.forwards
        forwards.enter(function, sys._getframe(), bool(forwards.under_way) and forwards.is_inside())
        try:
            self.uses.begin(unit, not self.backwards.under_way and not forwards.evaluating)
            try:
                there: dict[int, Any] = {id(p.tensor): p.alias for p in params}
                result = function(*replaced(arguments, there), **replaced(keywords, there))
                with unseen():
                    self._watch(params, result)
                return result
            finally:
                self.uses.end(unit)
        finally:
            forwards.leave(None)

    def alias_of(self, p: Param) -> Tensor:
        """A parameter's values outside its module, for as long as somebody has them."""
        return self.call_with((p,), lambda alias: alias, (p.tensor,), {})

    def _watch(self, params: Iterable[Param], result: Any) -> None:
        """What a function gave may be a view over a chunk."""
        for tensor in tensors_in(result):
            at = address_of(tensor)
            for p in params:
                if at and p.where == at and p.alias is not None:
                    self.values.watch(p, p.alias.detach())

    def check_names(self) -> None:
        """Nobody has written to a parameter where it was not, or put another in its place."""
        self.params.check_holes()
        late = self.uses.take_written_late()
        if late is not None:
            raise FailedPrecondition(
                f"a forward writes to the memory of {late.name} by .data, numpy or the like, and did not in its first steps: Castor may have lost earlier "
                "writes of this kind. Write to the parameter itself under torch.no_grad(); from now on these writes are kept"
            )
        self.modules.replacements.check()

    # Parameters that stay.

    def let_go(self) -> None:
        """Castor itself has no tensor over a chunk's memory any more."""
        self.residents.end()
        self.uses.drop()

    def choose_residents(self) -> None:
        """Between steps, where homes are new: which parameters stay, and for how long."""
        self.uses.choose()
        self.residents.choose()
        if self.residents.active:
            self.forwards.check.clear()  # there is no parameter without values

    @whole
    def close(self) -> None:
        """Gives all memory back. Waits for no other rank, since a garbage collector calls it: `make_world` ends worlds of several."""
        self.residents.allow(False)
        self.residents.end()
        self.uses.keep_none()
        self.values.given.close()
        _patches.let_go(self)
        try:
            self.engine.close()
            self.device.close()
            world = self.engine.world
            if self.close in world.closers:
                world.closers.remove(self.close)
            if world.size == 1:
                world.close()
        except CastorError as error:
            # Who still holds leases leaves the rest to the end of the process.
            log.debug("castor: %s", error)
