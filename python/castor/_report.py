# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""A recorded run: what holds it up, what would help, and a page of pictures."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from castor._command import flags_of
from castor._pages import ask_for_page, frame


@dataclass(frozen=True)
class Proposal:
    """A change that a simulation of the run has tried. ``lines`` says by place (Python, config, command) what to write."""

    text: str
    step_seconds: float
    more_bytes: int
    lines: dict[str, str]


@dataclass(frozen=True)
class Report:
    """What `report` found. ``document`` is all of it, as `castor report --json` writes it. In a notebook it shows its page.

    ``step_seconds`` is the median of the whole steps, None where the record has none.
    """

    headline: str
    proposals: tuple[Proposal, ...]
    step_seconds: Optional[float]
    document: dict[str, Any] = field(repr=False)
    page: str = field(repr=False)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the page, one file that needs nothing else."""
        Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        return frame(self.page, "Castor report")


def report(record: Union[str, os.PathLike[str]], *, steps: Optional[str] = None) -> Report:
    """Reports on a recorded run, which `castor.torch.record` or ``--record`` wrote.

    Args:
      record: the record's file. Of several ranks each has its own, ``run.rec.0``, ``run.rec.1``; ``run.rec`` names them all.
      steps: looks at these alone, such as ``"7"`` or ``"2-30"``.

    Raises:
      InvalidArgument, Malformed, IoError: as the command says. Of a record that was cut off the part is shown that can be read.
    """
    document, page = ask_for_page(["report", os.fspath(record), *flags_of({"steps": steps})])
    return Report(
        headline=document["headline"],
        proposals=tuple(
            Proposal(text=one["text"], step_seconds=one["step_ns"] / 1e9, more_bytes=one["more_bytes"], lines=dict(one["lines"]))
            for one in document["proposals"]
        ),
        step_seconds=document["step_ns"]["median"] / 1e9 if document["complete_steps"] else None,
        document=document,
        page=page,
    )
