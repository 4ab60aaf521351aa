# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""torch's fast paths, which read weights without their modules' forwards, are taken as with plain PyTorch: at padding they have other values."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor

BUDGETS: list[dict[str, Any]] = [{"device": "64MiB", "host": "64MiB"}, {"device": "64KiB", "host": "64MiB"}]
PADDED = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]).bool()


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


def normed_encoder() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True), 2, nn.LayerNorm(32))


def decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2)


def call(model: Any, x: torch.Tensor) -> torch.Tensor:
    if isinstance(model, nn.MultiheadAttention):
        return model(x, x, x, key_padding_mask=PADDED, need_weights=False)[0]
    return model(x, x, tgt_key_padding_mask=PADDED) if isinstance(model, nn.TransformerDecoder) else model(x, src_key_padding_mask=PADDED)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("make", [encoder, normed_encoder, decoder, lambda: nn.MultiheadAttention(32, 4, batch_first=True)])
@pytest.mark.parametrize("no_gradients", [torch.no_grad, torch.inference_mode])
def test_padded_inputs_are_evaluated_as_by_the_plain_model(make: Any, no_gradients: Any, tmp_path: Path) -> None:
    found = []
    for budgets in ({}, *BUDGETS, {"device": "256KiB", "host": "64KiB", "nvme": str(tmp_path)}):
        torch.manual_seed(0)
        model = make()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        if budgets:
            model, optimizer = castor.wrap(model, optimizer, **budgets)
        x = torch.randn(3, 5, 32)
        torch.manual_seed(1)  # of dropout
        call(model, x).pow(2).mean().backward()
        optimizer.step()
        model.eval()
        with no_gradients():
            found.append(call(model, x).clone())
    for ours in found[1:]:
        torch.testing.assert_close(ours, found[0], rtol=1e-5, atol=1e-6)


class Ragged(nn.Module):
    """Attention over rows of different lengths."""

    def __init__(self, writes: bool = False) -> None:
        super().__init__()
        self.embedding, self.norm, self.last = nn.Embedding(50, 32), nn.LayerNorm(32), nn.Linear(32, 32)
        self.heads = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.writes = writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.embedding(x))
        q, k, v = (head(h).unflatten(-1, [2, 16]).transpose(1, 2) for head in self.heads)
        y = self.last(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)).sigmoid()
        if self.writes:
            y.mul_(2)  # which the derivative of sigmoid needs
        return y


def ragged_losses(writes: bool, budgets: dict[str, Any]) -> list[float]:
    torch.manual_seed(0)
    model: Any = Ragged(writes)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if budgets:
        model, optimizer = castor.wrap(model, optimizer, chunk="4608B", **budgets)
    losses = []
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        rows = [torch.randint(50, (length,), generator=generator) for length in (3, 5, 2)]
        optimizer.zero_grad()
        loss = model(torch.nested.nested_tensor(rows, layout=torch.jagged)).values().pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_jagged_tensors_train_as_with_the_plain_model(tmp_path: Path) -> None:
    where = ({"device": "64MiB", "host": "64MiB"}, {"device": "48KiB", "host": "64MiB"}, {"device": "48KiB", "host": "32KiB", "nvme": str(tmp_path)})
    want = ragged_losses(False, {})
    for budgets in where:
        assert ragged_losses(False, budgets) == pytest.approx(want, rel=1e-5), budgets
    for budgets in ({}, *where):
        # Torch itself stumbles over the shape, which its sentence has.
        with pytest.raises(RuntimeError, match=r"a tensor of shape \(nested\) is at version 1; expected" if budgets in where[1:] else ""):
            ragged_losses(True, budgets)
