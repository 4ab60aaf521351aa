# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What Castor costs in PyTorch: steps of small models and of GPT-2 next to the plain script's, in turn, and host time for each module's call.

    .venv/bin/python tools/bench/torch/torch_step.py                    # GPT-2 124M, 4 x 512 tokens, resident
    .venv/bin/python tools/bench/torch/torch_step.py --rounds 0         # small models and calls alone
    .venv/bin/python tools/bench/torch/torch_step.py --batch 1 --rounds 9
    .venv/bin/python tools/bench/torch/torch_step.py --device 700MiB --nvme /scratch
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import castor.torch as castor


def gpt2(wrap: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model: Any = GPT2LMHeadModel(GPT2Config(n_positions=512, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return castor.wrap(model, optimizer, **wrap) if wrap is not None else (model, optimizer)


def step(model: Any, optimizer: Any, seed: int, batch: int) -> tuple[float, float]:
    """Seconds, and the loss."""
    tokens = torch.randint(50257, (batch, 512), generator=torch.Generator().manual_seed(seed))
    begin = time.perf_counter()
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin, loss.item()


def steps(options: argparse.Namespace) -> None:
    both = [gpt2(None), gpt2({"device": options.device, "host": options.host, "nvme": options.nvme})]
    times: list[list[float]] = [[], []]
    for round_number in range(options.rounds + 2):
        losses = []
        for which, (model, optimizer) in enumerate(both):
            seconds, loss = step(model, optimizer, round_number, options.batch)
            losses.append(loss)
            if round_number >= 2:  # the first shows what is held, the second makes plans
                times[which].append(seconds)
        assert abs(losses[1] - losses[0]) <= 1e-4 * losses[0], losses
    ratios = [mine / plain for plain, mine in zip(*times)]
    print(f"GPT-2 124M, {options.batch} x 512 tokens: plain {statistics.median(times[0]):.3f} s, castor {statistics.median(times[1]):.3f} s, "
          f"median of ratios {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), {options.rounds} rounds in turn")
    print(both[1][0].memory_summary())


def calls(modules: int) -> None:
    """A forward of tiny modules, without gradients and with."""
    for grad in (False, True):
        seconds = []
        for wrap in (False, True):
            torch.manual_seed(0)
            model: Any = nn.Sequential(*(nn.Linear(2, 2) for _ in range(modules)))
            if wrap:
                model, _ = castor.wrap(model, torch.optim.SGD(model.parameters(), lr=0.0), device="64MiB", host="64MiB")
            x = torch.ones(1, 2)
            best = []
            for call in range(49):
                begin = time.perf_counter()
                with torch.set_grad_enabled(grad):
                    model(x)
                if call >= 40:  # a model's first uses are looked at more closely
                    best.append(time.perf_counter() - begin)
            seconds.append(statistics.median(best))
        print(f"{modules} modules of two parameters, {'with' if grad else 'without'} gradients: {(seconds[1] - seconds[0]) / modules * 1e6:.1f} us a call "
              f"more than the plain {seconds[0] / modules * 1e6:.1f} us")


def small_models() -> None:
    """Steps of models so small that calls are most of what they take, all on the device."""
    x, ids = torch.randn(32, 32), torch.randint(0, 512, (4, 64))

    def mlp() -> Any:
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))

    def small_gpt2() -> Any:
        return GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=128, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0))

    cases = [("MLP", mlp, lambda model: model(x).pow(2).mean(), 200), ("GPT-2", small_gpt2, lambda model: model(input_ids=ids, labels=ids).loss, 20)]
    for name, make, loss_of, count in cases:
        both = []
        for wrap in (False, True):
            torch.manual_seed(0)
            model = make()
            optimizer: Any = torch.optim.AdamW(model.parameters())
            both.append(castor.wrap(model, optimizer) if wrap else (model, optimizer))
        times: list[list[float]] = [[], []]
        for round_number in range(8):
            for which, (model, optimizer) in enumerate(both):
                taken = []
                for _ in range(count):
                    begin = time.perf_counter()
                    loss = loss_of(model)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    taken.append(time.perf_counter() - begin)
                if round_number:
                    times[which].append(statistics.median(taken))
        ratio = statistics.median(mine / plain for plain, mine in zip(*times))
        print(f"{name} of {sum(p.numel() for p in both[0][0].parameters()):,} parameters: plain {statistics.median(times[0]) * 1e6:.0f} us a step, "
              f"castor {statistics.median(times[1]) * 1e6:.0f} us, median of ratios {ratio:.2f}, {torch.get_num_threads()} threads")


