# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What an optimizer does, found by having it step a few small parameters.

- Parameters that are stepped together have to end as those that are stepped apart. Else one depends on the others, as by a norm over all.
- Where a parameter in pieces ends as the whole, the optimizer works element by element, and its states may be cut anywhere.
- States of a parameter's shape go into chunks. What else a parameter's state holds stays beside them.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections import defaultdict
from typing import Any, Optional

import torch
from torch import Tensor, nn

from castor.errors import InvalidArgument
from castor.torch._optimizers._bare import Bare, State, copied, globals_in, same
from castor.torch._torch_internals import DispatchMode, fake_tensors

# Of gradients in each step. What an optimizer clips by, the root of a mean square, say, is reached in some and not in others.
_SCALES = (0.02, 3.0, 1e-3, 200.0, 0.1)
# By dimensions: small ones first, which most of what is refused shows at, then matrices larger than the least that any optimizer factors (128). No
# size is a multiple of a vector's.
_SHAPES: tuple[dict[int, tuple[int, ...]], ...] = (
    {1: (17,), 2: (9, 7), 3: (5, 3, 3), 4: (5, 3, 3, 3)},
    {1: (257,), 2: (161, 193), 3: (25, 17, 5), 4: (17, 9, 3, 3)},
)
_TELLING = 256  # elements of a parameter, of which bytes per element say something
_MOST_TRIED = 1 << 22  # elements of a parameter that an optimizer steps in memory

class _Trained:
    """What parameters, their states, and the optimizer's numbers became."""

    def __init__(self, values: list[Tensor], states: list[dict[str, Any]], numbers: Any) -> None:
        self.values, self.states, self.numbers = values, states, numbers
        self.kept_beside: list[str] = []  # names of what the optimizer changed for itself, besides numbers
        self.idle_changed = False  # so was a parameter without a gradient


