# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What bindings.py makes of castor.h is what a C compiler makes of it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from castor import _abi, _castor_h

HEADER = Path(__file__).parents[3] / "collectives" / "c_api" / "castor.h"
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "castor_" + re.sub("(?<!^)([A-Z])", r"_\1", name).lower(): kind
    for name, kind in vars(_castor_h).items()
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and name not in ("Sized", "Structure")
}
CONSTANTS = {f"CASTOR_{name}": value for name, value in vars(_castor_h).items() if name.isupper() and isinstance(value, int)}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Sizes, offsets and constants, as the C compiler sees them."""
    lines = [f'printf("{name} %ld\\n", (long){name});' for name in CONSTANTS]
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field, *_ in struct._fields_]
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "tell.c"
    source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include \"castor.h\"\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run(["cc", "-I", str(HEADER.parent), str(source), "-o", str(folder / "tell")], check=True)
    out = subprocess.run([str(folder / "tell")], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}


def test_structs_have_the_size_and_members_of_the_header(told: dict[str, int]) -> None:
    text = HEADER.read_text()
    assert len(STRUCTS) > 15
    for name, struct in STRUCTS.items():
        assert ctypes.sizeof(struct) == told[name], name
        for field, *_ in struct._fields_:
            assert getattr(struct, field).offset == told[f"{name}.{field}"], f"{name}.{field}"
        body = re.search(rf"typedef struct {name} {{(.*?)\n}} {name};", text, re.S)
        assert body, name
        declared = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)
        assert declared.count(";") == len(struct._fields_), f"{name} has other members in the header"


def test_constants_have_the_values_of_the_header(told: dict[str, int]) -> None:
    assert {name: told[name] for name in CONSTANTS} == CONSTANTS


def test_functions_take_as_many_arguments_as_in_the_header() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    declared = dict(re.findall(r"CASTOR_API [^;(]*?(castor_\w+)\(([^;]*)\);", text))
    assert len(declared) > 80 and declared.keys() == _castor_h.FUNCTIONS.keys()
    for name, arguments in declared.items():
        counted = 0 if arguments.strip() == "void" else len(re.sub(r"\([^)]*\)\([^)]*\)", "f", arguments).split(","))
        assert counted == len(_castor_h.FUNCTIONS[name][1]), name


def test_the_same_header_gives_the_same_bytes() -> None:
    made = [
        subprocess.run(
            [sys.executable, str(HEADER.parent / "bindings.py"), "python", str(HEADER)], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("CASTOR_API int32_t castor_lost(castor_unheard* of);", "points to a type of no known form: castor_unheard *"),
        ("CASTOR_API long castor_lost(void);", "a type of no known form: long"),
        ("CASTOR_API int32_t (*castor_lost(void))(void);", "declares a function in another way"),
        ("typedef struct castor_lost {\n  int32_t a : 3;\n} castor_lost;", "member of no known form: int32_t a : 3"),
    ],
)
def test_a_declaration_of_another_form_is_refused(tmp_path: Path, line: str, words: str) -> None:
    header = tmp_path / "castor.h"
    header.write_text(HEADER.read_text().replace('} /* extern "C" */', f'{line}\n}} /* extern "C" */'))
    made = subprocess.run([sys.executable, str(HEADER.parent / "bindings.py"), "python", str(header)], capture_output=True, text=True)
    assert made.returncode == 1 and words in made.stderr, made.stderr


def test_every_code_has_an_exception_of_its_own() -> None:
    codes = {int(value) for value in re.findall(r"CASTOR_[A-Z_]+ = (\d+),?\s*/\*", HEADER.read_text())}
    assert set(_abi.BY_CODE) >= {code for code in codes if 1 <= code <= 11}
    assert len(set(_abi.BY_CODE.values())) == 11


def test_errors_name_what_python_calls() -> None:
    """Each call that messages of the engine name has Python's words, and no other message is changed."""
    made = subprocess.run([sys.executable, str(HEADER.parent / "bindings.py"), "calls", str(HEADER)], check=True, capture_output=True, text=True)
    calls = dict(re.findall(r'"(\w+)\(\)", "(castor_\w+)"', made.stdout))
    sources = (HEADER.parents[1] / "engine").rglob("*.cc")
    named = {call for source in sources for text in re.findall(r'"[^"\n]*"', source.read_text()) for call in re.findall(r"\b([A-Z]\w+)\(\)", text)}
    assert len(named) > 15 and named <= calls.keys()
    assert {calls[call] for call in named} - _abi.IN_PYTHON.keys() == set()
    words = "call castor_engine_abandon or castor_engine_set_updates before castor_engine_frobnicate"
    assert _abi.in_python(words) == "call optimizer.zero_grad() or optimizer.load_state_dict before castor_engine_frobnicate"
