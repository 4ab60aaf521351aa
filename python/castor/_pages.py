# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Pages of the `castor` command, for notebooks and files."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from castor import _command


def ask_for_page(arguments: Sequence[str], given: Optional[str] = None) -> tuple[dict[str, Any], str]:
    """A command's JSON document and its page."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        document = _command.ask([*arguments, "--html", str(page)], given)
        return document, page.read_text(encoding="utf-8")


def frame(page: str, title: str) -> str:
    """A page inside a notebook's."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 60em; border: 0" title="{title}"></iframe>'
