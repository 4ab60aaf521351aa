# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Arguments of `CastorStrategy` and `CastorFabricStrategy`: those of `castor.wrap`, by name, from a script or from a file of LightningCLI."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import castor.torch as castor
from castor.errors import InvalidArgument

lightning = pytest.importorskip("lightning", reason="lightning is not installed")

from castor.lightning import CastorFabricStrategy, CastorStrategy  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layer(batch)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self(batch).float().pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())


def options_of(function: Any) -> dict[str, Any]:
    """Defaults of keyword-only parameters, by name."""
    return {name: one.default for name, one in inspect.signature(function).parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("strategy", [CastorStrategy, CastorFabricStrategy])
def test_each_option_of_wrap_is_a_named_parameter_with_its_default(strategy: Any) -> None:
    assert options_of(strategy) == options_of(castor.wrap)
    assert {"device", "host", "nvme", "max_norm"} <= options_of(strategy).keys()


@pytest.mark.parametrize(("given", "words"), [
    ({"devise": "8GiB"}, "^CastorStrategy has the unknown key 'devise': the nearest one is 'device'"),
    ({"frozen": {"device": 1}}, "CastorStrategy has the unknown key 'frozen'"),
    ({"host": "8GB"}, "CastorStrategy has a host that is '8GB': give bytes"),
    ({"dtype": "bf61"}, "CastorStrategy has dtype 'bf61'"),
    ({"units": ["MoeBlock"]}, "CastorStrategy has names in units, which takes modules"),
])
def test_mistakes_are_refused_when_the_strategy_is_made(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        CastorStrategy(**given)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_type_by_its_name_is_the_type_that_is_trained(tmp_path: Path, dtype: Any) -> None:
    module = Module()
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=1, default_root_dir=tmp_path, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, strategy=CastorStrategy(device="64MiB", host="64MiB", dtype=dtype))
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(4, 4), batch_size=2))
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}


FILE = """
trainer:
  accelerator: cpu
  devices: 1
  max_steps: 1
  logger: false
  enable_checkpointing: false
  strategy:
    class_path: castor.lightning.CastorStrategy
    init_args: {NAME: 8GiB, host: 64MiB, dtype: bfloat16, nvme: [FOLDER], place: {"*.bias": {exp_avg: host}}, max_norm: 1, config: {poison: true}}
"""


def of_file(folder: Path, name: str) -> Any:
    """The strategy that LightningCLI makes of a file in which ``device`` has another name."""
    pytest.importorskip("jsonargparse", reason="jsonargparse is not installed")
    from lightning.pytorch.cli import LightningCLI

    file = folder / "config.yaml"
    file.write_text(FILE.replace("NAME", name).replace("FOLDER", str(folder)))
    return LightningCLI(Module, run=False, args=["--config", str(file)], save_config_callback=None).trainer.strategy


def test_a_file_of_lightning_cli_makes_the_strategy(tmp_path: Path) -> None:
    strategy = of_file(tmp_path, "device")
    assert isinstance(strategy, CastorStrategy)
    given = {name: value for name, value in strategy._wrap_arguments.items() if value != options_of(castor.wrap)[name] and value != []}
    assert given == {"device": "8GiB", "host": "64MiB", "dtype": torch.bfloat16, "nvme": [str(tmp_path)], "place": {"*.bias": {"exp_avg": "host"}},
                     "max_norm": 1.0, "config": {"poison": True}}


def test_a_file_of_lightning_cli_with_an_unknown_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        of_file(tmp_path, "devise")
    assert "'devise' is not accepted" in capsys.readouterr().err
