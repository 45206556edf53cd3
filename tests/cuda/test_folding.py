"""Folding takes what is constant out of a kernel's source, and nothing that it computes changes."""

from __future__ import annotations

import ast
import random
import textwrap
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.cuda.device_code import columns
from gradkern.cuda.front_end.folding import folded, folded_source

cuda: Any = import_module("numba.cuda")  # its types are put there as it is imported
NAMES = {
    "cuda": cuda,
    "int32": cuda.int32,
    "FLOAT": cuda.float32,
    "columns": columns,
    "YES": True,
    "NO": False,
    "NONE": None,
    "TWO": 2,
    "HALF": 0.5,
    "call": SimpleNamespace,
}
CASES = {  # source: folded
    "return TWO * 3 + x": "return 6 + x",
    "return -TWO < x": "return -2 < x",
    "return TWO // 0": "return 2 // 0",
    "if YES:\n    return x\nelse:\n    return 1": "return x",
    "if NO or TWO > 1 and YES:\n    return x": "return x",
    "if NO:\n    return 1\nelif x > TWO:\n    return x": "if x > 2:\n    return x",
    "if x > 1 and NO:\n    return 1\nreturn x": "return x",
    "if call(x) and NO:\n    return 1\nreturn x": "if call(x) and False:\n    return 1\nreturn x",
    "if YES and x > 1:\n    return 1": "if x > 1:\n    return 1",
    "return x if YES else call(x)": "return x",
    "while NO:\n    x = call(x)\nreturn x": "return x",
    "for n in range(1):\n    x = x + n\nreturn x": "x = x + 0\nreturn x",
    "for n in range(2, 0):\n    x = call(x)\nreturn x": "return x",
    "for n in range(1):\n    if x > 1:\n        break": "for n in range(1):\n    if x > 1:\n        break",
    "for n in range(3):\n    a = x\nreturn n": "for n in range(3):\n    pass\nreturn n",
    "for n in range(TWO):\n    x = x + n\nreturn x": "for n in range(2):\n    x = x + n\nreturn x",
    "for n in range(1):\n    x = x + n\nreturn n": "x = x + 0\nreturn 0",
    "a = 4\nreturn a * TWO + x": "return 8 + x",
    "a = 4\na = a + x\nreturn a": "a = 4\na = a + x\nreturn a",
    "a = 0\na += x\nreturn x": "a = 0\na += x\nreturn x",
    "a = x + 1\nb = call(x)\nreturn x": "b = call(x)\nreturn x",
    "a, b = x + 1, x + 2\nreturn b": "b = x + 2\nreturn b",
    "a = cuda.local.array(TWO, FLOAT)\nreturn x": "return x",
    "a = cuda.local.array(TWO, FLOAT)\na[0] = x\nreturn a": "a = cuda.local.array(2, FLOAT)\na[0] = x\nreturn a",
    "return min(TWO, 7) + max(x, 1)": "return 2 + max(x, 1)",
    "return int32(TWO + 1) + int32(3) + int32(x)": "return int32_constant_ + int32_constant_ + int32(x)",
    "return int32(1 << 40)": "return int32(1099511627776)",
    "return columns.round_up(x, columns.ITEMSIZE)": "return round_up_(x, ITEMSIZE_)",
    '"""Text."""\nreturn x': "return x",
    "if x > 1:\n    a = 1\nreturn x": "return x",
    "if NONE is None:\n    return NONE": "if None is None:\n    return None",
}


@pytest.mark.parametrize("source", CASES)
def test_what_is_constant_is_folded(source: str) -> None:
    text = "def f(x):\n" + textwrap.indent(source, "    ")
    [definition] = ast.parse(text).body
    assert isinstance(definition, ast.FunctionDef)
    folded_source(definition, NAMES)
    assert "\n".join(ast.unparse(each) for each in definition.body) == CASES[source]


def test_a_cast_of_a_constant_is_a_constant_of_the_type() -> None:
    [definition] = ast.parse("def f():\n    return FLOAT(0.1), int32(7)").body
    assert isinstance(definition, ast.FunctionDef)
    known = folded_source(definition, NAMES)
    constants = [each for name, each in known.items() if name.endswith("constant_")]
    assert constants == [np.float32(0.1), np.int32(7)]
    assert [type(each) for each in constants] == [np.float32, np.int32]


def closure(first: int, second: bool) -> Any:
    FIRST, SECOND = first, second

    def f(x: int) -> int:
        """Text."""
        if SECOND:
            return x + FIRST
        return later(x)

    def later(x: int) -> int:
        return x * FIRST

    return f


