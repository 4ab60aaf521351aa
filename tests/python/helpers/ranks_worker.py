# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What each rank of a test does (ranks.py)."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import numpy
import torch
import torch.distributed as dist
import torch.utils.checkpoint
import torch.utils.data

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "parameters"))
torch.set_num_threads(1)

import as_tensor_cases  # noqa: E402
import budget_cases  # noqa: E402
import card_cases  # noqa: E402
import castor.torch as castor  # noqa: E402
import keepers as keepers_matrix  # noqa: E402
import ranks  # noqa: E402
import save_on_worker  # noqa: E402
from castor.torch._checkpoints import _save_on as save_on_module  # noqa: E402
from castor.torch._machine import _world  # noqa: E402
from models import PLAIN, Case  # noqa: E402
from renamed_models import renamed, with_values  # noqa: E402
from shard_cases import shards, shards_refused, shards_saved  # noqa: E402, F401

CASES = {case.name: case for case in PLAIN}


def digest(weights: dict[str, torch.Tensor]) -> str:
    text = hashlib.sha256()
    for name in sorted(weights):
        text.update(weights[name].contiguous().numpy().tobytes())
    return text.hexdigest()


def train(case: Case, wrap: Optional[dict[str, Any]], steps: int, first: int = 0, folder: str = "", random_gc: bool = False) -> dict[str, Any]:
    """Each rank has a batch of its own; plainly, DDP averages."""
    torch.manual_seed(7)
    rank, size = dist.get_rank(), dist.get_world_size()
    model: Any = case.make()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if wrap is None:
        model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        model, optimizer = castor.wrap(model, optimizer, timeout_s=60, **wrap)
    if first:
        assert castor.load(folder, model) == {"data": first}
    chance = random.Random(rank)
    losses, kept = [], []
    for step in range(first, steps):
        torch.manual_seed(100 + step)
        optimizer.zero_grad()
        loss = case.loss(model, step * size + rank)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if random_gc:
            # All ranks look at the same values. Each rank lets go when the garbage collector finds the cycle.
            cycle: list[Any] = [seen for seen in [p.detach() for p in model.parameters()] if chance.random() < 0.3]
            cycle.append(cycle)
            kept = [one for one in [*kept, cycle] if chance.random() < 0.6]
            if chance.random() < 0.3:
                gc.collect()
    if wrap is None:
        return {"losses": losses}
    kept.clear()
    gc.collect()
    weights = model.state_dict()
    assert any(values.is_meta for values in weights.values()) == (rank != 0)
    if folder and not first:
        castor.save(folder, model, extra={"data": steps})
    return {"losses": losses, "digest": digest(weights) if rank == 0 else "", "stats": optimizer.runtime.engine.stats()}


def equal(folder: str) -> list[dict[str, Any]]:
    """Every stage and placement next to DDP."""
    gc.disable()
    seen = []
    for name in ("tied", "low_rank") if dist.get_world_size() == 2 else ("tied",):
        of_case = {"name": name, "plain": train(CASES[name], None, 6), "castor": []}
        roomy = {"device": "64MiB", "host": "64MiB"}
        # Castor's buffers between ranks take 4 MiB of the device.
        tight = {"device": "4600KiB", "host": "1MiB", "nvme": folder, "chunk": "4KiB", "config": {"poison": True}}
        for stage in range(4):
            of_case["castor"].append(train(CASES[name], roomy | {"stage": stage}, 6))
            of_case["castor"].append(train(CASES[name], tight | {"stage": stage}, 6, random_gc=True))
            if stage in (1, 3):
                of_case["castor"].append(train(CASES[name], tight | {"stage": stage, "update_in_backward": True}, 6))
        seen.append(of_case)
    return seen


def eight_bits(folder: str) -> list[str]:
    """Weights after steps in which all ranks have the same data, by stage and place."""
    roomy: dict[str, Any] = {"device": "64MiB", "host": "64MiB"}
    tight = {"device": "6MiB", "host": "1MiB", "nvme": folder, "chunk": "48KiB"}
    digests = []
    for wrap in (roomy | {"stage": 0}, tight | {"stage": 1}, roomy | {"stage": 2}, tight | {"stage": 3}, roomy | {"stage": 3, "chunk": "256KiB"}):
        torch.manual_seed(7)
        model: Any = torch.nn.Sequential(torch.nn.Linear(72, 200), torch.nn.Tanh(), torch.nn.Linear(200, 72), torch.nn.LayerNorm(72))
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model, optimizer = castor.wrap(model, optimizer, state_dtype="8bit", max_norm=0.1, timeout_s=60, **wrap)
        for step in range(5):
            model(torch.randn(8, 72, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        digests.append(digest({name: castor.exact(p).detach() for name, p in model.named_parameters()}))
    return digests


def keepers(folder: str) -> dict[str, str]:
    """What autograd keeps of parameters, at stages 1 and 3. Both ranks have the same data, so averages are one rank's gradients."""
    found = {}
    for number, cell in enumerate(keepers_matrix.cells(120)):
        if cell.around == "offload_activations":
            continue  # copies nothing on a CPU
        stage = (1, 3)[number % 2]
        found[f"{cell} at stage {stage}"] = keepers_matrix.difference(cell, {"stage": stage, **keepers_matrix.budgets(cell, folder, True)})
    return found


class Experts(torch.nn.Module):
    """Each row goes to one of four experts, so which are used differs from rank to rank."""

    all_have_gradients = False

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        chosen = weights.argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, number, None])
        if self.all_have_gradients:
            out = out + 0.0 * sum(p.sum() for p in self.parameters())
        return x + out


