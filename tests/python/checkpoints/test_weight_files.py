# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Weights that others wrote: buffers, tied weights under any name, other types; and checkpoints of another dtype."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from models import gpt2

safetensors = pytest.importorskip("safetensors.torch")
WHERE: dict[str, dict[str, Any]] = {"on the device": {}, "on the host": {"place": {"*": "host"}}}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.BatchNorm1d(8)
        self.extra = nn.Linear(8, 8)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.extra(self.norm(self.embed(ids))))


def other() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    model = Model()
    model(torch.randint(11, (16,)))
    return {name: values.clone() for name, values in model.state_dict().items()}


def wrapped(ignores: bool = False, **arguments: Any) -> tuple[Any, Any]:
    torch.manual_seed(1)
    model: Any = Model()
    ignored = [model.extra] if ignores else []
    trained = [p for name, p in model.named_parameters() if not (ignores and name.startswith("extra"))]
    return castor.wrap(model, torch.optim.AdamW(trained, lr=1e-2), ignore=ignored, **arguments)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("leaves_out", [["out.weight"], ["embed.weight"], []])
def test_buffers_and_tied_weights_come_by_any_of_their_names(leaves_out: list[str], ignores: bool, where: str, tmp_path: Path) -> None:
    want = other()
    safetensors.save_file({name: values for name, values in want.items() if name not in leaves_out}, tmp_path / "model.safetensors")
    model, _ = wrapped(ignores, **WHERE[where])
    castor.load_weights(model, str(tmp_path))
    for name, values in model.state_dict().items():
        assert torch.equal(values, want[name]), name


