# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Types of parameters, buffers, inputs and outputs under `dtype=`, `keep_fp32=` and `buffer_dtype=`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import castor.torch as castor

BF16 = torch.bfloat16


def wrapped(model: Any, **arguments: Any) -> tuple[Any, Any]:
    return castor.wrap(model, torch.optim.AdamW(model.parameters(), lr=1e-2), **arguments)


def test_rotary_embeddings_tell_distant_positions_apart() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=97, max_position_embeddings=2048)
    plain: Any = transformers.LlamaForCausalLM(config)
    ids = torch.randint(97, (1, 1500), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = plain(input_ids=ids).logits
        again: Any = transformers.LlamaForCausalLM(config)
        again.load_state_dict(plain.state_dict())
        model, _ = wrapped(again, dtype=BF16)
        got = model(input_ids=ids).logits.float()
        reference: Any = transformers.LlamaForCausalLM(config)
        reference.load_state_dict(plain.state_dict())
        for p in reference.parameters():
            p.data = p.data.to(BF16)
        theirs = reference(input_ids=ids).logits.float()
    assert model.model.rotary_emb.inv_freq.dtype is torch.float32
    assert (got - want).abs().max() <= (theirs - want).abs().max() * 1.05


def test_buffers_keep_their_type_unless_another_is_asked_for() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("scale", torch.full((4,), 1 / 3))
            self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    model, _ = wrapped(Model(), dtype=BF16)
    assert model.scale.dtype is torch.float32 and model.count.dtype is torch.int64
    assert model(torch.ones(2, 4)).dtype is torch.float32
    model, _ = wrapped(Model(), dtype=BF16, buffer_dtype=BF16)
    assert model.scale.dtype is BF16 and model.count.dtype is torch.int64


@pytest.mark.parametrize("budgets", [{}, {"place": {"*": "host"}}])
def test_running_statistics_are_those_of_float32(budgets: Any) -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))

    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(2)) + 100
    plain, model = made(), made()
    model, optimizer = wrapped(model, dtype=BF16, **budgets)
    for _ in range(60):
        with torch.no_grad():
            plain(x), model(x)
    # In bf16 the averages would stop far from where they go.
    torch.testing.assert_close(model[0].running_mean, plain[0].running_mean, rtol=5e-3, atol=0.1)
    for _ in range(2):
        loss = model(x).float().pow(2).sum()
        loss.backward()
        optimizer.step()
    assert torch.isfinite(loss)
    assert model[0].running_var.dtype is model[0].weight.dtype is torch.float32
    assert model[1].weight.dtype is BF16
    model.eval()
    assert model(x).dtype is BF16


@pytest.mark.parametrize("pattern", ["1", "*outer.norm"])
def test_modules_that_stay_in_float32_are_cast_to_at_their_border(pattern: str) -> None:
    seen: list[torch.dtype] = []

    class Seeing(nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.dtype)
            return super().forward(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = Seeing(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x)

    layers: Any = nn.Sequential(nn.Linear(4, 4), Outer(), nn.Linear(4, 2))
    if pattern == "*outer.norm":
        layers = nn.ModuleDict({"first": layers[0], "outer": layers[1], "last": layers[2]})
        layers.forward = lambda x: layers["last"](layers["outer"](layers["first"](x)))
    model, optimizer = wrapped(layers, dtype=BF16, keep_fp32=[pattern])
    kept = [name for name, p in model.named_parameters() if p.dtype is torch.float32]
    assert len(kept) == 2 and all("norm" in name for name in kept)
    for _ in range(3):
        result = model(torch.ones(3, 4, dtype=torch.float64))
        assert result.dtype is BF16
        result.float().pow(2).sum().backward()
        optimizer.step()
    assert seen == [torch.float32] * 3


def test_parameters_stay_in_float32_by_their_names() -> None:
    """As Mamba's A_log, whose module computes in bf16 but for this one. The plain model has the same types."""
    class Decays(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.A_log = nn.Parameter(torch.linspace(0.1, 0.4, 4))
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype is BF16 and self.A_log.dtype is torch.float32
            return self.inner(x) * torch.exp(-self.A_log).to(x.dtype)

    torch.manual_seed(0)
    plain = nn.Sequential(Decays(), Decays())
    copied = copy.deepcopy(plain)
    model, optimizer = wrapped(plain, dtype=BF16, keep_fp32=["*.A_log"])
    assert {name for name, p in model.named_parameters() if p.dtype is torch.float32} == {"0.A_log", "1.A_log"}
    x = torch.ones(3, 4)
    before = castor.exact(model[0].A_log).clone()
    model(x).float().pow(2).sum().backward()
    for layer in copied:
        layer.inner.to(BF16)
    copied(x.to(BF16)).float().pow(2).sum().backward()
    torch.testing.assert_close(castor.gradient(model[0].A_log), copied[0].A_log.grad)
    optimizer.step()
    assert not torch.equal(castor.exact(model[0].A_log), before)


def test_inputs_are_cast_wherever_they_are() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, more: Any, *, last: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            assert ids.dtype is torch.int64
            return self.layer(x) + self.layer(more["y"][0]) + self.layer(last)

    model, _ = wrapped(Model(), dtype=BF16)
    x = torch.ones(2, 4)
    assert model(x, {"y": [x, 1]}, last=x, ids=torch.ones(2, dtype=torch.int64)).dtype is BF16


@pytest.mark.parametrize("arguments, says", [
    ({"dtype": torch.float64}, "dtype is torch.float64"),
    ({"dtype": torch.int8}, "dtype is torch.int8"),
    ({"buffer_dtype": torch.int8}, "buffer_dtype is torch.int8"),
    ({"keep_fp32": ["norm"]}, "keep_fp32 has 'norm', which is the name of no module and of no parameter"),
])
def test_types_without_a_meaning_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(castor.InvalidArgument, match=says):
        wrapped(nn.Sequential(nn.Linear(4, 4)), **arguments)