class Recomputed(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def experts_case(all_have_gradients: bool = False, recomputed: bool = False) -> Case:
    """`all_have_gradients`: as those of a unit have on several ranks."""

    def make() -> torch.nn.Module:
        Experts.all_have_gradients = all_have_gradients
        around = Recomputed if recomputed else torch.nn.Sequential
        return torch.nn.Sequential(torch.nn.Linear(8, 8), around(Experts()), torch.nn.Tanh(), around(Experts()), torch.nn.Linear(8, 2))

    def loss(model: torch.nn.Module, number: int) -> torch.Tensor:
        x = torch.randn(2, 8, generator=torch.Generator().manual_seed(number))
        return model(x).pow(2).mean()

    return Case("experts", make, loss)


def experts(folder: str) -> dict[str, Any]:
    """Blocks whose inner calls differ by rank, as units; next to DDP."""
    cases = [(experts_case(recomputed=recomputed), stage) for stage in range(4) for recomputed in (False, True)]
    tight = {"device": "4600KiB", "host": "1MiB", "nvme": folder, "chunk": "1KiB", "units": [Experts], "config": {"poison": True}}
    made = [train(case, tight | {"stage": stage}, 8) for case, stage in cases]
    return {"plain": train(experts_case(True), None, 8), "castor": made}


def experts_without_units(folder: str) -> str:
    try:
        train(experts_case(), {"device": "4600KiB", "host": "1MiB", "nvme": folder, "chunk": "1KiB"}, 8)
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(8, generator=torch.Generator().manual_seed(index))


def loaders(folder: str) -> dict[str, Any]:
    """Batches come from workers that were forked after the model was wrapped, anew in each epoch; next to DDP."""
    found = {}
    for who in ("plain", "castor"):
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if who == "castor":
            model, optimizer = castor.wrap(model, optimizer, device="6MiB", host="64MiB", timeout_s=60)
        else:
            model = torch.nn.parallel.DistributedDataParallel(model)
        sampler = torch.utils.data.DistributedSampler(Rows(), shuffle=False)
        losses = []
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, sampler=sampler, num_workers=2):
                optimizer.zero_grad()
                loss = model(batch).pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        found[who] = losses
    return found


def save(folder: str) -> dict[str, Any]:
    return train(CASES["lstm"], {"device": "64MiB", "host": "64MiB"}, 4, folder=folder)


def load(folder: str) -> dict[str, Any]:
    return train(CASES["lstm"], {"device": "6MiB", "host": "64MiB", "stage": 2}, 8, first=4, folder=folder)


def alone(folder: str) -> str:
    """Rank 0 alone asks for the state."""
    model: Any = CASES["lstm"].make()
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=3)
    if dist.get_rank() != 0:
        import time

        time.sleep(8)
        return ""
    try:
        model.state_dict()
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


def as_tensor(folder: str) -> list[str]:
    """Lines of scripts that differ from those of a plain model."""
    tight = {"device": "4300KiB", "host": "64KiB", "nvme": folder, "chunk": "2KiB", "config": {"poison": True}}
    wrong = []
    for case, dtype in itertools.product(as_tensor_cases.ACCESSES, (torch.float32, torch.bfloat16)):
        want = as_tensor_cases.run(case, dtype, None)
        losses = want["losses"] if dtype is torch.float32 else None  # the plain script has no masters for others
        for stage in (1, 3):
            got = as_tensor_cases.run(case, dtype, lambda model, optimizer, stage=stage: castor.wrap(model, optimizer, stage=stage, **tight))
            losses = losses or got["losses"]
            try:
                if dist.get_rank() == 0:  # others have no state_dict
                    for when in ("first", "last") if dtype is torch.float32 else ("first",):
                        for name, values in want[when].items():
                            torch.testing.assert_close(got[when][name], values, rtol=1e-4, atol=1e-6)
                if dtype is torch.float32:
                    torch.testing.assert_close(got["seen"], want["seen"], rtol=1e-4, atol=1e-6)
                torch.testing.assert_close(got["losses"], losses, rtol=1e-5, atol=1e-8)
            except AssertionError as error:
                wrong.append(f"{case.name} in {dtype} at stage {stage} on rank {dist.get_rank()}: {error}")
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, wrong)
    return [words for rank in everywhere for words in rank]


def evaluations(folder: str) -> bool:
    """Ranks need not evaluate as often as others, where everything is resident."""
    torch.manual_seed(0)
    model: Any = as_tensor_cases.plain()
    model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", stage=2, timeout_s=20)
    for number in range(3):
        with torch.no_grad():
            for _ in range(dist.get_rank() + number):
                model(torch.ones(1, 16))
        model(torch.ones(2, 16)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return True


def collectives(folder: str) -> bool:
    """Whether torch.distributed's writes to what a parameter gives reach the chunk."""
    torch.manual_seed(0)
    model: Any = as_tensor_cases.plain()
    plain = {name: values.clone() for name, values in model.state_dict().items()}
    model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="4300KiB", host="1MiB", chunk="2KiB")
    dist.broadcast(plain["0.weight"], 0)
    dist.broadcast(model[0].weight.data, 0)
    for name in ("0.bias", "2.weight"):
        dist.all_reduce(plain[name])
        dist.all_reduce(model.get_parameter(name).detach())
    found = {name: castor.exact(p) for name, p in model.named_parameters()}
    return all(torch.equal(found[name], plain[name]) for name in ("0.weight", "0.bias", "2.weight"))


