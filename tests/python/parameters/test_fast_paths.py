# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""torch's fast paths, which read weights without their modules' forwards, are taken as with plain PyTorch: at padding they have other values."""

from __future__ import annotations

import warnings
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
def test_padded_inputs_are_evaluated_as_by_the_plain_model(make: Any, no_gradients: Any) -> None:
    found = []
    for budgets in ({}, *BUDGETS):
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
