# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A step bound by the drive: a Llama of 1.12 billion parameters in fp32, with AdamW, over three tiers.

    .venv/bin/python tools/bench/torch_drive.py --nvme /scratch
    .venv/bin/python tools/bench/torch_drive.py --nvme /scratch --update-in-backward
    .venv/bin/python tools/bench/torch_drive.py --nvme /scratch --device 1GiB --host 2GiB --record run.rec
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import castor.torch as castor

VOCABULARY = 32000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvme", required=True, help="a directory on the drive")
    parser.add_argument("--device", default="2GiB")
    parser.add_argument("--host", default="4GiB")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--steps", type=int, default=6, help="the first two are not counted")
    parser.add_argument("--update-in-backward", action="store_true")
    parser.add_argument("--record", help="for castor report")
    given = parser.parse_args()
    torch.manual_seed(0)
    with castor.lazy_init():
        model: Any = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=given.layers, num_attention_heads=32,
            num_key_value_heads=8, use_cache=False))
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} billion parameters")
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with castor.record(given.record) if given.record else contextlib.nullcontext():
        model, optimizer = castor.wrap(
            model, optimizer, device=given.device, host=given.host, nvme=given.nvme, update_in_backward=given.update_in_backward)
        seconds = []
        for number in range(given.steps):
            tokens = torch.randint(VOCABULARY, (1, 128), generator=torch.Generator().manual_seed(number))
            begin = time.perf_counter()
            loss = model(input_ids=tokens, labels=tokens).loss
            forward = time.perf_counter()
            loss.backward()
            backward = time.perf_counter()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.perf_counter() - begin)
            print(f"step {number + 1}  loss {loss.item()!r}  forward {forward - begin:.2f} s  backward {backward - forward:.2f} s  "
                  f"all {seconds[-1]:.2f} s", flush=True)
    print(f"median {statistics.median(seconds[2:]):.2f} s, the process had {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")
    print(model.memory_summary())


if __name__ == "__main__":
    main()