def writes_that_differ(folder: str) -> dict[str, list[str]]:
    """What each rank is told where ranks write different values, and where one writes alone."""
    said: dict[str, list[str]] = {}
    for what in ("differ", "alone"):
        model: Any = as_tensor_cases.plain()
        model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=10)
        mine = ""
        try:
            with torch.no_grad():
                if what == "differ" or dist.get_rank() == 1:
                    model[2].weight.fill_(float(dist.get_rank()))
            model(torch.ones(1, 16))
        except castor.CastorError as error:
            mine = str(error)
        everywhere: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, mine)
        said[what] = everywhere
    return said


def initial_values(folder: str) -> dict[str, Any]:
    """Models that each rank builds from a seed of its own, with values and without, next to rank 0's."""
    same = {}
    for lazy in (False, True):
        torch.manual_seed(0)
        with castor.lazy_init() if lazy else contextlib.nullcontext():
            want: Any = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8))
        if not lazy:
            want[1].running_mean.fill_(0.0)
        torch.manual_seed(dist.get_rank())
        with castor.lazy_init() if lazy else contextlib.nullcontext():
            model: Any = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8))
        model[1].running_mean.fill_(float(dist.get_rank()))
        model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="4300KiB", host="1MiB", chunk="2KiB")
        mine = [castor.exact(p) for p in model.parameters()] + [model[1].running_mean]
        everywhere: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, mine)
        first = everywhere[0] if lazy else [*want.parameters(), want[1].running_mean]
        same["lazy" if lazy else "made"] = bool(first[0].any()) and all(torch.equal(a, b) for rank in everywhere for a, b in zip(rank, first))
    return same


def ignored(folder: str) -> dict[str, Any]:
    """The weights after steps in which each rank has data of its own and one lacks a gradient: an ignored module's, and DistributedDataParallel's."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.extra = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)

        def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
            hidden = torch.tanh(self.body(x))
            return self.head(hidden) + (self.extra(hidden) if extra else 0)

    weights = {}
    for name in ("plain", "castor"):
        torch.manual_seed(0)
        model: Any = Model()
        others = torch.optim.SGD([*model.head.parameters(), *model.extra.parameters()], lr=0.1)
        first: Any = torch.optim.SGD(model.body.parameters(), lr=0.1)
        if name == "plain":
            used: Any = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        else:
            model, first = castor.wrap(model, first, device="64MiB", host="64MiB", ignore=[model.head, model.extra])
            used = model
        for step in range(4):
            for micro_batch in range(2):
                x = torch.randn(4, 4, generator=torch.Generator().manual_seed(100 * dist.get_rank() + 10 * step + micro_batch))
                with used.no_sync() if micro_batch == 0 else contextlib.nullcontext():
                    used(x, dist.get_rank() == 0).pow(2).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            first.step(), others.step()
            model.zero_grad()
        weights[name] = [p.detach().clone().flatten().tolist() for p in model.parameters()]
    return weights


def gradients(folder: str) -> dict[str, Any]:
    """Weights after steps that read and write gradients on all ranks: DistributedDataParallel's, and Castor's at each stage."""
    weights: dict[str, Any] = {}
    for name in ("plain", "0", "1", "2", "3"):
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
        used: Any = model
        if name == "plain":
            used = torch.nn.parallel.DistributedDataParallel(model)
        else:
            model, optimizer = castor.wrap(model, optimizer, stage=int(name), device="4300KiB", host="1MiB", chunk="1KiB")
            used = model
        said = []
        for step in range(4):
            used(torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))).pow(2).sum().backward()
            said.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])))
            model[0].weight.grad.data.mul_(0.5)
            model[2].weight.grad = model[2].weight.grad + 0.01
            if step == 2:
                model[0].bias.grad = None
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.3)
            said.append(float(torch.nn.utils.clip_grad_norm_(model[2].parameters(), 0.2)))
            optimizer.step()
            optimizer.zero_grad()
        weights[name] = [said, *(p.detach().clone().flatten().tolist() for p in model.parameters())]
    return weights


# Which arms of a `Branches` a rank takes: by rank, step and micro-batch.
WAYS: dict[str, Callable[[int, int, int], tuple[int, ...]]] = {
    "an arm each": lambda rank, step, batch: (rank,),
    "one rank leaves an arm out": lambda rank, step, batch: (0, 1) if rank == 0 else (1,),
    "one rank begins to leave an arm out": lambda rank, step, batch: (0, 1) if rank == 0 or step < 2 else (0,),
    "one rank leaves an arm out at times": lambda rank, step, batch: (0, 1) if rank == 0 or step % 2 else (1,),
    "one rank takes none": lambda rank, step, batch: (0, 1, 2) if rank == 0 else (),
    "no rank takes one": lambda rank, step, batch: (0, 2),
    "another order on each": lambda rank, step, batch: (0, 1, 2) if rank == 0 else (2, 0, 1),
    "one twice on a rank": lambda rank, step, batch: (0, 1, 0) if rank == 0 else (0, 1),
    "by data": lambda rank, step, batch: ((7 * rank + 5 * step + 3 * batch) % 4,),
    "as many as the data say": lambda rank, step, batch: tuple(range((rank + step + batch) % 5)),
    "in one micro-batch only": lambda rank, step, batch: (0, 1) if batch == 0 else (2,),
    "in the last micro-batch of one rank": lambda rank, step, batch: (0, 1) if batch == 1 and rank == 1 else (0,),
    "one rank from the first step on, the other later": lambda rank, step, batch: (3,) if rank == 0 or step > 1 else (),
}


class Branches(torch.nn.Module):
    """Ranks go other ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
        self.arms = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor, arms: tuple[int, ...]) -> torch.Tensor:
        x = self.first(x)
        for arm in arms:
            x = x + torch.tanh(self.arms[arm](x))
        return self.last(x)


