# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""The ``castor=`` of a trainer: checked when made, from a script or from the command line."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any, Optional, Union

from castor.errors import InvalidArgument
from castor.torch._arguments import checked_of_wrap

_OF_TRAINER = ("frozen", "optimizer_file", "log")


def checked(castor: Mapping[str, Any], of_trainer: bool = True) -> dict[str, Any]:
    """The same arguments, with torch's types in place of their names.

    Args:
      castor: arguments of `castor.torch.wrap`.
      of_trainer: ``frozen``, ``optimizer_file`` and ``log`` may be among them.

    Raises:
      InvalidArgument: an argument that `checked_of_wrap` refuses.
    """
    made = checked_of_wrap(castor, "castor=", _OF_TRAINER if of_trainer else ())
    if made.get("frozen") is not None:
        made["frozen"] = checked(made["frozen"], of_trainer=False)
    return made


@dataclasses.dataclass
class CastorArguments:
    """For `transformers.HfArgumentParser`, beside the trainer's own arguments: ``--castor '{"device": "8GiB"}'``, or the name of a JSON file.

    Raises:
      InvalidArgument: the text is no JSON object, or the object has what no ``castor=`` takes.
    """

    castor: Optional[Union[dict, str]] = dataclasses.field(  # type: ignore[type-arg]
        default=None, metadata={"help": "Castor's arguments, as a JSON object or the name of a file with one, such as '{\"device\": \"8GiB\"}'."})

    def __post_init__(self) -> None:
        found: Any = self.castor
        if isinstance(found, str):
            text = found
            if not found.lstrip().startswith("{"):
                if not os.path.isfile(found):
                    raise InvalidArgument(f"--castor is {found!r}, and there is no such file: give a JSON object, or the name of a file with one")
                with open(found, encoding="utf-8") as file:
                    text = file.read()
            try:
                found = json.loads(text)
            except json.JSONDecodeError as error:
                raise InvalidArgument(f"--castor cannot be read as JSON ({error}): write it as '{{\"device\": \"8GiB\"}}'") from error
            if not isinstance(found, dict):
                raise InvalidArgument(f"--castor is JSON of a {type(found).__name__}: give an object, such as '{{\"device\": \"8GiB\"}}'")
        self.castor = None if found is None else checked(found)