def test_a_closure_is_folded_with_its_own_values() -> None:
    functions = [closure(3, True), closure(3, False), closure(4, False)]
    assert [f(10) for f in functions] == [folded(f)(10) for f in functions] == [13, 30, 40]
    assert folded(functions[0]).__code__.co_firstlineno == functions[0].__code__.co_firstlineno
    assert folded(functions[0]).__qualname__ == functions[0].__qualname__


def test_what_has_no_source_of_its_own_stays() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x): return x", namespace)
    for each in (namespace["f"], len, lambda x: x, closure.__get__(1)):
        assert folded(each) is each


def with_default(x: int = 1) -> int:
    return x


def test_a_function_with_other_than_plain_arguments_stays() -> None:
    assert folded(with_default) is with_default


# --- random programs -------------------------------------------------------------------------------------------------


PROGRAMS = 120


class Programs:
    """Random functions of x and y over a few constants, with loops, branches and tuples."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.locals = ["x", "y"]

    def number(self, depth: int = 0) -> str:
        kinds = ["constant", "local", "binary", "if", "min"] if depth < 3 else ["constant", "local"]
        kind = self.random.choice(kinds)
        if kind == "constant":
            return self.random.choice(["A", "B", "C", "0", "1", "5", "-2"])
        if kind == "local":
            return self.random.choice(self.locals)
        first, second = self.number(depth + 1), self.number(depth + 1)
        if kind == "binary":
            return f"({first} {self.random.choice('+-*&|^')} {second})"
        if kind == "min":
            return f"{self.random.choice(['min', 'max'])}({first}, {second})"
        return f"({first} if {self.truth(depth + 1)} else {second})"

    def truth(self, depth: int = 0) -> str:
        kind = self.random.choice(["constant", "compare", "and", "or", "not"] if depth < 3 else ["constant", "compare"])
        if kind == "constant":
            return self.random.choice(["P", "Q", "True", "False"])
        if kind == "compare":
            return f"({self.number(2)} {self.random.choice(['<', '<=', '==', '!='])} {self.number(2)})"
        if kind == "not":
            return f"(not {self.truth(depth + 1)})"
        return f"({self.truth(depth + 1)} {kind} {self.truth(depth + 1)})"

    def statements(self, depth: int = 0) -> list[str]:
        found: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.choice(["assign", "assign", "add", "pair", "effect", "if", "for", "while"])
            inner = ["    " + line for line in self.statements(depth + 1)] if depth < 3 else ["    pass"]
            name, other = self.random.sample("abcd", 2)
            if kind == "assign":
                found.append(f"{name} = {self.number()}")
            elif kind == "add":
                found.append(f"{name} += {self.number()}")
            elif kind == "pair":
                found.append(f"{name}, {other} = {self.number()}, {self.number()}")
            elif kind == "effect":
                found.append(f"seen.append({self.number()})")
            elif kind == "if":
                found += [f"if {self.truth()}:", *inner]
                if self.random.random() < 0.5:
                    found += ["else:", "    seen.append(7)", *inner]
            elif kind == "for":
                turns = self.random.choice(["0", "1", "2", "A - 2", "1, 2", "3, 2"])
                stop = [f"    if {self.truth()}:", "        break"] if self.random.random() < 0.2 else []
                found += [f"for {self.random.choice('mn')} in range({turns}):", *stop, *inner]
            else:
                found += [f"while {self.truth()}:", *inner, "    break"]
        return found

    def program(self, number: int) -> list[str]:
        self.locals = [*"xyabcdmn"]
        start = [f"{name} = {self.random.choice(['0', 'x', 'A', '2'])}" for name in "abcdmn"]
        lines = [*start, *self.statements(), "return a, b, c, d, m, n, seen"]
        return [f"def f{number}(x, y, seen):", *("    " + line for line in lines), ""]


def test_random_programs_compute_the_same(tmp_path: Path) -> None:
    programs = Programs(20260)
    lines = ["A, B, C, P, Q = 3, 0, -1, True, False"]
    for number in range(PROGRAMS):
        lines += programs.program(number)
    path = tmp_path / "programs.py"
    path.write_text("\n".join(lines))
    module: dict[str, Any] = {"__name__": "programs"}
    exec(compile(path.read_text(), str(path), "exec"), module)
    shorter = 0
    for number in range(PROGRAMS):
        function = module[f"f{number}"]
        other = folded(function)
        assert other is not function
        shorter += len(other.__code__.co_code) < len(function.__code__.co_code)
        for x, y in ((0, 0), (1, 5), (-3, 2), (7, -8)):
            assert function(x, y, []) == other(x, y, []), number
    assert shorter > PROGRAMS * 3 // 4