class _Live(DispatchMode):
    """Counts the bytes of tensors that operations make, and at most have at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._made: dict[int, list[int]] = {}  # by storage, how many tensors have it, and its bytes
        self._others: set[int] = set()  # storages that were there before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._others.update(key for key in map(_storage_of, _tensors_in([*args, kwargs or {}])) if key not in self._made)
        answer = func(*args, **(kwargs or {}))
        for tensor in _tensors_in(answer):
            key = _storage_of(tensor)
            if key in self._others:
                continue
            if key not in self._made:
                self._made[key] = [0, tensor.untyped_storage().nbytes()]
                self._now += self._made[key][1]
                self.peak = max(self.peak, self._now)
            self._made[key][0] += 1
            weakref.finalize(tensor, self._drop, key)
        return answer

    def _drop(self, key: int) -> None:
        self._made[key][0] -= 1
        if not self._made[key][0]:
            self._now -= self._made.pop(key)[1]


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class Facts:
    """Of one optimizer."""

    def __init__(self) -> None:
        self.states: list[str] = []  # of a parameter's shape, of some parameters at least
        self.placeholders = True  # a parameter without a gradient may be among those of a group; else a group may have none
        self.whole = False  # an update needs whole parameters
        self.other_bytes = 0  # of what else states hold, of all parameters together
        self.elements = 0  # of all parameters together
        self.temporaries: list[tuple[int, int]] = []  # of one parameter of each shape: its elements, and the bytes that its update makes and drops

    def update_bytes(self, most: int) -> int:
        """What one call of an update has beside windows and states, where it takes `most` elements or a larger parameter."""
        large = [one for one in self.temporaries if one[0] >= _TELLING] or self.temporaries
        each = max((size / max(count, 1) for count, size in large), default=0.0)
        taken = max([min(most, self.elements), *(count for count, _ in self.temporaries if self.whole)])
        alone = max((size for _, size in self.temporaries if self.whole), default=0)
        # The gradient in float32, too, where it is kept in less.
        return max(int(each * min(most, self.elements)), alone) + 4 * taken


def facts_of(optimizer: torch.optim.Optimizer) -> Facts:
    """InvalidArgument says by name what Castor cannot serve."""
    facts = Facts()
    _refuse_known(optimizer)
    with torch.random.fork_rng(devices=[]):
        for shapes in _SHAPES:
            for index, group in enumerate(optimizer.param_groups):
                _look_at(optimizer, index, group, shapes, facts)
        for group in optimizer.param_groups:
            tensors = [p for p in group["params"] if p.requires_grad]
            for shape in {p.shape for p in tensors if p.numel()}:
                facts.other_bytes += sum(p.shape == shape for p in tensors) * _other_bytes(optimizer, group, shape, facts)
            facts.elements += sum(p.numel() for p in tensors)
    return facts


def refuse_replaced_step(optimizer: torch.optim.Optimizer) -> None:
    """Where a script has put another function in the place of its step."""
    replaced = vars(optimizer).get("step")
    if replaced is not None and not hasattr(replaced, "_wrapped_by_lr_sched"):
        raise InvalidArgument(f"the step of this {type(optimizer).__name__} was replaced by another function, and chunks are updated by its class: "
                              "write a class with that step, and give castor.wrap one of it")


def _refuse_known(optimizer: torch.optim.Optimizer) -> None:
    name = type(optimizer).__name__
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if isinstance(optimizer, torch.optim.LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
        raise InvalidArgument(f"{name} evaluates the model inside a step, which chunks cannot serve: give castor.wrap an optimizer that takes one gradient")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InvalidArgument(f"{name} takes sparse gradients, and chunks have dense ones: give castor.wrap torch.optim.Adam")
    if type(optimizer).__module__.partition(".")[0] == "torchao":
        raise InvalidArgument(f"{name} of torchao compiles its step and quantizes its states by rank, and Castor keeps states itself: "
                              "give castor.wrap torch.optim.AdamW, and state_dtype='8bit' for moments of a quarter of the size")
    refuse_replaced_step(optimizer)
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise InvalidArgument(f"{name}(differentiable=True) keeps graphs through a step: leave differentiable away")


def _look_at(optimizer: torch.optim.Optimizer, index: int, group: dict[str, Any], by_dims: dict[int, tuple[int, ...]], facts: Facts) -> None:
    name = type(optimizer).__name__
    dims = {max(p.dim(), 1) for p in group["params"] if p.requires_grad}
    shapes = [by_dims.get(d, (3,) * d) for d in sorted(dims)] * 2
    if not shapes:
        return
    torch.default_generator.manual_seed(index)  # torch.manual_seed is of GPUs too
    values = [torch.randn(shape) for shape in shapes]
    grads = [[torch.randn(shape) * torch.randn(shape).exp() * scale for shape in shapes] for scale in _SCALES]
    if facts.placeholders:
        facts.placeholders = _takes_placeholders(optimizer, group, values, grads)
    try:
        torch.default_generator.manual_seed(index)
        together = _train(optimizer, group, values, grads, facts.placeholders)
        apart = [_train(optimizer, group, [value], [[grad[i]] for grad in grads], facts.placeholders) for i, value in enumerate(values)]
    except Exception as error:
        raise InvalidArgument(f"{name} does not step parameters of group {index} by a gradient alone ({type(error).__name__}: {error}): "
                              "give castor.wrap an optimizer whose step() needs nothing else") from error
    if together.kept_beside:
        raise InvalidArgument(f"{name} keeps {', '.join(together.kept_beside)} beside its state, where windows of parameters would mix: "
                              "give castor.wrap an optimizer that keeps all in its state")
    if together.idle_changed:
        raise InvalidArgument(f"{name} changes parameters that have no gradient, which chunks leave alone: give castor.wrap an optimizer that does, too")
    for i in range(len(values)):
        if same(together.values[i], values[i]):
            raise InvalidArgument(f"{name} leaves parameters that it is given as they were, as a wrapper around another optimizer does: "
                                  "give castor.wrap the one that updates")
        alike = same(together.values[i], apart[i].values[0]) and same(together.states[i], apart[i].states[0])
        if not alike or not same(together.numbers, apart[i].numbers):
            raise InvalidArgument(f"{name} updates a parameter by what others have, by a norm over all of them, say, or by chance: "
                                  "give castor.wrap an optimizer that updates each by its own gradient")
    for i, shape in enumerate(shapes):
        of_shape = {}
        for state, value in together.states[i].items():
            if isinstance(value, Tensor) and value.shape == shape and value.numel() > 1:
                of_shape[state] = value.data_ptr()
                if state not in facts.states:
                    facts.states.append(state)
        if len(set(of_shape.values())) < len(of_shape):
            raise InvalidArgument(f"{name} keeps one tensor under two names, which would be two in chunks: give castor.wrap an optimizer whose states are apart")
    for i, shape in enumerate(shapes):
        _check_states(name, together.states[i], shape, facts)
        if not facts.whole:
            facts.whole = not _equals_pieces(optimizer, group, values[i], [grad[i] for grad in grads], apart[i], facts)


def _takes_placeholders(optimizer: torch.optim.Optimizer, group: dict[str, Any], values: list[Tensor], grads: list[list[Tensor]]) -> bool:
    try:
        _train(optimizer, group, values, grads[:1], True)
        return True
    except Exception:
        return False


def _train(optimizer: torch.optim.Optimizer, group: dict[str, Any], values: list[Tensor], grads: list[list[Tensor]], placeholders: bool,
           last: Optional[_Live] = None) -> _Trained:
    """Steps new parameters of these values, and returns what they and their states become. `last` is on in the last step."""
    params = [nn.Parameter(value.clone()) for value in values]
    bare = Bare(optimizer)
    state: State = defaultdict(dict)
    idle = []
    groups: list[dict[str, Any]] = []
    for other in optimizer.param_groups:
        own = {name: copied(value) for name, value in other.items() if name != "params"}
        if "lr" in own and not float(own["lr"]):
            own["lr"] = 1e-3  # of a warm-up, which begins at nothing and would show nothing
        if other is group:
            state.update(_begun(optimizer, own, params))
        none = [nn.Parameter(torch.ones(_SHAPES[0].get(max((p.dim() for p in other["params"]), default=1), (3,))))] if placeholders else []
        idle += none
        groups.append({**own, "params": [*params, *none] if other is group else none})
    begun = [one.detach().clone() for one in idle]
    bare.put(groups, state)
    if callable(getattr(bare.optimizer, "train", None)):
        bare.optimizer.train()  # a schedule-free one steps in this mode alone
    beside = bare.kept_beside()
    for step in grads:
        for p, grad in zip(params, step):
            p.grad = grad.clone()
        with last if last is not None and step is grads[-1] else contextlib.nullcontext():
            bare.step(groups, state)
    mine = next(mine for mine, other in zip(groups, optimizer.param_groups) if other is group)
    numbers = ({name: value for name, value in mine.items() if name != "params"}, bare.numbers(), globals_in(state))
    trained = _Trained([p.detach() for p in params], [dict(state.get(p, {})) for p in params], numbers)
    if last is None:  # else tensors may have no values, which nothing could be compared with
        left = bare.kept_beside()
        trained.kept_beside = [name for name in left if not same(left[name], beside.get(name))]
        # Of a tensor of its own that states are, too, there is one, and windows have copies.
        shared = {_storage_of(one) for of_param in state.values() for one in _tensors_in(of_param)}
        trained.kept_beside += [name for name, value in vars(bare.optimizer).items() if isinstance(value, Tensor) and _storage_of(value) in shared]
        trained.idle_changed = not all(map(same, [one.detach() for one in idle], begun))
    return trained


def _begun(optimizer: torch.optim.Optimizer, group: dict[str, Any], params: list[nn.Parameter]) -> State:
    """States before the first step, which some optimizers make where they are made themselves."""
    state: State = defaultdict(dict)
    if optimizer.state:
        known = inspect.signature(type(optimizer)).parameters
        made = type(optimizer)(params, **{name: value for name, value in group.items() if name in known})  # type: ignore[arg-type]
        state.update(made.state)
    return state


def _check_states(name: str, state: dict[str, Any], shape: tuple[int, ...], facts: Facts) -> None:
    for word, value in state.items():
        if word in facts.states and isinstance(value, Tensor) and value.shape == shape and value.dtype is not torch.float32:
            raise InvalidArgument(f"{name} keeps its state {word} in {value.dtype}, and Castor keeps states in float32: "
                                  "give castor.wrap an optimizer with states in float32, such as torch.optim.AdamW with state_dtype='8bit' for moments of "
                                  "a quarter of the size")
        if not _is_small(value) and not (word in facts.states and isinstance(value, Tensor) and value.shape == shape):
            facts.whole = True


def _is_small(value: Any) -> bool:
    """Whether a state's value is a number or a flag."""
    return value.numel() <= 1 if isinstance(value, Tensor) else isinstance(value, (bool, int, float, str, type(None)))


