#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""Makes of castor.h what cannot include it, so that a function, a struct or a constant is listed once.

usage: bindings.py exports|calls|python castor.h

exports   the version script of libcastor.so
calls     C++ rows of the engine's calls and the functions that make them. A function that has no call of its own name says whose it is in
          the comment before it: "ZeroEngine::WriteParam".
python    structs, constants and functions for ctypes

Prints to the standard output; exit 1 where the header has a line that is none of these.
"""

import re
import sys

NUMBERS = {
    "int32_t": "c_int32", "int64_t": "c_int64", "uint32_t": "c_uint32", "uint64_t": "c_uint64", "size_t": "c_size_t", "double": "c_double",
    "float": "c_float", "char": "c_char",
}


def camel(name):
    return "".join(word.capitalize() for word in name.split("_"))


def bare(name):
    return re.sub(r"^castor_", "", name)


class Header:
    """The declarations of castor.h, in its order."""

    def __init__(self, text):
        self.comments = []  # of each function, the comment before it
        self.structs = {}  # name -> members
        self.constants = {}
        self.callbacks = {}  # typedef -> (result, arguments)
        self.functions = {}  # name -> (result, arguments)
        self.handles = set(re.findall(r"typedef struct (\w+) \1;", text))
        for comment, name in re.findall(r"(?:/\*((?:[^*]|\*(?!/))*)\*/\s*)?CASTOR_API [^;(]*?(castor_\w+)\(", text):
            self.comments.append((name, comment))
        plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for name, value in re.findall(r"^#define (CASTOR_\w+) (\d+)$", plain, re.M):
            self.constants[name] = int(value)
        for body in re.findall(r"enum\s+\w*\s*\{(.*?)\}", plain, re.S):
            for name, value in re.findall(r"(CASTOR_\w+)\s*=\s*([^,\s][^,]*?)\s*(?:,|$)", body.strip()):
                self.constants[name] = eval(value, {}, self.constants)  # a number, or a shift of it
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", plain, re.S):
            self.structs[name] = [self.member(name, line) for line in body.split(";") if line.strip()]
        for result, name, arguments in re.findall(r"typedef (\w+) \(\*(\w+)\)\(([^;]*)\);", plain):
            self.callbacks[name] = (result, arguments)
        for declared in re.findall(r"CASTOR_API\b([^;]*);", re.sub(r"^#.*$", "", plain, flags=re.M)):
            found = re.fullmatch(r"([\w\s*]+?)\s*\b(castor_\w+)\((.*)\)", declared.strip(), re.S)
            if not found or found[1].strip("* ") == "":
                sys.exit(f"bindings.py: castor.h declares a function in another way than the others: {' '.join(declared.split())}")
            self.functions[found[2]] = (found[1], found[3])

    def member(self, struct, line):
        """(name, type, size of an array)"""
        line = " ".join(line.split())
        pointer = re.fullmatch(r"(\w+) \(\*(\w+)\)\((.*)\)", line)
        if pointer:
            result, name, arguments = pointer.groups()
            callback = f"{struct}_{name}"
            self.callbacks[callback] = (result, arguments)
            return name, callback, None
        found = re.fullmatch(r"([\w *]*?[ *])([A-Za-z_]\w*)(?:\[(\w+)\])?", line)
        if not found:
            sys.exit(f"bindings.py: struct {struct} of castor.h has a member of no known form: {line}")
        kind, name, size = found.groups()
        return name, kind.strip(), size


def python_type(header, kind, in_callback=False):
    kind = " ".join(re.sub(r"\bconst\b", "", kind).replace("*", " * ").split())
    base, stars = kind.split(" ")[0], kind.count("*")
    if base in header.callbacks and not stars:
        return camel(bare(base))
    if not stars:
        return NUMBERS.get(base) or sys.exit(f"bindings.py: castor.h has a type of no known form: {kind}")
    if base not in NUMBERS and base != "void" and base not in header.structs and base not in header.handles:
        sys.exit(f"bindings.py: castor.h points to a type of no known form: {kind}")
    if stars == 1:
        if base == "char":
            return "c_char_p"
        # Any buffer does, where the library is given one.
        if base == "void" or base in header.handles or (base == "float" and not in_callback):
            return "c_void_p"
        return f"POINTER({camel(bare(base)) if base in header.structs else NUMBERS[base]})"
    return "POINTER(c_char_p)" if base == "char" else "POINTER(c_void_p)"


def arguments_of(header, arguments, in_callback=False):
    types = []
    for argument in re.split(r",(?![^(]*\))", " ".join(arguments.split())):
        if "(*" in argument:
            types.append("c_void_p")  # a function of the program's, or null
        elif argument.strip() != "void":
            types.append(python_type(header, re.sub(r"\w+$", "", argument.strip()), in_callback))
    return types


def exports(header):
    print("/* What libcastor.so exports: what castor.h declares, and nothing else. */\nCASTOR_1 {\n  global:")
    for name in sorted(header.functions):
        print(f"    {name};")
    print("  local:\n    *;\n};")


def calls(header):
    rows = []
    for name, comment in header.comments:
        if not name.startswith("castor_engine_"):
            continue
        named = re.findall(r"ZeroEngine::(\w+)", comment) or [camel(name[len("castor_engine_"):])]
        rows += [(f"{call}()", name) for call in named]
    for call, name in sorted(rows):
        print(f'{{"{call}", "{name}"}},')


def python(header):
    print('"""Structs, constants and functions of castor.h, made of it by bindings.py."""\n')
    print("import ctypes")
    print(f"from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_void_p, {', '.join(sorted(set(NUMBERS.values())))}\n")
    for name, value in header.constants.items():
        print(f"{name.removeprefix('CASTOR_')} = {value}")
    print('\n\nclass Sized(Structure):\n    """A struct that begins with its own size."""\n')
    print("    def __init__(self, **members: object) -> None:\n        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)\n")

    def callback(name):
        result, arguments = header.callbacks[name]
        types = ", ".join(["None" if result == "void" else NUMBERS[result]] + arguments_of(header, arguments, in_callback=True))
        print(f"\n{camel(bare(name))} = CFUNCTYPE({types})")

    defined = set()
    for struct, members in header.structs.items():
        for _, kind, _ in members:
            if kind in header.callbacks and kind not in defined:
                defined.add(kind)
                callback(kind)
        base = "Sized" if members[0][0] == "struct_size" else "Structure"
        print(f"\n\nclass {camel(bare(struct))}({base}):\n    _fields_ = [")
        for name, kind, size in members:
            size = f" * {size.removeprefix('CASTOR_')}" if size else ""
            print(f'        ("{name}", {python_type(header, kind)}{size}),')
        print("    ]")
    for name in header.callbacks:
        if name not in defined:
            callback(name)
    print("\n\n# Name: result, arguments.\nFUNCTIONS = {")
    for name, (result, arguments) in header.functions.items():
        result = "None" if result == "void" else python_type(header, result)
        print(f'    "{name}": ({result}, [{", ".join(arguments_of(header, arguments))}]),')
    print("}")


def main():
    made = {"exports": exports, "calls": calls, "python": python}
    if len(sys.argv) != 3 or sys.argv[1] not in made:
        sys.exit(__doc__)
    with open(sys.argv[2]) as file:
        made[sys.argv[1]](Header(file.read()))


if __name__ == "__main__":
    main()
