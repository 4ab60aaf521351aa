# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Modules of the package import each other in one direction, those for types and those inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import castor

SOURCES = Path(__file__).parents[3] / "python"
INSTALLED = Path(castor.__file__).parent
MADE = INSTALLED / "_castor_h.py"  # by the build, of castor.h


def modules() -> dict[str, Path]:
    """Those of the package, by name."""
    found = {"castor._castor_h": MADE}
    for path in sorted((SOURCES / "castor").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, source: str, is_package: bool, of: set[str]) -> Iterator[str]:
    """Modules among `of` that a module names in its imports, wherever these are."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in of)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            above = parts[: len(parts) + is_package - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in of or base in of:
                    yield inner if inner in of else base


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules each of which imports the next, and the last the first; none where there is no circle."""
    done: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in sorted(graph[name]):
            found = search(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := search(name, []))), [])


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == ["b", "d"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_found_wherever_they_are() -> None:
    of = {"p", "p.a", "p.b", "p.q", "p.q.c"}
    everywhere = "import p.a\nfrom p import b, name\nif TYPE_CHECKING:\n    from p.q.c import x\ndef f():\n    from p.q import c\n"
    assert sorted(imported("p.z", everywhere, False, of)) == ["p", "p.a", "p.b", "p.q.c", "p.q.c"]
    assert [*imported("p.q.c", "from . import name\nfrom .. import a\nfrom ..b import x", False, of)] == ["p.q", "p.a", "p.b"]
    assert [*imported("p.q", "from . import c\nfrom .. import a\nfrom .c import x", True, of)] == ["p.q.c", "p.a", "p.q.c"]


def test_no_modules_import_each_other() -> None:
    paths = modules()
    graph = {name: {*imported(name, path.read_text(), path.name == "__init__.py", set(paths))} - {name} for name, path in paths.items()}
    assert graph["castor.torch._wrap"] >= {"castor._engine", "castor.torch._runtime"}
    found = circle(graph)
    assert found == [], " imports ".join([*found, *found[:1]])


def test_the_wheel_has_every_module() -> None:
    written = {path.relative_to(SOURCES / "castor") for path in modules().values() if path != MADE}
    assert {path.relative_to(INSTALLED) for path in INSTALLED.rglob("*.py")} == {*written, MADE.relative_to(INSTALLED)}
