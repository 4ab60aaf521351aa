# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Models of the kinds that people train, at a small size, for tests of what a step holds at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import castor.torch as castor


class Sized(NamedTuple):
    make: Callable[[], nn.Module]
    loss: Callable[[Any], torch.Tensor]
    units: tuple[str, ...] = ()  # names of classes


def tokens(model: Any) -> torch.Tensor:
    ids = torch.randint(0, 200, (2, 16))
    return model(input_ids=ids, labels=ids).loss


def squares(*shape: int) -> Callable[[Any], torch.Tensor]:
    return lambda model: model(torch.randn(*shape)).pow(2).mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 48, 2, batch_first=True)
        self.out = nn.Linear(48, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0])


def mlp() -> nn.Module:
    return nn.Sequential(*(nn.Linear(128, 128) if number % 2 == 0 else nn.GELU() for number in range(8)))


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), 3, enable_nested_tensor=False)


def of_transformers(name: str, **config: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        kind = {"ViT": "ViTForImageClassification", "T5": "T5ForConditionalGeneration", "GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
        return getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**config))

    return make


gpt2 = of_transformers("GPT2", vocab_size=512, n_positions=64, n_embd=64, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
heads = {"num_attention_heads": 4, "num_key_value_heads": 2}


def low_rank() -> nn.Module:
    import peft

    return peft.get_peft_model(gpt2(), peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))


SIZED = {
    "mlp": Sized(mlp, squares(4, 128)),
    "gpt2": Sized(gpt2, tokens),
    "llama": Sized(of_transformers("Llama", vocab_size=512, hidden_size=64, intermediate_size=176, num_hidden_layers=4, **heads), tokens),
    "t5": Sized(of_transformers("T5", vocab_size=256, d_model=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4, decoder_start_token_id=0), tokens),
    "vit": Sized(
        of_transformers("ViT", hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=8),
        lambda model: model(pixel_values=torch.randn(2, 3, 32, 32)).logits.pow(2).mean(),
    ),
    "encoder": Sized(encoder, squares(2, 8, 64)),
    "lstm": Sized(Recurrent, squares(2, 5, 32)),
    "mixtral": Sized(
        of_transformers("Mixtral", vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_local_experts=4, **heads),
        tokens, ("MixtralSparseMoeBlock",),
    ),
    "lora": Sized(low_rank, tokens),
}


def units_of(case: Sized, model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if type(module).__name__ in case.units]


def least_device(case: Sized, **options: Any) -> int:
    """The least device budget that `castor.plan` accepts, to a KiB."""
    model = case.make()
    refused, fits = 0, 64 << 20
    while fits - refused > 1024:
        half = (refused + fits) // 2
        if castor.plan(model, device_budget=half, units=units_of(case, model), **options).fits:
            fits = half
        else:
            refused = half
    return fits


def changes_for(case: Sized, **wrap: Any) -> list[str]:
    """What a refusal at wrap proposes; nothing where there is none."""
    model: Any = case.make()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    try:
        castor.wrap(model, optimizer, units=units_of(case, model), **wrap)
    except castor.DoesNotFit as error:
        assert error.changes, error
        assert len(error.raises) == len(error.changes), error
        return error.changes
    return []


def plainly(case: Sized, model: Any) -> None:
    case.loss(model).backward()


def with_a_penalty(case: Sized, model: Any) -> None:
    (case.loss(model) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())).backward()


def backward_twice(case: Sized, model: Any) -> None:
    loss = case.loss(model)
    loss.backward(retain_graph=True)
    (loss * 2).backward()


def two_forwards(case: Sized, model: Any) -> None:
    (case.loss(model) + case.loss(model)).backward()


def all_at_once(case: Sized, model: Any) -> None:
    """More than a step before, which did `plainly`: all parameters in one call, and all their gradients."""
    loss = case.loss(model)
    (loss + torch.cat([p.reshape(-1) for p in model.parameters()]).pow(2).sum()).backward()


def outcome(case: Sized, steps: int = 3, backward: Callable[[Sized, Any], None] = plainly, **wrap: Any) -> str:
    """"trains", "refused" at wrap, or what a step says."""
    torch.manual_seed(0)
    model: Any = case.make()
    optimizer: Any = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    try:
        model, optimizer = castor.wrap(model, optimizer, units=units_of(case, model), **wrap)
    except castor.DoesNotFit:
        return "refused"
    try:
        for _ in range(steps):
            backward(case, model)
            optimizer.step()
            optimizer.zero_grad()
    except castor.DoesNotFit as error:
        return str(error)
    return "trains"
