# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""docs/troubleshooting.md has every error of the Python package, and each error that it quotes is in a source."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Optional

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = ("chunk", "collectives", "offload", "placement", "python", "tools")
PUNCTUATION = " \n:;,.()'\""


def flat(text: str) -> str:
    return " ".join(text.split())


# Literals of Python.


def pieces_of(node: ast.AST) -> Optional[list[str]]:
    """The literal text of a message between its holes; None where none of the message is literal."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        pieces = [""]
        for value in node.values:
            if isinstance(value, ast.Constant):
                pieces[-1] += str(value.value)
            else:
                pieces.append("")
        return pieces
    if isinstance(node, ast.BinOp):
        left, right = pieces_of(node.left), pieces_of(node.right)
        if left is None or right is None:
            return (left or []) + (right or []) or None
        return [*left[:-1], left[-1] + right[0], *right[1:]]
    return None


def raised_by(path: Path) -> list[tuple[int, list[str]]]:
    """Line and pieces of each message that a raise statement of a file has."""
    raised = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            pieces = pieces_of(node.exc.args[0])
            if pieces is not None:
                raised.append((node.lineno, pieces))
    return raised


def beginnings(pieces: list[str]) -> list[str]:
    """Up to five words of the first piece that has four or more, and of the longest one."""
    stripped = [flat(piece).strip(PUNCTUATION) for piece in pieces]
    longest = max(stripped, key=len)
    first = next((piece for piece in stripped if len(piece.split()) >= 4), longest)
    return [" ".join(piece.split()[:5]) for piece in (first, longest) if piece]


RAISED = [
    pytest.param(line, pieces, id=f"{path.relative_to(ROOT / 'python' / 'castor')}:{line}")
    for path in sorted((ROOT / "python" / "castor").rglob("*.py"))
    for line, pieces in raised_by(path)
]


# Literals of all languages.

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""  # comments
    r"""|R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)\""""
    r"""|'(?:\\.|[^'\\\n])'"""
    r"""|(?P<text>"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*)""",
    re.DOTALL,
)
ONE = re.compile(r'"((?:\\.|[^"\\\n])*)"')
ESCAPES = {"n": "\n", "t": "\t"}


def literals_of_cc(text: str) -> str:
    found = []
    for token in TOKEN.finditer(text):
        if token["raw"] is not None:
            found.append(token["raw"])
        elif token["text"] is not None:
            joined = "".join(ONE.findall(token["text"]))
            found.append(re.sub(r"\\(.)", lambda escape: ESCAPES.get(escape[1], escape[1]), joined))
    return "\0".join(map(flat_but_ends, found))


def literals_of_python(text: str) -> str:
    return "\0".join(flat_but_ends(n.value) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def flat_but_ends(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def literals() -> dict[str, str]:
    """Of each source, its string literals; of a script, all of its text."""
    of = {".cc": literals_of_cc, ".h": literals_of_cc, ".cu": literals_of_cc, ".py": literals_of_python, ".sh": flat_but_ends}
    return {
        str(path.relative_to(ROOT)): of[path.suffix](path.read_text(errors="replace"))
        for top in SOURCES
        for path in sorted((ROOT / top).rglob("*"))
        if path.suffix in of and path.is_file()
    }


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return literals()


def quoted_on_page() -> list[str]:
    """What stands in backticks in the first column of the page's tables."""
    quoted = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("| "):
            quoted += re.findall(r"`([^`]+)`", line[2:].split(" | ")[0])
    return quoted


@pytest.mark.parametrize(("line", "pieces"), RAISED)
def test_page_has_each_error_of_the_package(line: int, pieces: list[str]) -> None:
    page = flat(PAGE.read_text())
    for words in beginnings(pieces):
        assert words in page, f"docs/troubleshooting.md lacks an error: {words}"


@pytest.mark.parametrize("quoted", quoted_on_page())
def test_each_error_of_the_page_is_in_one_source(quoted: str, sources: dict[str, str]) -> None:
    fragments = [fragment for fragment in quoted.split("...") if fragment.strip(PUNCTUATION)]
    assert fragments
    for fragment in fragments:
        assert any(fragment in text for text in sources.values()), f"no source has {fragment!r}"
    assert any(all(fragment in text for fragment in fragments) for text in sources.values()), f"no source has all of {fragments}"


def test_page_quotes_each_error_once() -> None:
    quoted = quoted_on_page()
    assert len(quoted) > 100
    assert sorted(set(quoted)) == sorted(quoted)


def test_lines_are_short() -> None:
    lines = PAGE.read_text().splitlines()
    assert len(lines) < 260
    assert [line for line in lines if len(line) > 150 and not line.startswith("|")] == []


def test_pages_that_are_named_exist() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", PAGE.read_text())
    assert links
    assert [link for link in links if not link.startswith("http") and not (PAGE.parent / link).exists()] == []
