# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Files that hold a model in parts and under other names, as those on the hub are: the bits are those of transformers' from_pretrained."""

from __future__ import annotations

import importlib
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import castor.torch as castor
from castor.torch import _transformers_internals as internals
from castor.torch._checkpoints._weight_files import Place, places_of
from renamed_models import CONFIGS, IN_FILES, renamed, with_values

safetensors = pytest.importorskip("safetensors.torch")
transformers = pytest.importorskip("transformers", minversion="5.0")


def wrapped(model: Any, **arguments: Any) -> Any:
    trained = [p for p in model.parameters() if p.requires_grad]
    return castor.wrap(model, torch.optim.AdamW(trained), device="64MiB", host="64MiB", **arguments)[0]


def is_same(model: Any, want: Any) -> bool:
    """Whether parameters and buffers have the same bits, in the model's own types."""
    mine, theirs = dict(model.named_buffers()), dict(want.named_buffers())
    parameters = dict(want.named_parameters())
    assert mine.keys() == theirs.keys() and dict(model.named_parameters()).keys() == parameters.keys()
    return all([torch.equal(castor.exact(p), parameters[name].float()) for name, p in model.named_parameters()]) and all(
        torch.equal(values, theirs[name]) for name, values in mine.items())


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("shards", ["50GB", "8KB"])
@pytest.mark.parametrize("family", CONFIGS)
def test_bits_are_those_of_from_pretrained(family: str, shards: str, lazy: bool, tmp_path: Path) -> None:
    with_values(renamed(family)).save_pretrained(tmp_path, max_shard_size=shards)
    files = places_of(str(tmp_path))
    assert IN_FILES[family] in files and (len({place.file for place in files.values()}) > 1) == (shards == "8KB")
    if lazy:
        with castor.lazy_init():
            model = renamed(family)
    else:
        model = renamed(family)
    assert IN_FILES[family] not in dict(model.named_parameters())
    model = wrapped(model)
    assert castor.load_weights(model, str(tmp_path)) == ((), ())
    assert is_same(model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path))


@pytest.mark.parametrize(("saved", "wanted"), [(torch.bfloat16, torch.bfloat16), (torch.float64, torch.float32), (torch.float16, torch.float32)])
@pytest.mark.parametrize("family", ["Mixtral", "GPTNeoX"])
def test_parts_of_other_types_are_converted(family: str, saved: torch.dtype, wanted: torch.dtype, tmp_path: Path) -> None:
    with_values(renamed(family).to(saved)).save_pretrained(tmp_path)
    model = wrapped(renamed(family), dtype=wanted)
    assert castor.load_weights(model, str(tmp_path)) == ((), ())
    assert is_same(model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=wanted))