@pytest.mark.parametrize("saved", [torch.bfloat16, torch.float16, torch.float32])
def test_other_types_are_converted(saved: torch.dtype, tmp_path: Path) -> None:
    want = {name: values.to(saved) if values.is_floating_point() else values for name, values in other().items()}
    files = {"a.safetensors": {"out.weight": want["out.weight"]}, "b.safetensors": {name: v for name, v in want.items() if "weight" not in name or "t.w" not in name}}
    for file, tensors in files.items():
        safetensors.save_file({name: values.clone() for name, values in tensors.items()}, tmp_path / file)
    index = {"weight_map": {name: file for file, tensors in files.items() for name in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    model, _ = wrapped(dtype=torch.bfloat16)
    castor.load_weights(model, str(tmp_path))
    for name, values in model.state_dict().items():
        assert torch.equal(values.float(), want[name].to(values.dtype).float()), name


def test_what_belongs_to_nothing_is_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    want = other()
    safetensors.save_file(want | {"strange": torch.ones(1), "out.weight": want["embed.weight"].clone()}, tmp_path / "model.safetensors")
    model, _ = wrapped()
    assert castor.load_weights(model, str(tmp_path)) == ((), ("strange",))
    assert "the files have 1 tensors that the model has no place for: strange" in caplog.text
    for name, values in model.state_dict().items():
        assert torch.equal(values, want[name]), name
    safetensors.save_file({"strange": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(castor.InvalidArgument, match="no tensor in .* has a place in the model; the first there is strange"):
        castor.load_weights(model, str(tmp_path))
    for garbage in (b"\xff" * 64, (16).to_bytes(8, "little") + b"not JSON at all!"):
        (tmp_path / "model.safetensors").write_bytes(garbage)
        with pytest.raises(castor.CastorError, match="safetensors"):
            castor.load_weights(model, str(tmp_path))
    wrong = {name: values for name, values in other().items() if name != "out.weight"} | {"norm.running_mean": torch.ones(3)}
    safetensors.save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(castor.InvalidArgument, match="norm.running_mean has the shape"):
        castor.load_weights(model, str(tmp_path))


@pytest.mark.parametrize(("first", "second"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_a_checkpoint_of_another_type_is_converted_where_that_is_said(first: torch.dtype, second: torch.dtype, tmp_path: Path) -> None:
    model, optimizer = wrapped(dtype=first)
    for _ in range(2):
        model(torch.randint(11, (16,))).float().pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    castor.save(str(tmp_path), model)
    again, _ = wrapped(dtype=second)
    with pytest.raises(castor.InvalidArgument, match="convert"):
        castor.load(str(tmp_path), again)
    castor.load(str(tmp_path), again, convert=True)
    for mine, theirs in zip(again.parameters(), model.parameters()):
        assert torch.equal(castor.exact(mine), castor.exact(theirs))
    assert torch.equal(again.norm.running_mean, model.norm.running_mean)
    fresh, _ = wrapped(dtype=second)
    castor.load_weights(fresh, str(tmp_path))
    assert torch.equal(castor.exact(fresh.extra.weight), castor.exact(model.extra.weight))
    assert torch.equal(fresh.norm.running_mean, model.norm.running_mean)


@pytest.mark.parametrize("where", WHERE)
def test_float64_files_are_rounded(where: str, tmp_path: Path) -> None:
    want = {name: values.double() * 1.000000001 if values.is_floating_point() else values for name, values in other().items() if name != "out.weight"}
    safetensors.save_file(want, tmp_path / "model.safetensors")
    model, optimizer = wrapped(**WHERE[where])
    model(torch.randint(11, (16,))).sum().backward()
    optimizer.step()
    assert castor.load_weights(model, str(tmp_path)) == ((), ())
    for name, values in want.items():
        assert torch.equal(model.state_dict()[name], values.to(model.state_dict()[name].dtype)), name
    assert not optimizer.state_dict()["state"], "moments begin anew"


@pytest.mark.parametrize("where", WHERE)
def test_a_base_models_file_goes_under_adapters(where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    base = gpt2()
    base.save_pretrained(tmp_path)
    torch.manual_seed(2)
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(target_modules=["c_attn"], modules_to_save=["ln_f"], r=4, init_lora_weights=False))
    adapters = {name: values.clone() for name, values in model.state_dict().items() if "lora" in name}
    model, _ = castor.wrap(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), **WHERE[where])
    missing, further = castor.load_weights(model, str(tmp_path))
    assert set(missing) == set(adapters) and not further
    assert f"the files lack {len(adapters)} tensors of the model, which keep their values" in caplog.text
    own, got = base.state_dict(), model.state_dict()
    for name, values in got.items():
        if name in adapters:
            assert torch.equal(values, adapters[name]), name
        else:
            short = name.removeprefix("base_model.model.")
            for word in ("base_layer.", "original_module.", "modules_to_save.default."):
                short = short.replace(word, "")
            assert torch.equal(values, own[short]), name


@pytest.mark.parametrize("of_base", [False, True])
def test_a_language_models_file_goes_under_a_new_head(of_base: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    saved = gpt2().transformer if of_base else gpt2()
    saved.save_pretrained(tmp_path)
    torch.manual_seed(2)
    model = transformers.GPT2ForSequenceClassification(gpt2().config)
    head = model.score.weight.detach().clone()
    model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()))
    assert castor.load_weights(model, str(tmp_path)) == (("score.weight",), ())
    got = model.state_dict()
    assert torch.equal(got.pop("score.weight"), head)
    own = {("transformer." if of_base else "") + name: values for name, values in saved.state_dict().items()}
    assert got and all(torch.equal(values, own[name]) for name, values in got.items())


def test_a_trainers_checkpoint_gives_its_masters_and_goes_under_adapters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    from castor.hf import CastorTrainer

    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-3)
    trainer = CastorTrainer(model=gpt2(), args=arguments, train_dataset=data, castor={"device": "64MiB", "host": "64MiB", "dtype": torch.bfloat16})
    trainer.train()
    folder = str(tmp_path / "checkpoint-1")
    again = gpt2()
    again, _ = castor.wrap(again, torch.optim.AdamW(again.parameters()), dtype=torch.bfloat16)
    assert castor.load_weights(again, folder) == ((), ())
    masters = {name: castor.exact(p) for name, p in trainer.model.named_parameters()}
    assert any(not torch.equal(values, values.bfloat16().float()) for values in masters.values())
    for name, p in again.named_parameters():
        assert torch.equal(castor.exact(p), masters[name]), name
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(target_modules=["c_attn"], r=4))
    model, _ = castor.wrap(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))
    missing, further = castor.load_weights(model, folder)
    assert missing and all("lora" in name for name in missing) and not further
    assert "takes the safetensors in" in caplog.text
    for name, p in model.named_parameters():
        if "lora" not in name:
            short = name.removeprefix("base_model.model.").replace("base_layer.", "")
            assert torch.equal(castor.exact(p), masters[short].bfloat16().float()), name


def test_nothing_changes_where_a_file_does_not_fit(tmp_path: Path) -> None:
    model, _ = wrapped()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    rest = {name: values for name, values in other().items() if name not in ("out.weight", "extra.bias")}
    for name, values, what in (("extra.weight", torch.ones(3, 8), "extra.weight has the shape"), ("extra.weight", torch.ones(8, 8).int(), "extra.weight in .* is I32")):
        safetensors.save_file(rest | {name: values}, tmp_path / "model.safetensors")
        with pytest.raises(castor.CastorError, match=what):
            castor.load_weights(model, str(tmp_path))
        assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
