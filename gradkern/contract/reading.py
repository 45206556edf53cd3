"""The text of registry.yaml made into contracts. A bad one is refused with every mistake, as registry.yaml:LINE: path:
reason.
"""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, core_schema
from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode

from gradkern.contract.consistency import mistakes
from gradkern.contract.examples import complete
from gradkern.contract.schema import Entry, Operator
from gradkern.errors import RegistryError

SCHEMA = 1
_MOST_NODES = 100_000
"""Aliases can make a small file stand for an endless one; the real registry has about 2500 nodes."""
Where = tuple[str | int, ...]
Lines = dict[Where, int]
Report = Callable[[Where, str], None]
E = TypeVar("E", bound=Entry)


# --- checks beside a value's type -----------------------------------------------------------------------------------


def _one_of(schema: Any, expected: str) -> Any:
    """Refuses what is no member of a union in one sentence, where pydantic has one for every member."""

    def choose(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("choice", "expected {expected}", {"expected": expected}) from None

    if schema["type"] == "union":  # whose members are strict by themselves; strict, it takes no mapping for an entry
        schema = {**schema, "strict": False}
    return core_schema.no_info_wrap_validator_function(choose, schema)


def _some(schema: Any) -> Any:
    """For a list or mapping that may not be empty; min_length counts only the valid items and complains twice."""

    def some(value: Any) -> Any:
        if not value:
            raise PydanticCustomError("empty", "needs at least one")
        return value

    return core_schema.no_info_after_validator_function(some, schema)


def _with(key: str) -> Callable[[Any, Any], Any]:
    """A check that pydantic's core has itself, by its key in a schema."""
    return lambda schema, value: {**schema, key: value}


CHECKS: Mapping[str, Callable[..., Any]] = {
    "at_least": _with("ge"),
    "matches": _with("pattern"),
    "min_length": _with("min_length"),
    "one_of": _one_of,
    "some": _some,
}
"""By the names that `schema.Check` has: what makes a schema of pydantic's core check more."""


# --- the file -------------------------------------------------------------------------------------------------------


def _has_folder(family: str) -> bool:
    """Whether a family of operators has code: a package in gradkern/ops."""
    found = find_spec(f"gradkern.ops.{family}")
    return found is not None and found.origin is not None


def read(
    text: str, name: str = "registry.yaml", has_folder: Callable[[str], bool] = _has_folder
) -> Mapping[str, Operator]:
    """Contracts from the text of a registry file; has_folder says whether there is code for a family.

    Raises RegistryError, whose message has one line `name:LINE: path: reason` for every mistake.
    """
    found: list[tuple[int, str, str]] = []
    lines: Lines = {}

    def report(where: tuple[str | int, ...], reason: str) -> None:
        found.append((_line(lines, where), _path(where), reason))

    try:
        data = _plain(text, lines, report)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RegistryError(f"{name}:{line}: registry: {problem}") from error
    except RecursionError as error:
        raise RegistryError(f"{name}:1: registry: is nested too deeply") from error
    result = _operators(data, report, has_folder)
    if found:
        raise RegistryError("\n".join(f"{name}:{line}: {where}: {reason}" for line, where, reason in sorted(found)))
    return MappingProxyType(dict(sorted(result.items())))


def _operators(data: Any, report: Report, has_folder: Callable[[str], bool]) -> dict[str, Operator]:
    result: dict[str, Operator] = {}
    if not isinstance(data, dict):
        report((), "expected a mapping with schema and operators")
        return result
    file = cast(dict[Any, Any], data)
    for key in file.keys() - {"schema", "operators"}:
        report((key,), "unknown key; expected schema and operators")
    if type(schema := file.get("schema")) is not int or schema != SCHEMA:
        report(("schema",), f"is {schema!r}; this gradkern reads schema {SCHEMA}")
    listed: Any = file.get("operators")
    if not isinstance(listed, dict) or not listed:
        report(("operators",), "expected a mapping of operators, at least one")
        return result
    entries = cast(dict[Any, Any], listed)
    for name, entry in entries.items():
        if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            report(("operators", name), "an operator's name is letters, digits and _, and no word of Python")
            continue
        entry, rows = _written_out(entry)
        found: list[tuple[Where, str]] = []
        try:
            operator = checked(Operator, entry)
        except EntryError as error:
            found += error.mistakes
        else:
            if not has_folder(operator.family):
                found.append((("family",), f"there is no folder gradkern/ops/{operator.family}"))
            found += mistakes(operator)
            result[name] = operator if found else completed(operator)
        for where, reason in found:
            if where[:1] == ("combinations",) and len(where) > 1 and rows:
                where = ("combinations", rows[cast(int, where[1])], *where[2:])
            report(("operators", name, *where), reason)
    return result


def _written_out(entry: Any) -> tuple[Any, list[int]]:
    """An entry with a combination for each type of a list in one, and a shape for inputs that give one; and for each
    combination the number of the row that it is from.
    """
    if not isinstance(entry, dict):
        return entry, []
    plain = cast(dict[str, Any], entry)
    inputs = tuple({"shape": (), **each} if "gives" in each else each for each in _mappings(plain.get("inputs")))
    every: list[Any] = []
    rows: list[int] = []
    for number, row in enumerate(_mappings(plain.get("combinations"))):
        lists: list[tuple[Any, ...]] = [each if isinstance(each, tuple) and each else (each,) for each in row.values()]
        found = [dict(zip(row, each, strict=True)) for each in itertools.product(*lists)]
        every += found
        rows += [number] * len(found)
    changed = {"inputs": inputs} if inputs else {}
    return {**plain, **changed, **({"combinations": tuple(every)} if every else {})}, rows


def _mappings(value: Any) -> tuple[dict[Any, Any], ...]:
    """The parts of a list of mappings; none of anything else: the check reports that."""
    parts = cast(tuple[Any, ...], value) if isinstance(value, tuple) else ()
    return parts if all(isinstance(each, dict) for each in parts) else ()


def completed(operator: Operator) -> Operator:
    """The operator whose examples have all axes, and among their attributes the shapes that inputs give."""
    return replace(
        operator,
        examples=tuple(complete(operator, each) for each in operator.examples),
        benchmarks=tuple(complete(operator, each) for each in operator.benchmarks),
    )


class EntryError(ValueError):
    """An entry that is none: of every mistake where it is, and the reason."""

    def __init__(self, mistakes: list[tuple[Where, str]]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes


def checked(kind: type[E], data: Any) -> E:
    """An entry made of plain data. Raises EntryError for keys, types and values that it may not have."""
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        found: list[tuple[Where, str]] = []
        for each in error.errors(include_url=False):
            where = each["loc"][:-1] if each["loc"][-1:] == ("[key]",) else each["loc"]
            found.append((where, _reason(each)))
        raise EntryError(found) from None


@cache
def _adapter(kind: type[E]) -> TypeAdapter[E]:
    return TypeAdapter(kind)


def _reason(error: Any) -> str:
    kind = error["type"]
    if kind in ("unexpected_keyword_argument", "invalid_key"):
        return "unknown key"
    if kind == "missing":
        return "is missing"
    text = "expected a mapping" if kind == "dataclass_type" else error["msg"][:1].lower() + error["msg"][1:]
    return f"{text}, got {_short(error['input'])}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(text: str, lines: Lines, report: Report) -> Any:
    """The file as tuples, dicts and scalars, with the line of every part noted and every repeated key reported."""
    yaml: Any = YAML(typ="safe", pure=True)  # ruamel.yaml's nodes and marks have no types
    root = yaml.compose(text)
    budget = _MOST_NODES

    def scalar(node: Any) -> Any:
        try:
            value = yaml.constructor.construct_object(node)
            if isinstance(value, int) and value.bit_length() > 64:
                raise ValueError("a whole number of more than 64 bits")
            if not isinstance(value, str | int | float | bytes | date | None):  # a tag made a set of it, say
                raise TypeError
        except ValueError as error:  # or a day that no month has
            raise MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error
        except (LookupError, TypeError, AttributeError) as error:  # of the parser, where a tag does not fit the text
            problem = f"{_short(node.value)} is no {node.tag.rpartition(':')[2]}"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
        return value

    def build(node: Any, where: tuple[str | int, ...], above: tuple[int, ...]) -> Any:
        nonlocal budget
        budget -= 1
        if budget < 0 or id(node) in above:
            raise YAMLError("aliases make the file endless")
        lines.setdefault(where, node.start_mark.line + 1)
        above, parts = (*above, id(node)), cast(list[Any], node.value)
        if isinstance(node, MappingNode):
            result: dict[Any, Any] = {}
            for key_node, value_node in parts:
                line = key_node.start_mark.line + 1
                if isinstance(key_node, MappingNode | SequenceNode):
                    report(where, "a key is a list or a mapping; expected a name")
                    continue
                key = scalar(key_node)
                if key in result:
                    lines[*where, key] = line
                    report((*where, key), "is there twice")
                    continue
                result[key] = build(value_node, (*where, key), above)
                lines[*where, key] = line
            return result
        if isinstance(node, SequenceNode):
            return tuple(build(each, (*where, index), above) for index, each in enumerate(parts))
        return scalar(node)

    return None if root is None else build(root, (), ())


def _path(where: tuple[str | int, ...]) -> str:
    """The parts of a path with dots between them; a key that would not stay on one line is quoted."""
    names = [str(part) for part in where]
    return ".".join(name if name.isprintable() else repr(name) for name in names) or "registry"


def _line(lines: Lines, where: tuple[str | int, ...]) -> int:
    """The line of a part, or of the nearest part around it that is in the file."""
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where, 1)
