"""`gradkern ops`: the operators that match, as a list, whole, or as JSON. tools/list_ops.py is the same command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shutil import get_terminal_size
from textwrap import shorten, wrap
from typing import Any, cast

from gradkern.cli import DONE, FAILED, print_json
from gradkern.contract import registry
from gradkern.contract.schema import Attribute, Axis, Entry, Flat, Input, Ones, Operator, Output, Shape, names_of
from gradkern.errors import ArgumentError, unknown, unknown_operator
from gradkern.system.providers import unavailable


def run(options: argparse.Namespace) -> int:
    """List the operators that match."""
    every = registry.operators()
    strange = [name for name in options.name if name not in every]
    for name in strange:
        print(unknown_operator(name, every), file=sys.stderr)
    if strange:
        return FAILED
    require_known("provider", options.provider, (each for operator in every.values() for each in operator.providers))
    require_known("type", options.types, (each for operator in every.values() for each in operator.data_types))
    chosen = {
        name: operator
        for name, operator in every.items()
        if (not options.name or name in options.name)
        and (options.provider is None or options.provider in operator.providers)
        and (options.types is None or options.types in operator.data_types)
    }
    if options.json:
        entries = [
            {"name": name, **_plain(operator), "available": _available(operator)} for name, operator in chosen.items()
        ]
        print_json(operators=entries)
    elif chosen and options.name:
        print("\n\n".join(_whole(name, operator) for name, operator in chosen.items()))
    elif chosen:
        print("\n".join(_list(chosen)))
    if not chosen:
        print("no operator matches", file=sys.stderr)
        return FAILED
    return DONE


def require_known(what: str, name: str | None, known: Iterable[str]) -> None:
    """Raise ArgumentError unless the name, if there is one, is known."""
    known = [*known]
    if name is not None and name not in known:
        raise ArgumentError(unknown(what, name, known))


def _available(operator: Operator) -> dict[str, Any]:
    return {
        name: {"available": unavailable(name) is None, "reason": unavailable(name), "modules": list(modules)}
        for name, modules in operator.providers.items()
    }


def _width() -> int:
    """Columns of the terminal, or of COLUMNS; 80 where the output is no terminal."""
    return max(40, get_terminal_size().columns)


def _list(chosen: Mapping[str, Operator]) -> list[str]:
    """A line for each operator, as long as the terminal is wide."""
    first = max(map(len, chosen))
    return [
        f"{name:<{first}}  {shorten(each.doc, _width() - first - 2, placeholder=' ...')}"
        for name, each in chosen.items()
    ]


def _whole(name: str, operator: Operator) -> str:
    lines = wrapped("", f"{name}  ({operator.domain}, since version {operator.since_version})", 2)
    lines += wrapped("  ", operator.doc, 2)
    for title, rows in sections(operator).items():
        lines += _section(title, rows)
    providers = [(key, "", unavailable(key) or "available") for key in operator.providers]
    return "\n".join([*lines, *_section("providers", providers)])


def sections(operator: Operator) -> dict[str, list[tuple[str, str, str]]]:
    """A contract part by part: rows of a name, what it may be, and what it is."""
    combinations = [", ".join(f"{key}={value}" for key, value in row.items()) for row in operator.combinations]
    return {
        "inputs": [_tensor(each) for each in operator.inputs],
        "outputs": [_tensor(each) for each in operator.outputs],
        "attributes": [(key, _attribute(each), each.doc) for key, each in operator.attributes.items()],
        "types": [(key, "", doc) for key, doc in operator.types.items()],
        "combinations": [(each, "", "") for each in combinations],
        "axes": [(key, _axis(each), each.doc) for key, each in operator.axes.items()],
        "in place": _in_place(operator),
    }


def _section(title: str, rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """The rows in columns where the terminal is wide enough, else what each is below its name."""
    if not rows:
        return []
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"    {a.ljust(first)}  {b.ljust(second)}  {c}".rstrip() for a, b, c in rows]
    if max(map(len, lines)) > _width():
        parts = ((wrapped("    ", f"{a}  {b}", 6), wrapped("      ", c, 6)) for a, b, c in rows)
        lines = [line for part in parts for each in part for line in each]
    return [f"  {title}", *lines]


def wrapped(start: str, text: str, indent: int) -> list[str]:
    """The text behind `start` in lines as long as the terminal is wide; words such as paths stay whole."""
    return wrap(
        text,
        _width(),
        initial_indent=start,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _axis(each: Axis) -> str:
    return ("group" if each.group else "axis") + ("" if each.equals is None else f" of {each.equals}")


def _in_place(operator: Operator) -> list[tuple[str, str, str]]:
    pairs = [(f"{source} -> {target}", "", "") for each in operator.in_place for source, target in each.items()]
    return pairs + [(f"{each.alias} -> {each.name}", "always", "") for each in operator.outputs if each.alias]


def _tensor(each: Input | Output) -> tuple[str, str, str]:
    if isinstance(each, Output) and each.like is not None:
        shape = f"as {each.like}"
    else:
        shapes = each.shapes if isinstance(each, Input) else (each.shape or (),)
        shape = " or ".join(_shape(shape) for shape in shapes)
    if isinstance(each, Input) and each.gives is not None:
        shape = f"the shape {_shape(each.gives)}"
    for name, chosen in each.where.items():
        shape += "".join(f"; {_shape(other)} where {name} is {value}" for value, other in chosen.items())
    notes: list[str] = ["any number"] if each.variadic else []
    if isinstance(each, Input):
        notes += _meaning(each)
    if each.optional:
        notes.append("optional")
    if isinstance(each, Output) and not each.default:
        notes.append("on request")
    return f"{each.name}:{each.type}", shape, each.doc + (f" ({', '.join(notes)})" if notes else "")


def _meaning(each: Input) -> Iterator[str]:
    """Where an input is, and what its elements are."""
    if each.memory != "device":
        yield "in the host's memory" if each.memory == "host" else "in the memory of the host or the device"
    if each.index_of:
        along = "" if each.along is None else f" along {each.along}"
        negative = ", those below 0 from its end on" if each.negative else ""
        yield f"index into {' x '.join(each.index_of)}{along}{negative}"
    if each.values != "any":
        yield each.values.replace("_", " ")


def _shape(shape: Shape) -> str:
    return "(" + ", ".join(_token(token) for token in shape) + ")"


def _token(token: Any) -> str:
    if isinstance(token, Ones):
        return f"1 for each of {token.ones}"
    return f"product of {token.flat}" if isinstance(token, Flat) else token


def _attribute(each: Attribute) -> str:
    words = [each.type]
    if each.required:
        words.append("required")
    if each.default is not None:
        words.append(f"default {each.default}")
    if each.allowed:
        words.append(f"one of {', '.join(map(str, each.allowed))}")
    if each.minimum is not None:
        words.append(f"at least {each.minimum}")
    if each.below is not None:
        words.append(f"below {each.below}")
    return ", ".join(words)


def _plain(value: Any) -> Any:
    """Contract data as JSON has it."""
    if isinstance(value, Entry):
        return {key: _plain(getattr(value, key)) for key in names_of(type(value))}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in cast(Mapping[str, Any], value).items()}
    return [_plain(each) for each in cast(tuple[Any, ...], value)] if isinstance(value, tuple) else value
