#!/usr/bin/env python3
"""Write what is made from registry.yaml: its contracts, checked, and the types of gradkern's public names, as editors
and type checkers see them.

    tools/stubs.py            write gradkern/contract/checked.py, gradkern/__init__.pyi and gradkern/results.pyi
    tools/stubs.py --check    exit with 1 where a file is not what it would be made

`run` and `prepare` get an overload for every operator, with its inputs, attributes and outputs, and one for the names
that `operators()` gives. There is none for a name that is any text: wrong arguments would fit that one, as a literal is
a str, too. Behind them, overloads that nothing fits make the errors short and say which inputs an operator takes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import gradkern
from gradkern import errors
from gradkern.contract import registry
from gradkern.contract.reading import read
from gradkern.contract.schema import Attribute, Entry, Input, Operator, Output

PACKAGE = ROOT / "gradkern"
_TEXT = registry.path().read_bytes()
WIDTH = 112
MADE = "# Made by tools/stubs.py from registry.yaml."
OPTIONS = {
    "provider": "_Provider | None = None",
    "stream": "Any = None",
    "policy": "Policy | _PolicyFields | None = None",
    "domain": "str | None = None",
    "version": "int | None = None",
}
"""Parameters of run and prepare that all operators share, after `outputs` and `out`."""


def main() -> int:
    """Write the stubs, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something would change")
    options = parser.parse_args()
    old: list[str] = []
    files = {"contract/checked.py": contracts()}
    files |= {name: _formatted(text) for name, text in (("__init__.pyi", public()), ("results.pyi", results()))}
    for name, made in files.items():
        path = PACKAGE / name
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            old.append(f"gradkern/{name}")
            if not options.check:
                path.write_text(made, encoding="utf-8")
    if options.check and old:
        print(f"{' and '.join(old)}: out of date; run tools/stubs.py", file=sys.stderr)
        return 1
    return 0


def contracts() -> str:
    """gradkern/contract/checked.py: the contracts that `reading` makes of registry.yaml, one on each line, and the
    digest of its text.
    """
    kinds = ", ".join(sorted(kind.__name__ for kind in Entry.__subclasses__()))
    lines = "".join(f"    {name!r}: {_source(each)},\n" for name, each in _operators().items())
    return (
        '"""The contracts of registry.yaml, checked. Made by tools/stubs.py."""\n\n# ruff: noqa: E501\n# fmt: off\n'
        f"from gradkern.contract.schema import {kinds}\n\n"
        f"DIGEST = {registry.digest(_TEXT)!r}\nOPERATORS = {{\n{lines}}}\n"
    )


def _source(value: Any) -> str:
    """What makes this value, of an entry without the fields that are as by default."""
    if isinstance(value, Entry):
        given = [(each, getattr(value, each.name)) for each in fields(value)]
        parts = (f"{field.name}={_source(each)}" for field, each in given if each != _default(field))
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, Mapping):
        named = cast(Mapping[str, Any], value)
        return f"{{{', '.join(f'{key!r}: {_source(each)}' for key, each in named.items())}}}"
    if isinstance(value, tuple):
        parts = [_source(each) for each in cast(tuple[Any, ...], value)]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(value)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _operators() -> Mapping[str, Operator]:
    """Not `gradkern.operators()`, which may be what is to be made anew."""
    return read(_TEXT.decode())


def results() -> str:
    """gradkern/results.pyi: what an array is, and a named tuple for every operator."""
    operators = _operators()
    variables = {variable for each in operators.values() for variable in _variables(each)}
    return "\n".join(
        [
            MADE,
            "from typing import Any, Generic, NamedTuple, Protocol, TypeAlias",
            "from typing_extensions import TypeVar",
            _PROTOCOLS,
            *(f'{name} = TypeVar("{name}", bound=Array, default=Any)' for name in sorted(variables)),
            "def result_type(operator: str, outputs: tuple[str, ...]) -> Any: ...",
            *(line for name, operator in operators.items() for line in _result(name, operator)),
        ]
    )


_PROTOCOLS = '''
class _Dlpack(Protocol):
    def __dlpack__(self, *, stream: Any = None) -> Any: ...

class _ArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> Any: ...

class _CudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

Array: TypeAlias = _Dlpack | _ArrayInterface | _CudaArrayInterface
"""What is taken as an array: NumPy's, PyTorch's, CuPy's, JAX's and whatever else has one of these."""
'''


def _result(name: str, operator: Operator) -> Iterator[str]:
    if any(each.variadic for each in operator.outputs):
        [output] = operator.outputs
        kind = f"{_variable(operator, output)} | Any"
        yield f"class {name}(tuple[{kind}, ...], {_generic('Generic', _variables(operator))}):"
        yield f'    """{output.doc}; the first by its name"""'
        yield f"    {output.name}: {kind}"
        return
    yield f"class {name}(NamedTuple, {_generic('Generic', _variables(operator))}):"
    yield '    """An output is None where it was not wanted. Type checkers take it for an array."""'
    for each in operator.outputs:
        if each.appended:
            yield "    @property"
            yield f"    def {each.name}(self) -> {_variable(operator, each)} | Any:"
            yield f'        """{each.doc}; where it was asked for"""'
            continue
        yield f"    {each.name}: {_variable(operator, each)} | Any"
        yield f'    """{each.doc}"""'