def _branches(way: str, batches: int, wrap: Optional[dict[str, Any]]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model: Any = Branches()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    called = model
    if wrap is None:
        called = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        model, optimizer = castor.wrap(model, optimizer, device="4700KiB", host="8MiB", chunk="8KiB", timeout_s=20, **wrap)
        called = model
    for step in range(4):
        for batch in range(batches):
            x = torch.randn(2, 64, generator=torch.Generator().manual_seed(1000 * dist.get_rank() + 10 * step + batch))
            called(x, WAYS[way](dist.get_rank(), step, batch)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() if wrap is None else castor.exact(p) for p in model.parameters()]


def branches(folder: str) -> dict[str, Any]:
    """What branches that differ come to at stages 0 to 2, next to DDP, with updates in the backward too; and in words at stage 3."""
    said: dict[str, Any] = {"differs": [], "made": 0}
    for way, early in itertools.product(WAYS, (False, True)):
        batches = 1 if early else 2
        want = _branches(way, batches, None)
        for stage in (0, 1, 2):
            got = _branches(way, batches, {"stage": stage, "update_in_backward": early})
            said["made"] += 1
            if not all(torch.allclose(mine, theirs, atol=1e-6) for mine, theirs in zip(got, want)):
                said["differs"].append([way, stage, early])
    try:
        _branches("an arm each", 1, {"stage": 3})
        mine = ""
    except castor.CastorError as error:
        mine = str(error)
    said["at stage 3"] = [""] * dist.get_world_size()
    dist.all_gather_object(said["at stage 3"], mine)
    return said


def budgets(folder: str) -> list[str]:
    """Models for which `castor.plan` asks for another device budget than `castor.wrap` takes."""
    host, chunk = 64 << 20, 32 << 10
    wrong = []
    for name, case in budget_cases.SIZED.items():
        for stage in (1, 3):
            least = [budget_cases.least_device(case, host_budget=host, chunk=chunk, world=2, stage=stage) if dist.get_rank() == 0 else 0]
            dist.broadcast_object_list(least)
            for more, want in ((0, "trains"), (-chunk, "refused")):
                came = budget_cases.outcome(case, device=least[0] + more, host=host, chunk=chunk, stage=stage)
                if came != want:
                    wrong.append(f"{name} at stage {stage}, {least[0]} {more:+}: {came}")
    return wrong


def raises(folder: str) -> list[str]:
    """What a refusal's numbers get wrong: all ranks have them, each is enough by itself, and one byte less is not."""
    wrong = []
    rank, size = dist.get_rank(), dist.get_world_size()
    for stage in (1, 3):
        for device, host in (((4 << 20) + (40 << 10), 8 << 10), (64 << 10, 64 << 20)):
            told: list[Any] = [None] * size
            dist.all_gather_object(told, _refusal(stage, device, host))
            if not told[0] or any(one != told[0] for one in told):
                wrong.append(f"stage {stage}, {device} and {host}: the ranks have {told}")
                continue
            for more_device, more_host, more_nvme in told[0]:
                if more_nvme:
                    continue  # from nothing, where no folder was given
                if (found := _refusal(stage, device + more_device, host + more_host)) is not None:
                    wrong.append(f"stage {stage}, {device} + {more_device} and {host} + {more_host}: {found}")
                if more_device and not more_host and _refusal(stage, device + more_device - 1, host) is None:
                    wrong.append(f"stage {stage}, {device} + {more_device} - 1 and {host}: trains")
                if more_host and not more_device and _refusal(stage, device, host + more_host - 1) is None:
                    wrong.append(f"stage {stage}, {device} and {host} + {more_host} - 1: trains")
    return wrong if rank == 0 else []


def _refusal(stage: int, device: int, host: int) -> Optional[list[list[int]]]:
    """The raises that a refused training names; None where it trains."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
    try:
        model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), stage=stage, device=device, host=host, chunk=16 << 10, timeout_s=60)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 64)).sum().backward()
            optimizer.step()
    except castor.DoesNotFit as error:
        return [list(one) for one in error.raises]
    return None


def stopped(folder: str) -> list[float]:
    """Trains until it has been stopped for longer than others wait."""
    model: Any = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB", timeout_s=2)
    Path(folder, f"pid-{dist.get_rank()}").write_text(str(os.getpid()))
    gaps, before, until = [], time.monotonic(), time.monotonic() + 60
    goes_on = torch.ones(1)
    while bool(goes_on):
        optimizer.zero_grad()
        model(torch.ones(2, 32)).sum().backward()
        optimizer.step()
        gaps.append(time.monotonic() - before)
        before = time.monotonic()
        # All ranks end behind the same step.
        goes_on.fill_(not Path(folder, "end").exists() and time.monotonic() < until)
        dist.broadcast(goes_on, src=0)
    return gaps


def gpus(folder: str) -> dict[str, str]:
    """What ranks are told that name the same GPU, and such that do not."""
    said = {}
    for what in ("shared", "own"):
        _world._gpu_of = lambda device, what=what: ("host", "GPU" if what == "shared" else f"GPU {dist.get_rank()}")  # type: ignore[assignment]
        try:
            _world.make_world(20.0, torch.device("cuda", 0))
        except castor.CastorError as error:
            said[what] = f"{type(error).__name__}: {error}"
    return said


class SavesAList(torch.optim.RMSprop):
    """Beside torch's form, of states that it takes to be there."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"steps": [self.state[p]["step"] for group in self.param_groups for p in group["params"]]}


ANY: dict[str, Any] = {
    "NAdam": lambda params: torch.optim.NAdam(params, lr=1e-3),
    "Adam with amsgrad": lambda params: torch.optim.Adam(params, lr=1e-3, amsgrad=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=1e-2, initial_accumulator_value=0.1),
    "ASGD": lambda params: torch.optim.ASGD(params, lr=1e-2, t0=2),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=1e-3, momentum=0.9, centered=True),
    "with a form of its own": lambda params: SavesAList(params, lr=1e-3),
}