def test_a_base_model_in_parts_goes_under_adapters_and_another_head(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    with_values(renamed("Mixtral", "Model")).save_pretrained(tmp_path)
    model = peft.get_peft_model(renamed("Mixtral", "ForSequenceClassification"), peft.LoraConfig(target_modules=["q_proj"], r=2))
    model = wrapped(model)
    left = castor.load_weights(model, str(tmp_path))
    assert left.missing and all("lora" in name or "score" in name for name in left.missing) and not left.further
    want = dict(transformers.AutoModel.from_pretrained(tmp_path).named_parameters())
    loaded = {name.removeprefix("base_model.model.model.").replace(".base_layer", ""): p for name, p in model.named_parameters() if name not in left.missing}
    assert loaded.keys() == want.keys()
    assert all([torch.equal(castor.exact(p), want[name]) for name, p in loaded.items()])


def test_experts_of_a_layer_that_the_model_lacks_are_listed_where_adapters_are_on_experts(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    with_values(renamed("DeepseekV3", num_hidden_layers=3)).save_pretrained(tmp_path)
    model = peft.get_peft_model(renamed("DeepseekV3"), peft.LoraConfig(target_modules=[], target_parameters=["mlp.experts.gate_up_proj"], r=2))
    model = wrapped(model)
    left = castor.load_weights(model, str(tmp_path))
    assert left.missing and all("experts" in name and "lora" in name for name in left.missing)
    assert "model.layers.2.mlp.experts.3.up_proj.weight" in left.further and all("model.layers.2." in name for name in left.further)
    want = dict(transformers.DeepseekV3ForCausalLM.from_pretrained(tmp_path).named_parameters())
    loaded = {name.removeprefix("base_model.model.").replace(".base_layer", ""): p for name, p in model.named_parameters() if name not in left.missing}
    assert loaded.keys() == {name for name in want if "layers.2." not in name}
    assert all([torch.equal(castor.exact(p), want[name]) for name, p in loaded.items()])


def test_parts_of_one_tensor_at_a_time_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_values(renamed("Qwen3Moe", num_hidden_layers=8)).save_pretrained(tmp_path)
    held, most, read = [0], [0], Place.read

    def counted(place: Place) -> torch.Tensor:
        values = read(place)
        held[0] += values.nbytes
        most[0] = max(most[0], held[0])
        weakref.finalize(values, lambda size=values.nbytes: held.__setitem__(0, held[0] - size))
        return values

    monkeypatch.setattr(Place, "read", counted)
    model = wrapped(renamed("Qwen3Moe", num_hidden_layers=8))
    castor.load_weights(model, str(tmp_path))
    assert most[0] == 12 * 2 * 24 * 16 * 4, "bytes of one layer's gate_up_proj"
    assert held[0] == 0


def test_parts_that_do_not_make_the_tensor_change_nothing(tmp_path: Path) -> None:
    with_values(renamed("Mixtral")).save_pretrained(tmp_path)
    whole = safetensors.load_file(tmp_path / "model.safetensors")
    model = wrapped(renamed("Mixtral"))
    before = {name: castor.exact(p) for name, p in model.named_parameters()}
    last, odd = "model.layers.1.block_sparse_moe.experts.3.w2.weight", "model.layers.1.block_sparse_moe.experts.3.w1.weight"
    lacks = {name: values for name, values in whole.items() if name != last}
    for tensors, error in (
        (lacks, r"model.layers.1.mlp.experts.down_proj has the shape \(3, 16, 32\) in the files and \(4, 16, 32\) in the model"),
        (whole | {odd: torch.ones(3, 5)}, "conversion of model.layers.1.block_sparse_moe.experts.0.w1.weight.* to model.layers.1.mlp.experts.gate_up_proj failed"),
        (whole | {odd: torch.ones(32, 16, dtype=torch.int32)}, f"{odd} in .* is I32"),
        (whole | {odd: torch.ones(32, 16).to(torch.float8_e4m3fn)}, f"{odd} in .* is F8_E4M3"),
    ):
        safetensors.save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(castor.CastorError, match=error):
            castor.load_weights(model, str(tmp_path))
        assert all([torch.equal(castor.exact(p), before[name]) for name, p in model.named_parameters()])


def test_files_beside_checkpoints_are_converted_and_a_checkpoint_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = wrapped(with_values(renamed("Mixtral"), 1))
    castor.save(str(tmp_path), first)
    torch.save({"stray": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    with monkeypatch.context() as patch:
        patch.setattr("castor.torch._checkpoints._load_weights.sources_of", None)
        for path in (tmp_path, *tmp_path.glob("step-*"), *tmp_path.glob("step-*/model.safetensors")):
            model = wrapped(renamed("Mixtral"))
            assert castor.load_weights(model, str(path)) == ((), ())
            assert all([torch.equal(castor.exact(p), castor.exact(q)) for p, q in zip(model.parameters(), first.parameters())])
    with_values(renamed("Mixtral"), 3).save_pretrained(tmp_path)
    assert castor.load_weights(model, str(tmp_path)) == ((), ())
    assert is_same(model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path))


class Expert(nn.Module):
    """A model of a script's own that holds experts together, as transformers 5 does."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Module()
        self.experts.gate_up_proj = nn.Parameter(torch.zeros(2, 8, 4))
        self.norm = nn.LayerNorm(4)


def test_a_model_that_is_not_of_transformers_says_that_its_conversion_would_be_needed(tmp_path: Path) -> None:
    parts = {f"experts.{number}.w1.weight": torch.ones(4, 4) for number in range(2)}
    safetensors.save_file({**parts, "norm.weight": torch.ones(4), "norm.bias": torch.ones(4)}, tmp_path / "model.safetensors")
    model = wrapped(Expert())
    with pytest.raises(castor.InvalidArgument, match="the files lack experts.gate_up_proj, and have experts.0.w1.weight, experts.1.w1.weight instead: transformers' "
                                                     "conversion would be needed"):
        castor.load_weights(model, str(tmp_path))
    assert torch.equal(castor.exact(model.norm.bias), torch.zeros(4)), "nothing has changed"


@pytest.mark.parametrize("path", internals.PARTS)
def test_a_transformers_that_lacks_a_part_of_the_conversion_says_so(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    module, _, name = path.partition(":")
    with_values(renamed("Mixtral")).save_pretrained(tmp_path / "experts")
    with_values(renamed("GPTNeoX")).save_pretrained(tmp_path / "names")
    experts, names = wrapped(renamed("Mixtral")), wrapped(renamed("GPTNeoX"))
    monkeypatch.delattr(importlib.import_module(module), name)
    with pytest.raises(castor.InvalidArgument, match="the files lack model.layers.0.mlp.experts.gate_up_proj.* transformers' conversion would be needed"):
        castor.load_weights(experts, str(tmp_path / "experts"))
    left = castor.load_weights(names, str(tmp_path / "names"))
    assert left == (("lm_head.weight",), ("embed_out.weight",))
    assert "this transformers lacks a part of it" in caplog.text
