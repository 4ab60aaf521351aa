# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""The example trainer in C++ against transformers' GPT-2: the same weights and text give the same losses and end in the same weights."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")

PROGRAM = Path(__file__).parents[3] / "bazel-bin/tools/examples/train_gpt"
SEED, BATCH, SEQ, ACCUMULATE, STEPS, LR = 3, 2, 24, 2, 6, 1e-3
MASK = 2**64 - 1

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="bazel build //tools/examples:train_gpt")


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def place_of(step, micro, sequence, places):
    """Where a sequence of rank 0 begins: random bits by counter (tools/examples/gpt/model/gpt_params.h), as TextData::Sample takes them."""
    golden = 0x9E3779B97F4A7C15
    stream = 1 << 63 | micro
    key = mix(mix(SEED + golden & MASK) ^ stream) + golden
    return mix(key + (step * BATCH + sequence) * golden & MASK) % places


def small_gpt2():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=SEQ, n_embd=48, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    model = transformers.GPT2LMHeadModel(config)
    for parameter in model.parameters():  # biases and norms that matter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def train_in_torch(model, text):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        mean = 0.0
        for micro in range(ACCUMULATE):
            begins = [place_of(step, micro, sequence, len(text) - SEQ) for sequence in range(BATCH)]
            rows = torch.tensor([list(text[begin : begin + SEQ + 1]) for begin in begins])
            logits = model(rows[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            (loss / ACCUMULATE).backward()
            mean += loss.item() / ACCUMULATE
        losses.append(mean)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, norms


@pytest.mark.parametrize("budgets", [[], ["--device-budget", "512KiB", "--host-budget", "512KiB", "--chunk", "64KiB"]])
def test_losses_and_weights_are_those_of_transformers(tmp_path, budgets):
    text = b"".join(b"line %d of the text\n" % (i * i) for i in range(200))
    (tmp_path / "text").write_bytes(text)
    model = small_gpt2()
    save_file({name: value.clone() for name, value in model.transformer.state_dict().items()}, tmp_path / "weights.safetensors")
    numbers = {"layers": 2, "heads": 3, "embd": 48, "seq": SEQ, "batch": BATCH, "accumulate": ACCUMULATE, "steps": STEPS}
    command = [PROGRAM, "--text", tmp_path / "text", "--init", tmp_path / "weights.safetensors", "--lr", str(LR), "--seed", str(SEED)]
    command += [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    command += ["--save", tmp_path / "save", "--json", "--nvme", tmp_path, *budgets]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout)
    losses, norms = train_in_torch(model, text)
    assert summary["losses"] == pytest.approx(losses, rel=2e-6)
    assert summary["grad_norms"] == pytest.approx(norms, rel=2e-5)
    assert losses[-1] < losses[0]
    saved = load_file(Path(summary["checkpoint"]) / "model.safetensors")
    trained = model.transformer.state_dict()
    assert set(saved) == set(trained)
    for name, value in trained.items():
        # Gradients of a key's bias are rounding alone, and an update of Adam has the size of the rate all the same.
        assert (saved[name] - value).abs().median() < 1e-7, name