def counts(state: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {str(number): {name: float(value) for name, value in of.items() if not isinstance(value, torch.Tensor) or value.numel() == 1}
            for number, of in state["state"].items()}


def any_optimizer(folder: str) -> list[dict[str, Any]]:
    """Optimizers that are not Castor's own, next to DDP."""
    case, size, rank = CASES["tied"], dist.get_world_size(), dist.get_rank()
    tight = {"device": "4600KiB", "host": "1MiB", "nvme": folder, "chunk": "4KiB", "config": {"poison": True}}
    ways: list[Any] = [None] + [{"device": "64MiB", "host": "64MiB", "stage": stage} for stage in range(4)]
    ways += [tight | {"stage": stage} for stage in (1, 2, 3)] + [tight | {"stage": 3, "update_in_backward": True}]
    seen = []
    for name, make in ANY.items():
        found: dict[str, Any] = {"name": name, "losses": [], "digests": [], "counts": []}
        for way in ways:
            torch.manual_seed(7)
            model: Any = case.make()
            optimizer: Any = make(model.parameters())
            if way is None:
                model = torch.nn.parallel.DistributedDataParallel(model)
            else:
                model, optimizer = castor.wrap(model, optimizer, timeout_s=60, **way)
            losses = []
            for step in range(5):
                optimizer.zero_grad()
                loss = case.loss(model, step * size + rank)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            found["losses"].append(losses)
            found["counts"].append(counts(optimizer.state_dict()))
            if way is not None:
                weights = model.state_dict()
                found["digests"].append(digest(weights) if rank == 0 else "")
        seen.append(found)
    return seen


WHOLE: dict[str, Any] = {
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),
}
if hasattr(torch.optim, "Muon"):
    WHOLE["Muon and AdamW"] = lambda params: [torch.optim.Muon([p for p in params if p.dim() == 2], lr=1e-2),
                                              torch.optim.AdamW([p for p in params if p.dim() != 2], lr=1e-3)]


def whole_on_ranks(folder: str) -> list[dict[str, Any]]:
    """Optimizers that need whole parameters: at every stage the same bits, and those of the plain script where all ranks have the same data."""
    case = CASES["tied"]
    tight = {"device": "5MiB", "host": "1MiB", "nvme": folder, "config": {"poison": True}}
    seen = []
    for name, make in WHOLE.items():
        found: dict[str, Any] = {"name": name, "digests": [], "states": [], "near": []}
        torch.manual_seed(7)
        plain: Any = case.make()
        own = make(list(plain.parameters()))
        own = own if isinstance(own, list) else [own]
        for step in range(4):
            for one in own:
                one.zero_grad()
            case.loss(plain, step).backward()
            for one in own:
                one.step()
        for stage, where in itertools.product(range(4), ({}, tight)):
            torch.manual_seed(7)
            model: Any = case.make()
            model, optimizer = castor.wrap(model, make(list(model.parameters())), stage=stage, timeout_s=60, **where)
            for step in range(2):
                optimizer.zero_grad()
                case.loss(model, step).backward()
                optimizer.step()
            place = str(Path(folder) / f"{name}-{stage}-{len(where)}")
            castor.save(place, model)
            torch.manual_seed(8)
            model = case.make()
            model, optimizer = castor.wrap(model, make(list(model.parameters())), stage=stage, timeout_s=60, **where)
            castor.load(place, model)
            for step in range(2, 4):
                optimizer.zero_grad()
                case.loss(model, step).backward()
                optimizer.step()
            state, weights = optimizer.state_dict()["state"], model.state_dict()
            if dist.get_rank() == 0:
                found["digests"].append(digest(weights))
                found["states"].append(digest({f"{number} {word}": value for number, of in state.items() for word, value in of.items()}))
                found["near"].append(all(torch.allclose(value, plain.state_dict()[key], rtol=1e-3, atol=1e-4) for key, value in weights.items()))
        seen.append(found)
    return seen


