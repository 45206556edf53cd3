"""Whatever is written in registry.yaml, loading it gives usable contracts or a clean refusal, in bounded time."""

import contextlib
import io
import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gradkern import cli
from gradkern.contract import reading, registry
from gradkern.contract.binder import Binder
from gradkern.contract.schema import Operator
from gradkern.errors import RegistryError

TEXT = registry.path().read_text(encoding="utf-8")
DATA = YAML(typ="safe", pure=True).load(TEXT)
MISTAKE = re.compile(r"registry\.yaml:([0-9]+): [^\n]+: [^\n]+")

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore::ruamel.yaml.error.ReusedAnchorWarning")]
bounded = settings(deadline=timedelta(seconds=10))


def assert_refused_cleanly_or_usable(text: str) -> None:
    try:
        loaded = reading.read(text)
    except RegistryError as error:
        for line in str(error).split("\n"):
            match = MISTAKE.fullmatch(line)
            assert match is not None, line
            assert 1 <= int(match[1]) <= len(re.split("\r\n|[\n\r\x85\u2028\u2029]", text)), line
    else:
        assert_usable(loaded)


def assert_usable(loaded: Mapping[str, Operator]) -> None:
    """The command line shows it in each of its forms, and the dispatcher can take its names."""
    with (
        mock.patch.object(registry, "operators", return_value=loaded),
        contextlib.redirect_stdout(io.StringIO()) as out,
    ):
        assert cli.main(["ops"]) == cli.DONE
        assert cli.main(["ops", *loaded]) == cli.DONE
        out.truncate(out.seek(0))
        assert cli.main(["ops", "--json"]) == cli.DONE
    assert [entry["name"] for entry in json.loads(out.getvalue())["operators"]] == list(loaded)
    for name, operator in loaded.items():
        Binder(name, operator)


# --- the text --------------------------------------------------------------------------------------------------------

SIGNS = ":,-?{}[]'\"#|>%@`!~\n\t é𝛁\u2028\ufeff\0"
WORDS = [
    ": ", "- ", "  ", "---", "...", "<<: ", "!!int ", "*none", "*layer_norm_types", "&new ", "&layer_norm_types ",
    "null", "true", ".nan", "-.inf", "1e400", "0x10", "0o7", "1_000", "2025-02-30", "9" * 5000, "%YAML 1.1\n---\n",
]  # fmt: skip
JUNK = st.sampled_from([*SIGNS, *WORDS])
place = st.integers(0, 2**16)


def cut(lines: list[str], one: int, two: int, junk: str) -> None:
    del lines[one : one + two % 4 + 1]


def double(lines: list[str], one: int, two: int, junk: str) -> None:
    lines.insert(two, lines[one])


def swap(lines: list[str], one: int, two: int, junk: str) -> None:
    lines[one], lines[two] = lines[two], lines[one]


def insert(lines: list[str], one: int, two: int, junk: str) -> None:
    column = two % (len(lines[one]) + 1)
    lines[one] = lines[one][:column] + junk + lines[one][column:]


def overwrite(lines: list[str], one: int, two: int, junk: str) -> None:
    words = list(re.finditer(r"[\w.-]+", lines[one]))
    if words:
        word = words[two % len(words)]
        lines[one] = lines[one][: word.start()] + junk + lines[one][word.end() :]


def indent(lines: list[str], one: int, two: int, junk: str) -> None:
    lines[one] = " " * (two % 9) + lines[one].lstrip()


EDITS = st.sampled_from([cut, double, swap, insert, overwrite, indent])


HEAD, *ENTRIES = re.split(r"\n(?=  \w+:)", TEXT[TEXT.index("schema:") :])
ANCHORS = {name: number for number, entry in enumerate(ENTRIES) for name in re.findall(r"&(\w+)", entry)}
some_operators = st.sets(st.integers(0, len(ENTRIES) - 1), min_size=1, max_size=3)


def with_their_anchors(operators: set[int]) -> list[str]:
    """The registry's lines of these operators, and of those that define what they refer to."""
    taken: set[int] = set()
    wanted = set(operators)
    while wanted:
        taken.add(number := wanted.pop())
        wanted |= {ANCHORS[name] for name in re.findall(r"\*(\w+)", ENTRIES[number]) if name in ANCHORS} - taken
    return "\n".join([HEAD, *(ENTRIES[number] for number in sorted(taken))]).splitlines()


def test_operators_with_their_anchors_are_a_registry() -> None:
    name = list(DATA["operators"]).index
    chosen = {name("ConvTransposeGrad"), name("SkipLayerNormalization"), name("GroupNormGrad")}
    operators = reading.read("\n".join(with_their_anchors(chosen)))
    assert {"ConvTransposeGrad", "SkipLayerNormalization", "GroupNormGrad"} <= operators.keys()
    assert len(operators) < len(ENTRIES) == len(DATA["operators"])


