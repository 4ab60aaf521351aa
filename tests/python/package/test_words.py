# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What people read is short: the front page, and every sentence of the pages, of --help and of docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from castor._command import find

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "python" / "README.md", *(ROOT / "docs").glob("*.md")])
SOURCES = sorted((ROOT / "python" / "castor").rglob("*.py"))
COMMANDS = ("", "search", "plan", "probe", "doctor", "simulate", "report", "diff", "explain", "ckpt")
LONGEST = 30  # words


def paragraphs_of_page(text: str) -> Iterator[str]:
    """Paragraphs, items of lists, headings and cells of tables; no code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"``?[^`]+``?", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*#|] ?)|\n(?=\s*\d+\. )|\n(?=    )", text):
        yield from re.split(r"\||<br>", paragraph) if paragraph.lstrip().startswith("|") else [paragraph]


def paragraphs_of_text(text: str) -> Iterator[str]:
    """Of a docstring or of --help: lines of one indentation go together. So do a row of a table and deeper lines below."""
    text = re.sub(r"``?[^`]+``?", "X", text)
    paragraph: list[str] = []
    indented, row = -1, False
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        begins_row = bool(re.match(r"\s*\S.*?\S\s{2,}\S", line)) or line.lstrip().startswith(("-", "castor "))
        goes_on = line.strip() and not begins_row and (indent > indented if row else indent == indented)
        if not goes_on:
            yield " ".join(paragraph)
            paragraph, indented, row = [], indent, begins_row
        if line.strip():
            paragraph.append(line.strip())
    yield " ".join(paragraph)


def long_sentences(paragraphs: Iterator[str]) -> list[str]:
    found = []
    for paragraph in paragraphs:
        for sentence in re.split(r"(?<=[.!?])[)\"]*\s+", " ".join(paragraph.split())):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > LONGEST:
                found.append(f"{len(words)} words: {sentence}")
    return found


def test_sentences_are_told_apart() -> None:
    text = "A b. C d e!\n\n- one `two three` four\n- [five](six.md) | seven\n\n```\nno no no\n```\n| a b | c |\n"
    told = [" ".join(p.split()) for p in paragraphs_of_page(text)]
    assert [p for p in told if p] == ["A b. C d e!", "- one X four", "- five | seven", "a b", "c"]
    rows = "Options:\n  --a N       one\n              more\n  --b TEXT    two\nText goes\non.\n"
    assert [p for p in paragraphs_of_text(rows) if p] == ["Options:", "--a N       one more", "--b TEXT    two", "Text goes on."]
    assert len(long_sentences(iter(["word " * 31]))) == 1
    assert not long_sentences(iter(["word " * 30, "word " * 20 + "end. " + "word " * 20]))


def test_the_front_page_fits() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 170


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_pages_are_short(page: Path) -> None:
    found = long_sentences(paragraphs_of_page(page.read_text()))
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT / "python")))
def test_sentences_of_docstrings_are_short(source: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found += long_sentences(paragraphs_of_text(ast.get_docstring(node) or ""))
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("command", COMMANDS)
def test_sentences_of_help_are_short(command: str) -> None:
    said = subprocess.run([find(), *([command] if command else []), "--help"], capture_output=True, text=True, check=True)
    assert said.stdout
    found = long_sentences(paragraphs_of_text(said.stdout))
    assert found == [], "\n".join(found)