def resumed_without_a_gradient(folder: str) -> list[list[float]]:
    """Counts of updates where a parameter has no gradient in the first step after a checkpoint."""
    seen = []
    for stage in (1, 3):
        counts_of = []
        for resumes in (False, True):
            def make() -> tuple[Any, Any]:
                torch.manual_seed(7)
                model: Any = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])
                return castor.wrap(model, torch.optim.NAdam(model.parameters(), lr=1e-2), stage=stage, device="4600KiB", host="1MiB", nvme=folder,
                                   chunk="1KiB", timeout_s=60)

            model, optimizer = make()
            for step in range(4):
                if resumes and step == 2:
                    castor.save(str(Path(folder) / f"saved {stage}"), model)
                    model, optimizer = make()
                    castor.load(str(Path(folder) / f"saved {stage}"), model)
                optimizer.zero_grad()
                x = model[0](torch.ones(2, 8))
                (model[1](x) if step != 2 else x).sum().backward()
                optimizer.step()
            counts_of.append([float(of["step"]) for of in optimizer.state_dict()["state"].values()])
        seen += counts_of
    return seen


def _drawn() -> list[float]:
    return [torch.rand(1).item(), random.random(), float(numpy.random.rand())]


def _streams(folder: str, saves: bool) -> list[list[float]]:
    """Of each rank, what its generators give next; and a second time, from the checkpoint."""
    torch.manual_seed(7)
    model: Any = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 4))
    seed = 100 * (1 + saves) + dist.get_rank()
    torch.manual_seed(seed), random.seed(seed), numpy.random.seed(seed)
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="16MiB", host="16MiB", timeout_s=60)
    if saves:
        for _ in range(2):
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()  # a save may come between a backward and its step
        castor.save(str(Path(folder) / "streams"), model)
    else:
        castor.load(str(Path(folder) / "streams"), model)
    drawn: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(drawn, _drawn())
    return drawn


def streams_saved(folder: str) -> list[list[float]]:
    return _streams(folder, True)


def streams_loaded(folder: str) -> list[list[float]]:
    return _streams(folder, False)


def many_models(folder: str) -> list[int]:
    """Threads and files of the process, with the second model and with the sixth."""
    seen = []
    for number in range(6):
        model: Any = torch.nn.Linear(4, 4)
        model, optimizer = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=20)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if number in (1, 5):
            seen += [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]
        del model, optimizer
        gc.collect()
    return seen


def cores(folder: str) -> list[int]:
    """Ranks that share this rank's cores: where each may use all, and where rank 0 has cores of its own."""
    from castor.torch._machine._world import ranks_of_cores

    mine = os.sched_getaffinity(0)
    together = ranks_of_cores()
    os.sched_setaffinity(0, {min(mine)} if dist.get_rank() == 0 else mine - {min(mine)})
    return [together, ranks_of_cores()]


def numbers_differ(folder: str) -> str:
    """Ranks whose optimizers have other numbers."""
    model: Any = torch.nn.Linear(4, 4)
    model, optimizer = castor.wrap(model, torch.optim.NAdam(model.parameters(), momentum_decay=4e-3 + dist.get_rank()), device="64MiB", host="64MiB",
                                   timeout_s=20)
    try:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


