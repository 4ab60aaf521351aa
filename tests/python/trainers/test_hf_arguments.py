# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""``--castor`` on the command line of a script with HfArgumentParser, and what ``castor=`` refuses when a trainer is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from castor.errors import InvalidArgument  # noqa: E402
from castor.hf import CastorArguments, CastorTrainer  # noqa: E402


def parsed(*words: str) -> Any:
    parser = transformers.HfArgumentParser((transformers.TrainingArguments, CastorArguments))
    args, castor = parser.parse_args_into_dataclasses(["--output_dir", "out", "--max_steps", "2", *words])
    assert args.max_steps == 2
    return castor.castor


def test_the_command_line_takes_json_and_the_name_of_a_file(tmp_path: Path) -> None:
    assert parsed() is None
    assert parsed("--castor", '{"device": "8GiB", "dtype": "bfloat16"}') == {"device": "8GiB", "dtype": torch.bfloat16}
    file = tmp_path / "castor.json"
    file.write_text(json.dumps({"device": "8GiB", "nvme": "/scratch", "frozen": {"device": "1GiB"}}))
    assert parsed("--castor", str(file)) == {"device": "8GiB", "nvme": "/scratch", "frozen": {"device": "1GiB"}}
    assert CastorArguments(castor={"stage": 2}).castor == {"stage": 2}, "as a YAML file of a script gives it"


@pytest.mark.parametrize(("text", "words"), [
    ('{"devise": "8GiB"}', "unknown key 'devise': the nearest one is 'device'"),
    ('{"frozen": {"hots": 1}}', "unknown key 'hots': the nearest one is 'host'"),
    ('{"device": "8GB"}', "castor= has a device that is '8GB': give bytes"),
    ('{"dtype": "bf61"}', "castor= has dtype 'bf61'"),
    ('{"units": ["MoeBlock"]}', "names in units, which takes modules"),
    ('{"device": ', "cannot be read as JSON"),
    ("nowhere.json", "there is no such file"),
])
def test_mistakes_are_refused_when_arguments_are_made(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        parsed("--castor", text)


def test_a_file_of_a_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "castor.json"
    file.write_text("[1]")
    with pytest.raises(InvalidArgument, match="JSON of a list: give an object"):
        parsed("--castor", str(file))


def test_a_trainer_refuses_an_unknown_key_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="the nearest one is 'policy'"):
        CastorTrainer(model=torch.nn.Linear(2, 2), args=transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True),
                      castor={"polcy": "auto"})
