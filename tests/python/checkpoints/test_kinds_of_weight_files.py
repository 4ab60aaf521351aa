# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Sixteen kinds of files of weights that people have: each fills a wrapped model, and what is left on either side is listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import castor.torch as castor
from models import gpt2
from renamed_models import renamed, with_values

safetensors = pytest.importorskip("safetensors.torch")
transformers = pytest.importorskip("transformers", minversion="5.0")
Write = Callable[[Path], dict[str, torch.Tensor]]  # writes into a folder, and gives the values that the model shall have then


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: values.detach().clone() for name, values in model.named_parameters()}


def saved(make: Callable[[], Any], **how: Any) -> Write:
    def write(folder: Path) -> dict[str, torch.Tensor]:
        with_values(make()).save_pretrained(folder, **how)
        return tensors_of(type(make()).from_pretrained(folder))

    return write


def by_torch(shards: int) -> Write:
    def write(folder: Path) -> dict[str, torch.Tensor]:
        want = tensors_of(with_values(gpt2()))
        names = [f"pytorch_model-{number}.bin" for number in range(shards)] if shards > 1 else ["pytorch_model.bin"]
        parts = [{name: values for number, (name, values) in enumerate(want.items()) if number % shards == shard} for shard in range(shards)]
        for file, part in zip(names, parts):
            torch.save(part, folder / file)
        if shards > 1:
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {name: file for file, part in zip(names, parts) for name in part}}))
        return want

    return write