def names(folder: str) -> list[Any]:
    """What a state dict is on a rank that has no values, and PEFT's way to load, which asks for names; next to one rank."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8))
    model: Any = get_peft_model(base, LoraConfig(r=2, target_modules=["0", "2"], init_lora_weights=False))  # type: ignore[arg-type]
    adapter = Path(folder) / f"adapter{dist.get_rank()}"
    model.save_pretrained(adapter)
    trained = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model, optimizer = castor.wrap(model, trained, device="8MiB", host="32MiB", stage=3, timeout_s=20)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    losses = []
    for step in range(4):
        if step == 2:
            model.load_adapter(str(adapter), "default", is_trainable=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = model.state_dict()
    on_cpu = {name: values.detach().cpu().to(torch.bfloat16).clone() for name, values in weights.items() if values.is_floating_point()}
    first = next(name for name in weights if name.endswith("weight"))
    refused = []
    if dist.get_rank() != 0:
        for use in (lambda: torch.save(weights, Path(folder) / "w"), lambda: torch.save(on_cpu, Path(folder) / "w"), lambda: weights[first].zero_(),
                    lambda: weights[first].numpy(), lambda: weights[first].__setitem__(0, 1.0)):
            try:
                use()
            except castor.FailedPrecondition as error:
                refused.append(str(error))
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, ([(name, list(values.shape), str(values.dtype)) for name, values in weights.items()], refused))
    return [losses, *told]


def _reversed_rates(optimizer: Any) -> None:
    optimizer.param_groups.reverse()
    optimizer.param_groups[0]["lr"] = 0.0


def _merged(optimizer: Any) -> None:
    groups = optimizer.param_groups
    groups[0]["params"] += groups.pop(1)["params"]
    groups[0]["lr"] = 1e-3


def _states_written(optimizer: Any) -> None:
    for group in optimizer.param_groups[1:]:
        optimizer.state[group["params"][0]]["exp_avg"].zero_()
        optimizer.state[group["params"][1]]["exp_avg_sq"].copy_(torch.full_like(optimizer.state[group["params"][1]]["exp_avg_sq"], 1e-3))


# What a script does to its optimizer between steps.
_EDITS: dict[str, Callable[[Any], Any]] = {
    "popped": lambda optimizer: optimizer.param_groups.pop(1),
    "reversed": _reversed_rates,
    "merged": _merged,
    "rate": lambda optimizer: optimizer.param_groups[1].update(lr=5e-3),
    "one moved": lambda optimizer: optimizer.param_groups[0]["params"].append(optimizer.param_groups[2]["params"].pop()) or
    optimizer.param_groups[2].update(lr=0.0),
    "states written": _states_written,
}


def edits(folder: str) -> dict[str, float]:
    """The most that weights differ by from those of a plain script that has all ranks' batches, after each edit."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def trained(edit: Callable[[Any], Any], wrap: Optional[dict[str, Any]]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
        optimizer: Any = torch.optim.Adam([{"params": list(layer.parameters()), "lr": 1e-2} for layer in model])
        if wrap is not None:
            model, optimizer = castor.wrap(model, optimizer, timeout_s=60, chunk=4 << 10, **wrap)
        for step in range(4):
            if step == 2:
                edit(optimizer)
            optimizer.zero_grad()
            for one in range(size) if wrap is None else (rank,):
                x = torch.randn(4, 32, generator=torch.Generator().manual_seed(step * size + one))
                (model(x).pow(2).mean() / (size if wrap is None else 1)).backward()
            optimizer.step()
        return [p.detach().clone() if wrap is None else castor.exact(p) for p in model.parameters()]

    found = {}
    for name, edit in _EDITS.items():
        plain = trained(edit, None)
        for stage, device in ((1, 64 << 20), (3, (4 << 20) + (24 << 10))):
            ours = trained(edit, {"stage": stage, "device": device, "host": "64MiB"})
            found[f"{name}, stage {stage}"] = max((mine - theirs).abs().max().item() for mine, theirs in zip(ours, plain))
    return found


def thaws(folder: str) -> dict[str, Any]:
    """Layers are thawed while two ranks train: the most that weights differ by from those of a plain script with all ranks' batches."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tight = (4 << 20) + (24 << 10)  # beside 4 MiB for exchanges

    def trained(wrap: Optional[dict[str, Any]]) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model: Any = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
        model[:2].requires_grad_(False)
        optimizer: Any = torch.optim.AdamW(model[2].parameters(), lr=1e-2)
        return (model, optimizer) if wrap is None else castor.wrap(model, optimizer, timeout_s=60, chunk=4 << 10, **wrap)

    def steps(model: Any, optimizer: Any, plain: bool, first: int) -> None:
        for step in range(first, first + 3):
            optimizer.zero_grad()
            for one in range(size) if plain else (rank,):
                x = torch.randn(4, 32, generator=torch.Generator().manual_seed(step * size + one))
                (model(x).pow(2).mean() / (size if plain else 1)).backward()
            optimizer.step()

    def thawed(model: Any, optimizer: Any) -> None:
        model[1].requires_grad_(True)
        optimizer.add_param_group({"params": model[1].parameters(), "lr": 3e-3})

    plain, its = trained(None)
    steps(plain, its, True, 0)
    thawed(plain, its)
    steps(plain, its, True, 3)
    found: dict[str, Any] = {}
    for stage in (1, 3):
        for budgets in ({"device": "64MiB", "host": "64MiB"}, {"device": tight, "host": "64MiB"}, {"device": tight, "host": "48KiB", "nvme": folder}):
            model, optimizer = trained({"stage": stage, **budgets})
            steps(model, optimizer, False, 0)
            thawed(model, optimizer)
            steps(model, optimizer, False, 3)
            weights = [castor.exact(p) for p in model.parameters()]
            found[f"{stage} {budgets}"] = max((mine - p.detach()).abs().max().item() for mine, p in zip(weights, plain.parameters()))
    # All ranks know of a refusal, and go on.
    model, optimizer = trained({"device": tight, "host": "38KiB"})
    steps(model, optimizer, False, 0)
    thawed(model, optimizer)
    before = castor.exact(model[2].weight)
    try:
        steps(model, optimizer, False, 3)
    except castor.DoesNotFit as error:
        found["refused"] = f"{len(error.raises)} raises: {error}"
    found["kept"] = torch.equal(castor.exact(model[2].weight), before)
    optimizer.param_groups.pop()
    model[1].requires_grad_(False)
    steps(model, optimizer, False, 3)
    found["went on"] = not torch.equal(castor.exact(model[2].weight), before)
    return found


def partial_weights(folder: str) -> dict[str, bool]:
    """Files of float64 that lack a layer, on both ranks: the engine leaves the work to torch's side."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    values = torch.randn(8, 8, dtype=torch.float64)
    if dist.get_rank() == 0:
        save_file({"0.weight": values, "0.bias": values[0].clone()}, f"{folder}/model.safetensors")
    dist.barrier()
    model, optimizer = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB", timeout_s=20)
    model(torch.zeros(1, 8)).sum().backward()
    optimizer.step()
    kept = castor.exact(model[1].weight)
    left = castor.load_weights(model, folder)
    return {"listed": left == (("1.weight", "1.bias"), ()), "loaded": torch.equal(castor.exact(model[0].weight), values.float()),
            "kept": torch.equal(castor.exact(model[1].weight), kept)}