def _equals_pieces(optimizer: torch.optim.Optimizer, group: dict[str, Any], value: Tensor, grads: list[Tensor], whole: _Trained, facts: Facts) -> bool:
    count = value.numel()
    cuts = [0, count // 3, 2 * count // 3 + 1, count] if count > 2 else [0, count]
    flat = [tensor.reshape(-1) for tensor in (value, *grads)]
    pieces = [[tensor[begin:end] for begin, end in zip(cuts, cuts[1:])] for tensor in flat]
    try:
        cut = _train(optimizer, group, pieces[0], pieces[1:], facts.placeholders)
    except Exception:  # one that takes matrices alone, say
        return False
    if not same(torch.cat(cut.values), whole.values[0].reshape(-1)) or not same(cut.numbers, whole.numbers):
        return False
    for word, of_whole in whole.states[0].items():
        if any(word not in state for state in cut.states):
            return False
        if word in facts.states and isinstance(of_whole, Tensor) and of_whole.shape == value.shape:
            if not same(torch.cat([state[word] for state in cut.states]), of_whole.reshape(-1)):
                return False
        elif not all(same(state[word], of_whole) for state in cut.states):
            return False
    return True


def _other_bytes(optimizer: torch.optim.Optimizer, group: dict[str, Any], shape: torch.Size, facts: Facts) -> int:
    """Bytes of one parameter's state that are not of its shape. Also finds what an optimizer does with large parameters alone."""
    try:
        tried, state, temporaries = _state_at(optimizer, group, shape, facts)
    except Exception as error:
        raise InvalidArgument(f"{type(optimizer).__name__} steps small parameters and fails at one of shape {tuple(shape)} "
                              f"({type(error).__name__}: {error}): give castor.wrap an optimizer that steps it") from error
    larger = -(-shape.numel() // max(tried.numel(), 1))
    total = 0
    for word, value in state.items():
        if word in facts.states and isinstance(value, Tensor) and value.shape == tried:
            continue
        found = [one for one in _tensors_in(value) if one.numel() > 1]
        total += sum(_elements_at(one.shape, tried, shape, larger) * one.element_size() for one in found)
        if found:
            facts.whole = True
    facts.temporaries.append((shape.numel(), temporaries * larger))
    return total


def _elements_at(state: torch.Size, tried: torch.Size, shape: torch.Size, larger: int) -> int:
    """Of a state, which `tried` had in this size, of a parameter of `shape`: dimensions grow as the parameter's that they are."""
    count = 1
    for place, size in enumerate(state):
        if size == 1:
            continue
        if len(state) == len(tried) and size == tried[place]:
            count *= shape[place]
        elif size in tried:  # a row or a column without the other, say, or a square of one
            count *= shape[tried.index(size)]
        elif size == tried.numel():
            count *= shape.numel()
        else:
            return state.numel() * larger
    return count


def _state_at(optimizer: torch.optim.Optimizer, group: dict[str, Any], shape: torch.Size, facts: Facts) -> tuple[torch.Size, dict[str, Any], int]:
    """The shape that was tried, a state after two steps, and the bytes that the second made and dropped.

    The shape is the true one, without memory; or, where the optimizer looks at values, one with all dimensions halved until it is small.
    """
    live = _Live()
    try:
        with fake_tensors(allow_non_fake_inputs=True):
            grads = [[torch.zeros(shape)] for _ in range(2)]
            return shape, _train(optimizer, group, [torch.zeros(shape)], grads, facts.placeholders, live).states[0], live.peak
    except Exception:
        live = _Live()
    tried = shape
    while tried.numel() > _MOST_TRIED:
        tried = torch.Size(max(size // 2, 1) for size in tried)
    grads = [[torch.randn(tried)] for _ in range(2)]
    return tried, _train(optimizer, group, [torch.randn(tried)], grads, facts.placeholders, live).states[0], live.peak


def _tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for each in value for one in _tensors_in(each)]
    if isinstance(value, dict):
        return _tensors_in(list(value.values()))
    return []
