# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Small models of every kind, and a loss for each: what people train, and what is known to be hard."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from harness import Loss, Make


class Case(NamedTuple):
    name: str
    make: Make
    loss: Loss
    relative: float = 1e-5


def tokens(step: int) -> torch.Tensor:
    ids = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(step), device="cpu")
    return ids.to(torch.get_default_device())


def noise(*shape: int) -> Any:
    return lambda step: torch.randn(*shape, generator=torch.Generator().manual_seed(step), device="cpu").to(torch.get_default_device())


def language(model: nn.Module, step: int) -> torch.Tensor:
    ids = tokens(step)
    return model(input_ids=ids, labels=ids).loss


def squares(*shape: int) -> Loss:
    return lambda model, step: model(noise(*shape)(step)).pow(2).mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attention(x, x, x, need_weights=False)[0])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.out = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(x)))
        return self.out(F.relu(x + self.norm2(self.second(x))).mean((2, 3)))


class WeightNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.old = nn.utils.weight_norm(nn.Linear(8, 16))
        self.new = parametrizations.weight_norm(nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.new(F.gelu(self.old(x)))


class Tied(nn.Module):
    """A head that is the embedding, used outside its module."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        self.layer = nn.Linear(16, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.linear(self.layer(self.embedding(ids)), self.embedding.weight)


class Branches(nn.Module):
    """Which layers are used differs from step to step; one never is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.arms = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.unused = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.first(x))
        for index, arm in enumerate(self.arms):
            if torch.rand(()) < 0.6:
                x = x + arm(x) * (index + 1)
        return x * self.scale


class LowRank(nn.Module):
    """A frozen layer with a trained correction, as LoRA has it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def penalty(model: nn.Module, step: int) -> torch.Tensor:
    return squares(2, 8)(model, step) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())


def cross_entropy(model: nn.Module, step: int) -> torch.Tensor:
    return F.cross_entropy(model(tokens(step)).flatten(0, 1), tokens(step).flatten())


def in_eval_too(model: nn.Module, step: int) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        seen = model(noise(2, 5, 16)(step)).sum()
    model.train()
    return squares(2, 5, 16)(model, step) + 0.01 * seen


def twice_forward(model: nn.Module, step: int) -> torch.Tensor:
    return squares(2, 8)(model, step) + squares(2, 8)(model, step + 1000)


def input_gradients(model: nn.Module, step: int) -> torch.Tensor:
    """A gradient penalty: a backward through a backward."""
    x = noise(2, 8)(step).requires_grad_()
    out = model(x).pow(2).sum()
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    return out + gradient.pow(2).mean()


def gpt2(**more: Any) -> nn.Module:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=2, **more))


def checkpointed(reentrant: bool) -> nn.Module:
    model = gpt2()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model.train()


def autocast(model: nn.Module, step: int) -> torch.Tensor:
    with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16):
        return language(model, step)


PLAIN = [
    Case("lstm", Recurrent, squares(2, 5, 8)),
    Case("multihead_attention", Attention, squares(2, 5, 16)),
    Case("transformer_encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2), in_eval_too),
    Case("resnet", Residual, squares(2, 3, 8, 8)),
    Case("weight_norms", WeightNorms, squares(2, 8)),
    Case("tied", Tied, cross_entropy),
    Case("branches", Branches, squares(2, 8)),
    Case("low_rank", LowRank, squares(2, 8)),
    Case("penalty", Branches, penalty),
    Case("twice_forward", WeightNorms, twice_forward),
    Case("input_gradients", WeightNorms, input_gradients),
]


def of_transformers() -> list[Case]:
    import transformers as t

    small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    image = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16, "patch_size": 4}
    return [
        Case("gpt2", gpt2, language),
        Case("gpt2_checkpointed", lambda: checkpointed(False), language),
        Case("gpt2_checkpointed_reentrant", lambda: checkpointed(True), language),
        # bfloat16 makes the last bits of fp32 weights count.
        Case("gpt2_autocast", gpt2, autocast, 1e-4),
        Case("gpt2_autocast_checkpointed", lambda: checkpointed(False), autocast, 1e-4),
        Case("llama", lambda: t.LlamaForCausalLM(t.LlamaConfig(num_key_value_heads=1, **small)), language),
        Case("bert", lambda: t.BertForMaskedLM(t.BertConfig(max_position_embeddings=32, **small)), language),
        Case("mixtral", lambda: t.MixtralForCausalLM(t.MixtralConfig(num_key_value_heads=1, num_local_experts=4, **small)), language),
        # On some CPUs a ReLU turns by the last bit of a weight: a plain run that is moved by one bit in step 3 is off by 1e-4 in step 48.
        Case("t5", lambda: t.T5ForConditionalGeneration(
            t.T5Config(vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0)), language, 5e-4),
        Case("vit", lambda: t.ViTForImageClassification(t.ViTConfig(**image)),
             lambda model, step: model(pixel_values=noise(2, 3, 16, 16)(step), labels=tokens(step)[:, 0] % 2).loss),
    ]