def card_alone(folder: str) -> dict[str, Any]:
    return card(folder, False)


def card(folder: str, with_batch: bool = True) -> dict[str, Any]:
    """A card that both ranks share alike, next to DDP."""
    batch = card_cases.batch_for("llama", 4, seed=dist.get_rank())
    model, optimizer = card_cases.made("llama", torch.float32)
    plain, plainly = card_cases.made("llama", torch.float32)
    whole = torch.nn.parallel.DistributedDataParallel(plain)
    batches = [batch] * 3
    if not with_batch:
        batches.append(card_cases.batch_for("llama", 4, 128 if dist.get_rank() else 64))  # longer on one rank than the batch that shared the card
    expected = card_cases.losses(whole, plainly, batches)
    model, optimizer = castor.wrap(model, optimizer, card="17MiB", host="64MiB", timeout_s=60, **({"batch": batch} if with_batch else {}))
    told = card_cases.losses(model, optimizer, batches)
    chosen: list[Any] = [None, None]
    dist.all_gather_object(chosen, [*model._castor.opening.card.recomputed, *model._castor.opening.card.moved])
    return {"losses": told, "plain": expected, "chosen": chosen}


def weights_in_parts(folder: str) -> dict[str, Any]:
    """Files with a tensor for each expert, for a model without values whose experts are together."""
    import transformers

    if dist.get_rank() == 0:
        with_values(renamed("Mixtral")).save_pretrained(folder)
    dist.barrier()
    want = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    with castor.lazy_init():
        model = renamed("Mixtral")
    model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB", timeout_s=20)
    left = castor.load_weights(model, folder)
    return {"left": list(left), "same": all([torch.equal(castor.exact(p), want[name]) for name, p in model.named_parameters()])}


def frozen_bytes(folder: str) -> dict[str, Any]:
    """Frozen weights of bytes at stage 3, next to each rank alone: all ranks have one batch."""
    import test_bytes

    alone = test_bytes.train(*castor.wrap(*_with_adamw(test_bytes.make()), timeout_s=60, config={"stage": 0}))
    model, optimizer = castor.wrap(*_with_adamw(test_bytes.make()), timeout_s=60, device="6MiB", host="10MiB")
    told = test_bytes.train(model, optimizer)
    wanted = test_bytes.of_bytes(test_bytes.make())
    return {"losses": told, "alone": alone, "same": all([test_bytes.same(castor.exact(p), wanted[name].detach()) for name, p in test_bytes.of_bytes(model).items()])}


def _with_adamw(model: Any) -> tuple[Any, Any]:
    return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def save_on(folder: str) -> dict[str, Any]:
    """Each rank's exit status and last checkpoint where SIGTERM comes to rank 1, to both in the same step, or to none, whether
    resumed runs end alike, and what comes where steps share an agreement."""

    def signals_to(*steps: int) -> Callable[[int], None]:
        """`steps`: by the rank, the step that the signal comes in."""

        def inside(step: int) -> None:
            if step == steps[dist.get_rank()]:
                if dist.get_rank() == 0:
                    time.sleep(0.2)  # rank 1 has its signal earlier
                os.kill(os.getpid(), signal.SIGTERM)

        return inside

    def run(name: str, inside: Callable[[int], None], steps: int = 5, agree_s: float = 0.0) -> list[Any]:
        code, to = 0, f"{folder}/{name}"
        save_on_module._AGREE_S = agree_s
        wrap = {"stage": 3, "device": "16MiB", "host": "64MiB"}
        try:
            ends[name] = save_on_worker.train(to, steps, inside, seed=7 + dist.get_rank(), **wrap)
        except SystemExit as end:
            code = int(str(end.code))
        last = castor.checkpoints(to)[-1] if os.path.isdir(to) else steps
        if code:
            ends[name] = save_on_worker.train(to, steps, **wrap)
        together: list[Any] = [None, None]
        dist.all_gather_object(together, [code, last])
        return together

    ends: dict[str, str] = {}
    found: dict[str, Any] = {"one": run("one", signals_to(9, 2)), "both": run("both", signals_to(2, 2)), "none": run("none", signals_to(9, 9))}
    found["same"] = len(set(ends.values())) == 1
    return {**found, "shared": run("shared", signals_to(99, 12), 40, agree_s=1e9)}


def differ(folder: str) -> str:
    """Ranks that have other models."""
    model: Any = torch.nn.Linear(4, 4 + dist.get_rank())
    try:
        castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), device="64MiB", host="64MiB", timeout_s=20)
    except castor.CastorError as error:
        return str(error)
    return "nothing was said"


def main(what: str, folder: str, out: str) -> None:
    if "CASTOR_TEST_GLOO" in os.environ:  # as on several hosts
        _world.one_host = lambda: None  # type: ignore[assignment]
    dist.init_process_group("gloo")
    found = globals()[what](folder)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks.serve(main)
