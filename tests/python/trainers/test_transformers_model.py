# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Lists of parameters that Castor asks the Transformers library for, of a ninth of its model types.

CASTOR_TEST_EVERY_MODEL=1 walks over all of them, which takes minutes.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import pytest
import torch
from torch import nn

import castor
from castor import _command

transformers = pytest.importorskip("transformers")

SCRIPT = Path(__file__).parents[3] / "tools" / "models" / "families" / "transformers_model.py"
EVERY = bool(os.environ.get("CASTOR_TEST_EVERY_MODEL"))
# Through the command itself, where each takes seconds: decoders, experts, encoders, sound, states, several parts.
SAMPLE = ["cohere", "granitemoe", "whisper", "mamba", "llava"]
LAYERS = ["num_hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers"]
AUTO_CLASSES = [
    "AutoModelForPreTraining",
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForImageTextToText",
    "AutoModelForMaskedLM",
    "AutoModel",
]

List = list[tuple[str, tuple[int, ...]]]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transformers_model", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small_config(model_type: str) -> Any:
    made = transformers.CONFIG_MAPPING[model_type]
    usual = made()
    fewer = {key: 2 for key in LAYERS if isinstance(getattr(usual, key, None), int) and getattr(usual, key) > 2}
    try:
        return made(**fewer)
    except Exception:  # A list says what each layer is, for instance.
        return usual


def build(config: Any) -> Optional[nn.Module]:
    """The whole model as people make it, None where the library has no class for it or does not make it."""
    for name in AUTO_CLASSES:
        auto = getattr(transformers, name)
        if type(config) not in auto._model_mapping:
            continue
        try:
            with torch.device("meta"):
                model: nn.Module = auto.from_config(copy.deepcopy(config))
        except Exception:
            continue
        if type(model.config) is type(config):
            return model
    return None


def registered(model: nn.Module) -> List:
    return [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]


def document(model_type: str, config: Any, model: Optional[nn.Module]) -> dict[str, Any]:
    """What its config.json says."""
    settings: dict[str, Any] = json.loads(config.to_json_string())
    settings["model_type"] = model_type
    if model is not None:
        settings["architectures"] = [type(model).__name__]
    return settings


def listed(lines: list[str]) -> List:
    names = [line.split("\t") for line in lines[lines.index("") + 1 :]]
    return [(name, tuple(int(d) for d in shape.split(",") if d)) for name, shape, _ in names]


def test_lists_are_those_of_the_library_or_refused_by_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    transformers.logging.set_verbosity_error()
    ask = script().answer
    equal, refused, not_made, wrong = [], [], [], []
    for model_type in list(transformers.CONFIG_MAPPING.keys())[:: 1 if EVERY else 9]:
        try:
            config = small_config(model_type)
        except Exception:  # A config that needs arguments.
            not_made.append(model_type)
            continue
        model = build(config)
        answer = ask(document(model_type, config, model))
        kind, version, *said = answer[0].split("\t")
        assert version == transformers.__version__
        if kind == "refused" and len(answer) == 1 and said[0]:
            (not_made if model is None else refused).append(f"{model_type} ({said[0][:80]})" if model is not None else model_type)
        elif model is None:
            # A class that people do not make by default: nothing to compare with.
            assert kind == "list", answer[0]
            not_made.append(model_type)
        else:
            if kind == "list" and said[0] != type(model).__name__:
                # The library has a class of the family's own, which it does not make by default (shieldgemma2).
                with torch.device("meta"):
                    model = getattr(transformers, said[0])(copy.deepcopy(config))
                assert type(model.config) is type(config)
            same = kind == "list" and listed(answer) == registered(model)
            (equal if same else wrong).append(model_type)
    with capsys.disabled():
        print(
            f"\ntransformers {transformers.__version__}: {len(equal)} lists equal, {len(wrong)} wrong, {len(refused)} refused, "
            f"{len(not_made)} with nothing to compare with; refused: {', '.join(refused) or 'none'}"
        )
    assert not wrong
    assert len(equal) >= (450 if EVERY else 50) and len(refused) <= len(equal) // 20


def test_the_command_lists_what_the_library_registers(tmp_path: Path) -> None:
    transformers.logging.set_verbosity_error()
    lock = threading.Lock()  # of models, which the library makes in one thread

    def differs(model_type: str) -> str:
        config = small_config(model_type)
        config.dtype = torch.bfloat16
        with lock:
            model = build(config)
        assert model is not None
        path = tmp_path / model_type
        path.mkdir()
        (path / "config.json").write_text(json.dumps(document(model_type, config, model)))
        layout = path / "layout.json"
        command = [_command.find(), "search", str(path), "--python", sys.executable, "--json", "-o", str(layout)]
        run = subprocess.run([*command, "--expert-layout", "fused"], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            return f"{model_type}: {run.stderr}"
        said = json.loads(run.stdout)["model"]
        parameters = json.loads(layout.read_text())["parameters"]
        found = [(param["name"], tuple(param["shape"])) for param in parameters]
        same = found == registered(model) and {param["dtype"] for param in parameters} == {"BF16"}
        told = said["family"] == model_type and said["source"] == f"config.json, by transformers {transformers.__version__}"
        return "" if same and told else f"{model_type}: {said}"

    with ThreadPoolExecutor(2) as pool:
        assert [text for text in pool.map(differs, SAMPLE) if text] == []


def test_python_asks_the_library_beside_it(tmp_path: Path) -> None:
    config = transformers.PhiConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=128)
    config.save_pretrained(tmp_path)
    model = build(config)
    assert model is not None
    found = castor.search(tmp_path, min="1KiB", max="64KiB")
    assert found.elements == sum(parameter.numel() for parameter in model.parameters())


def test_the_library_tells_what_it_knows_where_it_does_not_know_a_model() -> None:
    answer = script().answer({"model_type": "phii3"})
    assert answer[0] == f"unknown\t{transformers.__version__}" and {"phi3", "gemma"} <= set(answer[1:])


def test_a_models_own_code_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}})
    )
    (tmp_path / "code.py").write_text("open('ran', 'w')\n")
    # A module of the folder that the command is started in is none of the library's.
    (tmp_path / "torch.py").write_text("open('ran', 'w')\n")
    run = subprocess.run(
        [_command.find(), "search", ".", "--python", sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 4 and "Castor runs no code of models" in run.stderr, run.stderr
    assert not (tmp_path / "ran").exists()