def public() -> str:
    """gradkern/__init__.pyi: the names of gradkern/__init__.py, with `run` and `prepare` for every operator."""
    operators = _operators()
    used = {variable for each in operators.values() for variable in _variables(each)}
    shapes = "\n".join(line for name, operator in operators.items() for line in _names(name, operator))
    plans = "\n".join(line for name, operator in operators.items() for line in _plan(name, operator))
    runs = "\n".join(line for name, operator in operators.items() for line in _overload("run", name, operator))
    prepares = "\n".join(line for name, operator in operators.items() for line in _overload("prepare", name, operator))
    return "\n".join(
        [
            MADE,
            "from collections.abc import Iterable, Iterator, Mapping, Sequence",
            "from typing import Any, Literal, TypeAlias, overload",
            "from typing_extensions import TypeVar",
            *_public_imports(),
            *(f"from gradkern import {name} as {name}" for name in vars(gradkern)["_MODULES"]),
            "from gradkern import results as _results",
            "from gradkern.policy import PolicyFields as _PolicyFields",
            "from gradkern.results import Array as _Array",
            f"__all__ = {gradkern.__all__!r}",
            f"_Provider: TypeAlias = {_literal(sorted({p for each in operators.values() for p in each.providers}))}",
            *(f'{name} = TypeVar("{name}", bound=_Array)' for name in sorted(used)),
            shapes,
            _OPERATORS,
            plans,
            *(line for name, operator in operators.items() for line in _takes(name, operator)),
            runs,
            *_overload_by_name("run", "Any"),
            *_overloads_for_errors("run", "Any"),
            prepares,
            *_overload_by_name("prepare", "Prepared"),
            *_overloads_for_errors("prepare", "Prepared"),
        ]
    )


_OPERATORS = '''
class _Name(str):
    """The name of an operator, when it is not written out: to type checkers, what `operators()` gives."""

class _ArgumentsDoNotFitTheOperator:
    """Stands in an error about a call that fits no operator."""

class _Operators(Mapping[_Name, Operator]):
    def __getitem__(self, name: str, /) -> Operator: ...
    def __iter__(self) -> Iterator[_Name]: ...
    def __len__(self) -> int: ...

def operators() -> _Operators:
    """The contract of every operator by name: a read-only mapping, sorted by name."""
'''


def _overload_by_name(function: str, returned: str) -> Iterator[str]:
    """For a name that `operators()` gave, whose arguments no type checker can know."""
    parameters = ["op: _Name", "*inputs: _Array", *_shared("str"), "**named: Any"]
    yield "@overload"
    yield f"def {function}({', '.join(parameters)}) -> {returned}: ..."


def _takes(name: str, operator: Operator) -> Iterator[str]:
    """A class whose name says in an error which inputs an operator takes."""
    yield f"class {_what_it_takes(name, operator)}: ..."


def _what_it_takes(name: str, operator: Operator) -> str:
    optional = [each.name for each in operator.inputs if each.optional]
    required = [each.name for each in operator.inputs if not each.optional]
    return "_" + "_".join([name, "takes", *required, *(["and_perhaps", *optional] if optional else [])])


def _overloads_for_errors(function: str, returned: str) -> Iterator[str]:
    """Of a call that fits no overload pyright shows the one that it fits best, the last where there are several: for
    each operator one that its name fits. mypy lists all overloads, hundreds of lines, unless there is one that fits but
    for the arguments of generic types: a str is a Sequence, not of these.
    """
    for name, operator in _operators().items():
        takes = _what_it_takes(name, operator)
        yield "@overload"
        yield f'def {function}(op: Literal["{name}"], input: {takes}, /, *inputs: Any, **named: Any) -> {returned}: ...'
    yield "@overload"
    yield f"def {function}(op: Sequence[_ArgumentsDoNotFitTheOperator], *inputs: Any, **named: Any) -> {returned}: ..."


def _public_imports() -> Iterator[str]:
    """Of the public names, but for what is typed here, and of the version."""
    yield f"from gradkern.errors import {', '.join(errors.__all__)}"
    yield "from gradkern.policy import Policy, policy"
    yield "from gradkern.version import __version__ as __version__"
    for name, module in vars(gradkern)["_LATER"].items():
        if name not in ("run", "prepare", "operators"):
            yield f"from gradkern.{module} import {name}"


def _names(name: str, operator: Operator) -> Iterator[str]:
    several = any(each.variadic for each in operator.outputs)
    yield f"_{name}Output: TypeAlias = {'str' if several else _literal(each.name for each in operator.outputs)}"