@bounded
@given(some_operators, st.lists(st.tuples(EDITS, place, place, JUNK), min_size=1, max_size=3))
def test_edited_text_is_refused_cleanly_or_usable(
    operators: set[int], edits: list[tuple[Callable[..., None], int, int, str]]
) -> None:
    lines = with_their_anchors(operators)
    for edit, one, two, junk in edits:
        edit(lines, one % len(lines), two % len(lines) if edit in (double, swap) else two, junk)
    assert_refused_cleanly_or_usable("\n".join(lines))


@bounded
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_is_refused_cleanly(text: str) -> None:
    assert_refused_cleanly_or_usable(text)
    assert_refused_cleanly_or_usable(f"schema: 1\noperators:\n  A: {text}")


# --- the structure ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(
    ["T", "V", "X", "dY", "rows", "columns", "spatial", "axis", "out", "class", "float32", "cpu", "Y\n", ""]
)
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.integers() | st.floats() | st.text(max_size=5) | NAMES
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=3)
)


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """One operator of the registry with one to three of its parts deleted, renamed, replaced, doubled or moved."""
    name = draw(st.sampled_from(sorted(DATA["operators"])))
    mutant = json.loads(json.dumps({"schema": 1, "operators": {name: DATA["operators"][name]}}))
    for _ in range(draw(st.integers(1, 3))):
        parts = list(containers(mutant["operators"]))
        if not parts:
            break
        mutate(draw, draw(st.sampled_from(parts)), parts)
    return mutant


def containers(node: Any) -> list[Any]:
    """Every mapping and list with something in it."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return ([node] if inner else []) + [each for part in inner for each in containers(part)]


def mutate(draw: st.DrawFn, part: Any, parts: list[Any]) -> None:
    key = draw(st.sampled_from(sorted(part))) if isinstance(part, dict) else draw(st.integers(0, len(part) - 1))
    what = draw(st.sampled_from(["delete", "rename", "replace", "double", "move"]))
    if what == "delete":
        del part[key]
    elif what == "replace":
        part[key] = draw(values)
    elif what == "move":  # a copy, so that no part comes to hold itself
        part[key] = json.loads(json.dumps(draw(st.sampled_from(parts))))
    elif isinstance(part, dict):
        value = part.pop(key) if what == "rename" else part[key]
        part[draw(NAMES | st.sampled_from(sorted(DATA["operators"]["ConvGrad"])))] = value
    else:
        part.insert(draw(st.integers(0, len(part))), part[key])


@bounded
@given(mutants())
def test_mutated_structure_is_refused_cleanly_or_usable(mutant: dict[str, Any]) -> None:
    assert_refused_cleanly_or_usable(json.dumps(mutant, indent=1))


@pytest.mark.parametrize("depth", [1, 30, 300, 3000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ("{a: ", "}")])
def test_any_depth_is_refused_cleanly(opened: str, closed: str, depth: int) -> None:
    text = f"schema: {opened * depth}{closed * depth}"
    assert_refused_cleanly_or_usable(text)
    if depth == 3000:
        with pytest.raises(RegistryError, match=r"^registry\.yaml:1: registry: is nested too deeply$"):
            reading.read(text)


@pytest.mark.parametrize(
    "tag", ["int", "float", "bool", "null", "timestamp", "binary", "str", "set", "omap", "unknown"]
)
@pytest.mark.parametrize("text", ["", "x", "-", "_", ".", "2020-13-45", "yes"])
def test_a_tag_that_does_not_fit_its_text_is_refused_cleanly(tag: str, text: str) -> None:
    assert_refused_cleanly_or_usable(f"schema: !!{tag} {text}")
    assert_refused_cleanly_or_usable(f"schema: 1\noperators: {{!!{tag} {text or '~'}: {{}}}}")


@settings(bounded, max_examples=10)
@given(st.integers(1, 12), st.integers(1, 12))
def test_aliases_of_aliases_take_bounded_time(levels: int, width: int) -> None:
    lines = ["l0: &l0 [x]", *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * width)}]" for n in range(1, levels))]
    operator = json.dumps(DATA["operators"]["LayerNormalizationGrad"])
    text, replaced = re.subn(r'"family": "\w+"', f'"family": *l{levels - 1} ', operator, count=1)
    assert replaced
    lines += ["schema: 1", "operators:", f"  LayerNormalizationGrad: {text}"]
    assert_refused_cleanly_or_usable("\n".join(lines))
