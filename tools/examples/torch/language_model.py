# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Trains a causal language model with ZeRO-1 or ZeRO-2, as OSLO's tutorial does, and saves it for transformers and for more training.

    torchrun --nproc-per-node 2 language_model.py --stage 2
    srun --ntasks 2 python language_model.py --stage 1       # MASTER_ADDR and MASTER_PORT as for any script of Slurm
    mpirun -n 2 python language_model.py
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, GPT2Config

import castor.torch as castor

BATCH_SIZE = 4
SEQ_LEN = 64


def texts(folder: Path) -> list[torch.Tensor]:
    """Pieces of the text files of a folder, a token for each byte."""
    bytes_of = b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())
    tokens = torch.tensor(list(bytes_of), dtype=torch.long)
    return list(tokens.split(SEQ_LEN)[:-1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stage", type=int, default=2, choices=(1, 2))
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--width", type=int, default=128)
    options.add_argument("--text", type=Path, default=Path("/usr/share/common-licenses"), help="a folder of text files")
    options.add_argument("--save", type=Path, help="directory for the model and its checkpoint; what is there is trained on")
    chosen = options.parse_args()
    rank, world = castor.join()

    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=256, n_positions=SEQ_LEN, n_embd=chosen.width, n_layer=chosen.layers, n_head=4, bos_token_id=0, eos_token_id=0)
    )
    optimizer: Any = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = castor.wrap(model, optimizer, stage=chosen.stage)

    data = texts(chosen.text)
    sampler: Any = DistributedSampler(data, num_replicas=world, rank=rank)  # type: ignore[arg-type]
    loader = DataLoader(data, batch_size=BATCH_SIZE, sampler=sampler, drop_last=True)  # type: ignore[arg-type]
    batches = enumerate(loader)  # which draws a random number, so before load sets the generator
    done = 0
    checkpoint = str(chosen.save / "checkpoint") if chosen.save else ""
    if os.path.isdir(checkpoint):
        done = castor.load(checkpoint, model)["step"]
    for step, batch in batches:
        if step < done:
            continue
        if step == chosen.steps:
            break
        model.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    if chosen.save:
        chosen.save.mkdir(parents=True, exist_ok=True)
        castor.save(checkpoint, model, extra={"step": chosen.steps})
        weights = model.state_dict()  # on all ranks; rank 0 gets them
        if rank == 0:
            model.save_pretrained(chosen.save / "model", state_dict=weights)
    if rank == 0:
        print(f"stage {chosen.stage}, {world} ranks: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
