# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The plugin of tools/examples/axolotl, as axolotl loads and asks it, and its trainer next to axolotl's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("axolotl", reason="axolotl is not installed")
pytest.importorskip("axolotl.core.trainers", reason="axolotl's trainers do not import here", exc_type=ImportError)
from axolotl.core.trainers import AxolotlTrainer  # noqa: E402
from axolotl.integrations.base import PluginManager  # noqa: E402
from axolotl.utils.dict import DictDefault  # noqa: E402
from hf_worker import Tokens  # noqa: E402
from models import gpt2  # noqa: E402
from pydantic import ValidationError  # noqa: E402

from castor.errors import InvalidArgument  # noqa: E402

CASTOR = {"device": "600KiB", "host": "64MiB", "chunk": "16KiB"}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """axolotl's, with the plugin registered by the name that a file gives."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "tools" / "examples" / "axolotl"))
    monkeypatch.setattr(PluginManager, "_instance", None)
    made = PluginManager.get_instance()
    monkeypatch.setattr(made, "plugins", type(made.plugins)())
    made.register("castor_axolotl.CastorPlugin")
    return made


def losses(kind: type, folder: Path) -> tuple[list[float], Any]:
    import datasets
    import torch
    from axolotl.core.training_args import AxolotlTrainingArguments

    torch.manual_seed(0)
    arguments = AxolotlTrainingArguments(output_dir=str(folder), max_steps=4, per_device_train_batch_size=4, logging_steps=1, report_to=[], use_cpu=True,
                                         disable_tqdm=True, save_strategy="no", learning_rate=1e-3, max_grad_norm=0.5)
    tokens = Tokens()
    rows = datasets.Dataset.from_list([{name: values.tolist() for name, values in tokens[index].items()} for index in range(len(tokens))])
    trainer = kind(model=gpt2(resid_pdrop=0, attn_pdrop=0, embd_pdrop=0), args=arguments, train_dataset=rows)
    trainer.axolotl_cfg = DictDefault({})
    trainer.train()
    return [log["loss"] for log in trainer.state.log_history if "loss" in log], trainer


def test_the_trainer_of_the_plugin_trains_as_axolotls_own_does(manager: Any, tmp_path: Path) -> None:
    want, _ = losses(AxolotlTrainer, tmp_path / "plain")
    kind = manager.get_trainer_cls(DictDefault({"castor": CASTOR}))
    assert issubclass(kind, AxolotlTrainer)
    got, trainer = losses(kind, tmp_path / "castor")
    assert len(got) == 4 and got == pytest.approx(want, rel=1e-5)
    assert trainer.model._castor.engine.stats()["device_peak_bytes"] <= 600 << 10


def test_reward_models_have_their_own_trainers(manager: Any) -> None:
    from axolotl.core.trainers import AxolotlPRMTrainer, AxolotlRewardTrainer

    assert issubclass(manager.get_trainer_cls(DictDefault({"reward_model": True})), AxolotlRewardTrainer)
    assert issubclass(manager.get_trainer_cls(DictDefault({"process_reward_model": True})), AxolotlPRMTrainer)


@pytest.mark.parametrize("key", ["rl", "trainer_cls"])
def test_what_axolotl_makes_only_without_a_plugin_is_refused(manager: Any, key: str) -> None:
    with pytest.raises(InvalidArgument, match=f"axolotl's file has {key}: dpo, and CastorPlugin gives trainers without it"):
        manager.get_trainer_cls(DictDefault({key: "dpo"}))


def test_the_file_is_checked_when_it_is_read(manager: Any) -> None:
    (name,) = manager.get_input_args()
    module, _, of = name.rpartition(".")
    arguments = getattr(sys.modules[module], of)
    assert arguments(castor=CASTOR).castor == CASTOR
    with pytest.raises((InvalidArgument, ValidationError), match="the nearest one is 'device'"):
        arguments(castor={"devise": 1})
