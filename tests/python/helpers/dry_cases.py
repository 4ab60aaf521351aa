# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models of every kind for dry steps: tiny configs, a batch and a step for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass
class DryCase:
    """A model, its step and a batch, made from one seed."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    step: Callable[[Any, Any], Optional[Tensor]]


def ids(*shape: int) -> Tensor:
    return torch.randint(0, 128, shape, generator=torch.Generator().manual_seed(1))


def values(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def language_batch() -> dict[str, Tensor]:
    tokens = ids(2, 16)
    return {"input_ids": tokens, "labels": tokens}


def of_transformers(model: Any, batch: Any) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def holds_outputs(model: Any, batch: Any) -> None:
    output = model(**batch)
    output.loss.backward()


def small(family: str, **more: Any) -> nn.Module:
    import transformers

    numbers = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    kinds: dict[str, Any] = {
        "GPT2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2)),
        "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**numbers, **more)),
        "Mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**numbers, num_local_experts=4, output_router_logits=True, **more)),
        "T5": lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0)
        ),
        "ViT": lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4, num_labels=5)
        ),
    }
    torch.manual_seed(0)
    model: nn.Module = kinds[family]()
    return model.train()


def llama_with_lora(reentrant: bool) -> nn.Module:
    import peft

    model: Any = small("Llama")
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    adapted: nn.Module = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM"))
    return adapted.train()


class Residual(nn.Module):
    def __init__(self, before: int, behind: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, behind, 3, stride, 1, bias=False), nn.BatchNorm2d(behind), nn.ReLU(inplace=True), nn.Conv2d(behind, behind, 3, 1, 1, bias=False),
            nn.BatchNorm2d(behind),
        )
        self.short = nn.Sequential(nn.Conv2d(before, behind, 1, stride, bias=False), nn.BatchNorm2d(behind))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x), inplace=True)


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), Residual(8, 8, 1), Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 5),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm, self.up, self.out = nn.GroupNorm(4, 16), nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.silu(self.down(x))
        up = self.up(F.gelu(self.norm(self.deep(wide))))
        return self.out(torch.cat([wide, up], 1))


class Towers(nn.Module):
    """Two encoders with one temperature, as CLIP."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 8))
        self.right = nn.Sequential(nn.Embedding(128, 16), nn.Flatten(), nn.Linear(64, 8))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, pictures: Tensor, words: Tensor) -> Tensor:
        left, right = F.normalize(self.left(pictures), dim=-1), F.normalize(self.right(words), dim=-1)
        return self.scale.exp() * left @ right.t()


def contrast(model: Any, batch: Any) -> Tensor:
    logits = model(*batch)
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.out = nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0])


def pictures() -> dict[str, Tensor]:
    return {"pixel_values": values(2, 3, 16, 16), "labels": torch.tensor([1, 3])}


def classify(model: Any, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch["pixel_values"]), batch["labels"])


def squares(model: Any, batch: Any) -> Tensor:
    loss: Tensor = model(batch).pow(2).mean()
    return loss


CASES: dict[str, DryCase] = {
    "GPT-2": DryCase(lambda: small("GPT2"), language_batch, of_transformers),
    "GPT-2 whose step holds outputs": DryCase(lambda: small("GPT2"), language_batch, holds_outputs),
    "Llama": DryCase(lambda: small("Llama"), language_batch, of_transformers),
    "Llama, eager attention": DryCase(lambda: small("Llama", attn_implementation="eager"), language_batch, of_transformers),
    "Mixtral": DryCase(lambda: small("Mixtral", experts_implementation="batched_mm"), language_batch, of_transformers),
    "T5": DryCase(lambda: small("T5"), lambda: {"input_ids": ids(2, 12), "labels": ids(2, 8)}, of_transformers),
    "ViT": DryCase(lambda: small("ViT"), pictures, of_transformers),
    "ResNet": DryCase(resnet, pictures, classify),
    "U-Net": DryCase(UNet, lambda: values(2, 3, 16, 16), squares),
    "two towers": DryCase(Towers, lambda: (values(6, 12), ids(6, 4)), contrast),
    "LoRA, checkpointing": DryCase(lambda: llama_with_lora(False), language_batch, of_transformers),
    "LoRA, reentrant checkpointing": DryCase(lambda: llama_with_lora(True), language_batch, of_transformers),
    "LSTM": DryCase(Recurrent, lambda: values(2, 6, 8), squares),
}