def with_more(make: Callable[[], Any], more: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> Write:
    def write(folder: Path) -> dict[str, torch.Tensor]:
        want = tensors_of(with_values(make()))
        wide = {name: values.to(dtype) * (1.000000001 if dtype == torch.float64 else 1) for name, values in want.items()}
        safetensors.save_file({**wide, **more}, folder / "model.safetensors")
        return {name: values.to(torch.float32) for name, values in wide.items()}

    return write


def under_adapters(folder: Path) -> dict[str, torch.Tensor]:
    want = saved(gpt2)(folder)
    return {"base_model.model." + name.replace("c_attn.", "c_attn.base_layer."): values for name, values in want.items()}


def with_adapters() -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(gpt2(), peft.LoraConfig(target_modules=["c_attn"], r=2))


def classifier() -> Any:
    return transformers.GPT2ForSequenceClassification(gpt2().config)


def trained_by_trainer(folder: Path) -> dict[str, torch.Tensor]:
    from castor.hf import CastorTrainer

    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 4
    arguments = transformers.TrainingArguments(str(folder), max_steps=1, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-3)
    trainer = CastorTrainer(model=with_values(renamed("Mixtral")), args=arguments, train_dataset=data, castor={"device": "64MiB", "host": "64MiB"})
    trainer.train()
    for file in (folder / "checkpoint-1").iterdir():
        file.rename(folder / file.name)
    return {name: castor.exact(p) for name, p in trainer.model.named_parameters()}


def saved_by_castor(folder: Path) -> dict[str, torch.Tensor]:
    model = with_values(renamed("Olmoe"))
    model, _ = castor.wrap(model, torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB")
    castor.save(str(folder), model)
    return {name: castor.exact(p) for name, p in model.named_parameters()}


def next_layer() -> dict[str, torch.Tensor]:
    """The layer that DeepSeek-V3's files have for predicting further tokens."""
    experts = {f"model.layers.2.mlp.experts.{number}.{part}_proj.weight": torch.ones(4, 4) for number in range(2) for part in ("gate", "up")}
    return {"model.layers.2.enorm.weight": torch.ones(4), **experts}


def masks() -> dict[str, torch.Tensor]:
    """What GPT-NeoX's files on the hub have of earlier forms of its attention."""
    own = {"bias": torch.ones(1, 1, 8, 8, dtype=torch.bool), "masked_bias": torch.tensor(-1e9), "rotary_emb.inv_freq": torch.ones(2)}
    return {f"gpt_neox.layers.0.attention.{name}": values for name, values in own.items()}


def beside(family: str, more: dict[str, torch.Tensor]) -> Write:
    """As on the hub, with further tensors."""
    def write(folder: Path) -> dict[str, torch.Tensor]:
        want = saved(lambda: renamed(family))(folder)
        safetensors.save_file({**safetensors.load_file(folder / "model.safetensors"), **more}, folder / "model.safetensors")
        return want

    return write


class Kind(NamedTuple):
    write: Write
    make: Callable[[], Any] = gpt2
    missing: str = ""  # a word that all names have that the files lack
    further: tuple[str, ...] = ()


KINDS = {
    "one file of safetensors": Kind(saved(gpt2)),
    "shards of safetensors and their index": Kind(saved(gpt2, max_shard_size="20KB")),
    "one file of torch.save": Kind(by_torch(1)),
    "shards of torch.save and their index": Kind(by_torch(3)),
    "a base model's file under adapters": Kind(under_adapters, with_adapters, "lora"),
    "a language model's file under another head": Kind(saved(gpt2), classifier, "score"),
    "float64": Kind(with_more(gpt2, {}, torch.float64)),
    "further tensors in a shard": Kind(with_more(gpt2, {"stray": torch.ones(2), "h.9.attn.masked_bias": torch.ones(1)}), further=("stray", "h.9.attn.masked_bias")),
    "Mixtral as on the hub": Kind(saved(lambda: renamed("Mixtral")), lambda: renamed("Mixtral")),
    "Qwen3-MoE as on the hub": Kind(saved(lambda: renamed("Qwen3Moe")), lambda: renamed("Qwen3Moe")),
    "OLMoE as on the hub": Kind(saved(lambda: renamed("Olmoe")), lambda: renamed("Olmoe")),
    "DeepSeek-V3 as on the hub": Kind(beside("DeepseekV3", next_layer()), lambda: renamed("DeepseekV3"), further=tuple(next_layer())),
    "GPT-NeoX as on the hub": Kind(beside("GPTNeoX", masks()), lambda: renamed("GPTNeoX"), further=tuple(masks())),
    "Mixtral by the names of transformers 5's modules": Kind(saved(lambda: renamed("Mixtral"), save_original_format=False), lambda: renamed("Mixtral")),
    "a checkpoint of CastorTrainer's": Kind(trained_by_trainer, lambda: renamed("Mixtral")),
    "a checkpoint of castor.save's": Kind(saved_by_castor, lambda: renamed("Olmoe")),
}


def test_there_are_sixteen() -> None:
    assert len(KINDS) == 16


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_loads_and_says_what_is_left(kind: str, tmp_path: Path) -> None:
    write, make, missing, further = KINDS[kind]
    want = write(tmp_path)
    model = make()
    before = tensors_of(model)
    model, _ = castor.wrap(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), device="64MiB", host="64MiB")
    left = castor.load_weights(model, str(tmp_path))
    assert set(left.further) == set(further)
    assert bool(left.missing) == bool(missing) and all(missing in name for name in left.missing)
    for name, p in model.named_parameters():
        assert torch.equal(castor.exact(p), before[name] if name in left.missing else want[name]), name


def test_files_of_torch_that_hold_no_tensors_are_refused(tmp_path: Path) -> None:
    model, _ = castor.wrap(model := gpt2(), torch.optim.AdamW(model.parameters()), device="64MiB", host="64MiB")
    torch.save({"epoch": 3, "model": {}}, tmp_path / "pytorch_model.bin")
    with pytest.raises(castor.CastorError, match="has more than tensors by names; save its state_dict alone"):
        castor.load_weights(model, str(tmp_path))
    torch.save(gpt2(), tmp_path / "pytorch_model.bin")  # an object of a class, which could run code
    with pytest.raises(castor.CastorError, match="has no tensors that torch.load takes with weights_only=True"):
        castor.load_weights(model, str(tmp_path))
    torch.save(gpt2().state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert castor.load_weights(model, str(tmp_path)) == ((), ())
    torch.save({name: values.to(torch.float8_e4m3fn) for name, values in gpt2().state_dict().items()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(castor.CastorError, match="is torch.float8_e4m3fn of .* bytes, which no tensor here is made from"):
        castor.load_weights(model, str(tmp_path))