def layers() -> None:
    """The thread time of a step of many layers with tiny matrices, where Python is most of it: states on the device, and on the host."""
    config = GPT2Config(n_layer=24, n_embd=16, n_head=2, n_positions=16, vocab_size=64, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0, use_cache=False)
    ids = torch.randint(64, (1, 8))
    for dtype in (torch.float32, torch.bfloat16):
        runs = []
        for wrap in (None, {}, {"place": {"*": "host"}}):
            torch.manual_seed(0)
            model: Any = GPT2LMHeadModel(config).to(dtype)
            optimizer: Any = torch.optim.AdamW(model.parameters(), foreach=True)
            runs.append((model, optimizer) if wrap is None else castor.wrap(model, optimizer, **wrap))
        times: list[list[float]] = [[] for _ in runs]
        for round_number in range(100):
            for which, (model, optimizer) in enumerate(runs):
                begin = time.thread_time()
                loss = model(input_ids=ids, labels=ids).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if round_number >= 40:
                    times[which].append(time.thread_time() - begin)
        plain, device, host = (statistics.median(those) * 1e3 for those in times)
        print(f"GPT-2 of 24 tiny layers, {str(dtype).removeprefix('torch.')}, thread time of a step: plain {plain:.1f} ms, castor {device:.1f} ms with states on the "
              f"device ({device / plain:.2f}), {host:.1f} ms on the host ({host / plain:.2f})")


def trainer() -> None:
    """The Trainer of transformers on a tiny model: its steps, and all of it, which is bound by how the Trainer and castor.wrap begin."""
    import tempfile

    from transformers import Trainer, TrainerCallback, TrainingArguments

    import castor.hf

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ends.append(time.perf_counter())

    data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 512, (400, 64))]
    wholes: list[list[float]] = [[], []]
    steps: list[list[float]] = [[], []]
    for round_number in range(13):
        for which, kind in enumerate((Trainer, castor.hf.CastorTrainer)):
            torch.manual_seed(0)
            model = GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=128, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0))
            clock = Clock()
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=60, save_strategy="no", logging_strategy="no", report_to=[],
                                              disable_tqdm=True, use_cpu=True)
                begun = kind(model=model, args=arguments, train_dataset=data, callbacks=[clock])
                begin = time.perf_counter()
                begun.train()
            if round_number:
                wholes[which].append(time.perf_counter() - begin)
                steps[which].append(statistics.median(end - start for start, end in zip(clock.ends[5:], clock.ends[6:])))
    # A run takes two seconds, in which machines change their speed: the least of each is told, too.
    for what, (plain, mine), unit, name in (("a step of 60", steps, 1e3, "ms"), ("all 60 steps", wholes, 1, "s")):
        ratios = [one / other for other, one in zip(plain, mine)]
        print(f"transformers.Trainer, the same GPT-2, {what}: plain {min(plain) * unit:.2f} {name} at least, castor {min(mine) * unit:.2f}, "
              f"ratio {min(mine) / min(plain):.2f}; median of ratios {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--batch", type=int, default=4)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--device", default="auto")
    options.add_argument("--host", default="auto")
    options.add_argument("--nvme")
    chosen = options.parse_args()
    small_models()
    layers()
    trainer()
    calls(1000)
    if chosen.rounds > 0:
        steps(chosen)


if __name__ == "__main__":
    main()