def _plan(name: str, operator: Operator) -> Iterator[str]:
    """A prepared plan, which is called with the inputs alone."""
    yield f"class _{name}Plan(Prepared):"
    named = [] if operator.variadic is not None else ["*"]
    parameters = [
        *_inputs(operator),
        *named,
        f"out: Mapping[_{name}Output, _Array] | None = None",
        "stream: Any = None",
    ]
    yield f"    def __call__(self, {', '.join(parameters)}) -> {_returns(name, operator)}: ..."


def _overload(function: str, name: str, operator: Operator) -> Iterator[str]:
    plan = function == "prepare"
    parameters = [
        f'op: Literal["{name}"]',
        *_inputs(operator, typed=not plan),
        *([] if operator.variadic is not None else ["*"]),
        *(_attribute(each, attribute) for each, attribute in _named(operator).items()),
        *_shared(f"_{name}Output"),
    ]
    yield "@overload"
    yield f"def {function}({', '.join(parameters)}) -> {f'_{name}Plan' if plan else _returns(name, operator)}:"
    yield from _indented('"""The plan for such a call of `run`, without making it."""' if plan else _doc(operator))


def _shared(output: str) -> Iterator[str]:
    """The parameters that all operators have; `output` is the type of an output's name."""
    yield f"outputs: {output} | Iterable[{output}] | None = None"
    yield f"out: Mapping[{output}, _Array] | None = None"
    yield from (f"{option}: {annotated}" for option, annotated in OPTIONS.items())


def _doc(operator: Operator) -> str:
    named = [*((each.name, each.doc) for each in operator.inputs)]
    named += [(name, attribute.doc) for name, attribute in _named(operator).items()]
    lines = [textwrap.fill(operator.doc, WIDTH), "", *(_item(*each) for each in named), "", "Returns"]
    lines += [_item(each.name, each.doc if each.default else f"{each.doc}; on request") for each in operator.outputs]
    return '"""' + "\n".join(lines) + '\n"""'


def _item(name: str, doc: str) -> str:
    return textwrap.fill(f"{name}: {doc}", WIDTH, initial_indent="  ", subsequent_indent="      ")


def _indented(text: str) -> Iterator[str]:
    yield textwrap.indent(text, "    ")


def _named(operator: Operator) -> dict[str, Attribute]:
    """The attributes that are parameters of their own; the others are an input's, which may be a number."""
    names = {each.name for each in operator.inputs}
    return {name: attribute for name, attribute in operator.attributes.items() if name not in names}


def _inputs(operator: Operator, typed: bool = True) -> Iterator[str]:
    for each in operator.inputs:
        kind = _input_type(operator, each) if typed else "_Array"
        if each.memory != "device":
            types = {row[each.type] for row in operator.combinations}
            number = "float" if any("float" in name for name in types) else "bool" if types == {"bool"} else "int"
            kind = f"{kind} | {number if each.is_scalar else f'Sequence[{number}]'}"
        if each.variadic:
            yield f"*{each.name}: {kind}"
        else:
            yield f"{each.name}: {kind} | None = None" if each.optional else f"{each.name}: {kind}"


def _input_type(operator: Operator, each: Input) -> str:
    """The type variable of the contract, where an output has it, too."""
    return f"_{each.type}" if f"_{each.type}" in _variables(operator) else "_Array"


def _attribute(name: str, attribute: Attribute) -> str:
    match attribute.type:
        case "int" | "float":
            kind = _literal(attribute.allowed) if attribute.allowed else attribute.type
        case "ints" | "floats":
            kind = f"Sequence[{attribute.type.removesuffix('s')}]"
        case "string":
            kind = _literal(attribute.allowed) if attribute.allowed else "str"
        case "type":
            kind = "Any"
    if attribute.required:
        return f"{name}: {kind}"
    if attribute.default is None or attribute.type in ("ints", "floats", "type"):
        return f"{name}: {kind} = None" if kind == "Any" else f"{name}: {kind} | None = None"
    return f"{name}: {kind} = {attribute.default!r}"


def _returns(name: str, operator: Operator) -> str:
    return _generic(f"_results.{name}", _variables(operator))


def _variables(operator: Operator) -> list[str]:
    """The type variables of a result, in the order of the outputs."""
    return list(dict.fromkeys(_variable(operator, each) for each in operator.outputs))


def _variable(operator: Operator, output: Output) -> str:
    """That of the contract; where no input has it, that of the input the output is like, or of the first."""
    types = {each.name: each.type for each in operator.inputs}
    like = output.like or operator.data.name
    return f"_{output.type if output.type in types.values() else types[like]}"


def _generic(name: str, variables: list[str]) -> str:
    return f"{name}[{', '.join(variables)}]"


def _literal(names: Iterable[str | int]) -> str:
    quoted = ", ".join(f'"{name}"' if isinstance(name, str) else str(name) for name in names)
    return f"Literal[{quoted}]"


def _formatted(text: str) -> str:
    """As the project's other files: imports sorted, lines broken."""
    for command in (["check", "--select", "I", "--fix", "--exit-zero", "--quiet"], ["format", "--quiet"]):
        program = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(PACKAGE / "made.pyi"), "-"]
        text = subprocess.run(program, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
