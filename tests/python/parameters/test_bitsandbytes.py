# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""QLoRA: adapters over a base that bitsandbytes has quantized, whose 4-bit weights live in chunks."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import nn

import castor.torch as castor
from castor.errors import FailedPrecondition

bnb = pytest.importorskip("bitsandbytes")
IDS = torch.randint(1, 500, (2, 64), generator=torch.Generator().manual_seed(3))
BATCH = {"input_ids": IDS, "labels": IDS}
TIGHT: dict[str, Any] = {"device": "700KiB", "host": "20MiB"}


def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, vocab_size=500, pad_token_id=0)).to(torch.bfloat16)


def quantize(model: nn.Module, nested: bool, eight: bool = False) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name != "lm_head":
                if eight:
                    made = bnb.nn.Linear8bitLt(child.in_features, child.out_features, bias=False, has_fp16_weights=False)
                    made.weight = bnb.nn.Int8Params(child.weight.data, requires_grad=False, has_fp16_weights=False)
                else:
                    made = bnb.nn.Linear4bit(child.in_features, child.out_features, bias=False, compute_dtype=torch.bfloat16)
                    made.weight = bnb.nn.Params4bit(child.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=nested, module=made)
                setattr(module, name, made.to("cpu"))


def make(nested: bool = True, checkpointing: bool = True, eight: bool = False) -> Any:
    model = llama()
    quantize(model, nested, eight)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"))
    if checkpointing:
        model.base_model.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return model.train()


def adamw(model: Any) -> Any:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def train(model: Any, optimizer: Any, steps: int = 4) -> list[float]:
    told = []
    for _ in range(steps):
        loss = model(**BATCH).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(float(loss.detach()))
    return told


def logits(model: Any) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        found = model(**BATCH).logits
    model.train()
    return found


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_losses_are_the_same_bits_where_the_base_moves_and_close_to_the_plain_scripts(nested: bool, checkpointing: bool, tmp_path: Path) -> None:
    plain = make(nested, checkpointing)
    base = {name: p.detach().clone() for name, p in plain.named_parameters() if p.dtype is torch.uint8}
    expected = train(plain, adamw(plain))
    told = []
    for budgets in ({}, TIGHT, {**TIGHT, "nvme": str(tmp_path), "place": {"*.layers.*": "nvme"}}):
        model = make(nested, checkpointing)
        model, optimizer = castor.wrap(model, adamw(model), **budgets)
        told.append(train(model, optimizer))
        names = dict(model.named_parameters())
        assert len(base) == 28 and all(torch.equal(castor.exact(names[name]), values) for name, values in base.items())
        if budgets:
            stats = model._castor.engine.stats()
            assert stats["device_peak_bytes"] <= 700 << 10 < sum(values.numel() for values in base.values())
    assert told[0] == told[1] == told[2] == pytest.approx(expected, rel=1e-4)


def test_an_evaluation_leaves_weights_as_they_are() -> None:
    """On some CPUs bitsandbytes lays them out anew there."""
    model = make()
    before = logits(copy.deepcopy(model).train())
    model, optimizer = castor.wrap(model, adamw(model), **TIGHT)
    module = next(m for m in model.modules() if isinstance(m, bnb.nn.Linear4bit))
    assert torch.allclose(logits(model), before, atol=0.05)
    assert not getattr(module.weight.quant_state, "packing_format_for_cpu", False)
    train(model, optimizer, 1)


def test_a_copy_an_adapter_saved_and_a_checkpoint_have_the_models_values(tmp_path: Path) -> None:
    model = make()
    model, optimizer = castor.wrap(model, adamw(model), **TIGHT)
    train(model, optimizer)
    want = logits(model)
    copied = copy.deepcopy(model)
    assert torch.equal(logits(copied), want)
    model.save_pretrained(tmp_path / "adapter")
    castor.save(str(tmp_path / "states"), model)
    base = llama()
    quantize(base, True)
    for module in base.modules():
        module.support_avx512bf16_for_cpu = False
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    assert torch.equal(logits(again), want)
    other = make()
    other, optimizer = castor.wrap(other, adamw(other))
    castor.load(str(tmp_path / "states"), other)
    assert torch.equal(logits(other), want)


def test_a_merge_into_quantized_weights_is_refused() -> None:
    model = make()
    model, _ = castor.wrap(model, adamw(model), **TIGHT)
    with pytest.raises(FailedPrecondition, match="the adapter is over a quantized weight in a chunk"):
        model.merge_and_unload()


def test_eight_bits_train_and_what_stays_beside_budgets_is_said(caplog: pytest.LogCaptureFixture) -> None:
    plain = make(eight=True)
    expected = train(plain, adamw(plain))
    model = make(eight=True)
    with caplog.at_level(logging.WARNING, "castor"):
        model, optimizer = castor.wrap(model, adamw(model), device="2MiB", host="20MiB")
    assert "28 quantized weights" in caplog.text and "are also kept by their modules" in caplog.text
    assert train(model, optimizer) == pytest.approx(expected, rel=1e-4)


def test_the_page_trains(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text()
    code = page.split("### Quantized weights")[1].split("<!-- tested -->\n```python\n")[1].split("```")[0]
    llama().save_pretrained(tmp_path)
    names: dict[str, Any] = {"torch": torch, "transformers": transformers, "peft": peft, "castor": castor, "folder": str(tmp_path), "batch": BATCH}
    exec(compile(code, "pytorch.md", "exec"), names)
    losses = [names["step"]() for _ in range(3)]
    assert losses[2] < losses[0]
