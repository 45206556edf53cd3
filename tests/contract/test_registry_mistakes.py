"""Every kind of mistake in a registry file is refused with its line, its path and the reason; all mistakes at once."""

# ruff: noqa: E501  a table: one mistake, one line

from typing import Any

import pytest

from gradkern.contract import reading
from gradkern.errors import RegistryError

MINIMAL = """\
schema: 1
operators:
  Sum:
    domain: test
    since_version: 1
    family: sums
    doc: a sum
    types: {T: data, U: parameters}
    combinations:
      - {T: float32, U: float32}
      - {T: float16, U: float32}
    axes:
      rows: {doc: all but the last, group: true}
      columns: {doc: the last}
    inputs:
      - {name: X, type: T, shape: [rows, columns], doc: data}
      - {name: B, type: U, shape: [columns], doc: bias}
    outputs:
      - {name: Y, type: T, like: X, doc: sum}
      - {name: Z, type: U, shape: [columns], doc: sums of columns}
    attributes:
      axis: {type: int, default: -1, minimum: -8, axis_of: X, doc: where to sum}
      mode: {type: string, default: all, allowed: [all, some], doc: what to sum}
      steps: {type: ints, per: rows, doc: steps}
    in_place:
      - {X: Y}
    providers:
      cpu: [cpu]
    examples:
      - {axes: {rows: [2], columns: 3}, attributes: {mode: some}}
    benchmarks:
      - {axes: {rows: [2], columns: 3}}
"""


def load(text: str, name: str = "registry.yaml") -> Any:
    """As the registry is read where there is code for one family."""
    return reading.read(text, name, has_folder=lambda family: family == "sums")


def mistakes(text: str) -> list[str]:
    with pytest.raises(RegistryError) as caught:
        load(text)
    return str(caught.value).splitlines()


def changed(*pairs: tuple[str, str]) -> str:
    """The minimal registry with pieces of its text replaced, each of which is there exactly once."""
    text = MINIMAL
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_the_minimal_registry_is_a_good_one() -> None:
    assert list(load(MINIMAL)) == ["Sum"]


def test_the_type_of_an_optional_input_may_follow_from_others() -> None:
    assert list(load(changed((B, B.replace("doc:", "optional: true, doc:"))))) == ["Sum"]


X = "{name: X, type: T, shape: [rows, columns], doc: data}"
B = "{name: B, type: U, shape: [columns], doc: bias}"
Y = "{name: Y, type: T, like: X, doc: sum}"
Z = "{name: Z, type: U, shape: [columns], doc: sums of columns}"
AXIS = "{type: int, default: -1, minimum: -8, axis_of: X, doc: where to sum}"
MODE = "{type: string, default: all, allowed: [all, some], doc: what to sum}"
STEPS = "{type: ints, per: rows, doc: steps}"
TYPES = "'float16', 'bfloat16', 'float32', 'float64', 'int32', 'int64', 'uint8', 'uint32' or 'bool'"
TOKEN = "the name of an axis, {ones: GROUP} or {flat: GROUP}"
SIZES = "a size or a list of sizes, 0 or more"

BAD = {
    # the file
    "an empty file": (MINIMAL, "", "1: registry: expected a mapping with schema and operators"),
    "a list": (MINIMAL, "- 1", "1: registry: expected a mapping with schema and operators"),
    "no YAML": ("doc: a sum", "doc: 'a sum", "33: registry: found unexpected end of stream"),
    "a NUL": ("doc: a sum", "doc: \0", "1: registry: unacceptable character #x0000: special characters are not allowed"),
    "an undefined alias": ("{X: Y}", "*here", "26: registry: found undefined alias 'here'"),
    "an unknown tag": ("family: sums", "family: !!python/name:os.system ''", "6: registry: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'"),
    "a list as key": ("{X: Y}", "{[X]: Y}", "26: operators.Sum.in_place.0: a key is a list or a mapping; expected a name"),
    "an impossible date": ("family: sums", "family: 2025-02-30", "6: registry: day is out of range for month"),
    "a huge number": ("default: -1", f"default: {2**70}", "22: registry: a whole number of more than 64 bits"),
    # top level
    "an unknown top-level key": ("schema: 1", "schema: 1\nsheme: 1", "2: sheme: unknown key; expected schema and operators"),
    "a schema of another type": ("schema: 1", "schema: 1.0", "1: schema: is 1.0; this gradkern reads schema 1"),
    "a schema that is a text": ("schema: 1", "schema: '1'", "1: schema: is '1'; this gradkern reads schema 1"),
    "a family without a folder": ("family: sums", "family: products", "6: operators.Sum.family: there is no folder gradkern/ops/products"),
    "another schema": ("schema: 1", "schema: 2", "1: schema: is 2; this gradkern reads schema 1"),
    "no schema": ("schema: 1", "# schema", "2: schema: is None; this gradkern reads schema 1"),
    "no operators": (MINIMAL, "schema: 1\noperators: {}", "2: operators: expected a mapping of operators, at least one"),
    "operators as a list": (MINIMAL, "schema: 1\noperators: [Sum]", "2: operators: expected a mapping of operators, at least one"),
    "a bad operator name": ("  Sum:", "  a sum:", "3: operators.a sum: an operator's name is letters, digits and _, and no word of Python"),
    "a word of Python as operator": ("  Sum:", "  class:", "3: operators.class: an operator's name is letters, digits and _, and no word of Python"),
    "an operator that is no mapping": (MINIMAL, "schema: 1\noperators:\n  Sum: 3", "3: operators.Sum: expected a mapping, got 3"),
    # keys
    "an unknown key": ("    family: sums", "    family: sums\n    familiy: sums", "7: operators.Sum.familiy: unknown key"),
    "an unknown key deep inside": (X, X.replace("doc: data", "doc: data, docs: x"), "16: operators.Sum.inputs.0.docs: unknown key"),
    "a missing key": ("    family: sums\n", "", "3: operators.Sum.family: is missing"),
    "a missing key deep inside": (X, X.replace(", doc: data", ""), "16: operators.Sum.inputs.0.doc: is missing"),
    "a key twice": ("    family: sums", "    family: sums\n    family: sums", "7: operators.Sum.family: is there twice"),
    "a key twice in one line": ("{X: Y}", "{X: Y, X: Y}", "26: operators.Sum.in_place.0.X: is there twice"),
    "a number as key": ("{X: Y}", "{3: Y}", "26: operators.Sum.in_place.0.3: input should be a valid string, got 3"),
    # scalars
    "a number as text": ("doc: a sum", "doc: 5", "7: operators.Sum.doc: input should be a valid string, got 5"),
    "text as number": ("since_version: 1", "since_version: '1'", "5: operators.Sum.since_version: input should be a valid integer, got '1'"),
    "version 0": ("since_version: 1", "since_version: 0", "5: operators.Sum.since_version: input should be greater than or equal to 1, got 0"),
    "versions that end before they begin": ("since_version: 1", "since_version: 2\n    until_version: 1", "6: operators.Sum.until_version: is before since_version 2"),
    "empty text": ("doc: a sum", "doc: ''", "7: operators.Sum.doc: string should have at least 1 character, got ''"),
    "a bad name": ("name: Z", "name: 2Z", r"20: operators.Sum.outputs.1.name: string should match pattern '^[A-Za-z][A-Za-z0-9_]*$', got '2Z'"),
    "a default that is a list": ("default: -1", "default: [1]", "22: operators.Sum.attributes.axis.default: expected a number or text, got (1,)"),
    "a minimum that is text": ("minimum: -8", "minimum: x", "22: operators.Sum.attributes.axis.minimum: expected a number, got 'x'"),
    "not a number": ("minimum: -8", "minimum: .nan", "22: operators.Sum.attributes.axis.minimum: expected a number, got nan"),
    # types
    "an unknown type": ("{T: float16, U: float32}", "{T: int8, U: float32}", f"11: operators.Sum.combinations.1.T: input should be {TYPES}, got 'int8'"),
    "two equal combinations": ("{T: float16, U: float32}", "{U: float32, T: float32}", "11: operators.Sum.combinations.1: is the same combination as number 1"),
    "a combination with a gap": ("{T: float16, U: float32}", "{T: float16}", "11: operators.Sum.combinations.1: gives no type to U"),
    "a combination with too much": ("{T: float16, U: float32}", "{T: float16, U: float32, V: float32}", "11: operators.Sum.combinations.1.V: no type variable 'V'; types has T, U"),
    "an input of no type variable": (B, B.replace("type: U", "type: V"), "17: operators.Sum.inputs.1.type: no type variable 'V'; types has T, U"),
    "an output of no type variable": (Z, Z.replace("type: U", "type: V"), "20: operators.Sum.outputs.1.type: no type variable 'V'; types has T, U"),
    "a type variable that only an optional input has": (MINIMAL, MINIMAL.replace("columns], doc: bias", "columns], optional: true, doc: bias").replace("{T: float16, U: float32}", "{T: float32, U: float16}"), "8: operators.Sum.types.U: is never bound: no required input has this type and no attribute binds it"),
    # names
    "a name twice": (Z, Z.replace("name: Z", "name: X"), "20: operators.Sum.outputs.1.name: 'X' is used twice"),
    "a name of gradkern.run": (Z, Z.replace("name: Z", "name: out"), "20: operators.Sum.outputs.1.name: 'out' is a parameter of gradkern.run"),
    "a word of Python": (Z, Z.replace("name: Z", "name: lambda"), "20: operators.Sum.outputs.1.name: 'lambda' is a word of the Python language"),
    "an attribute named like an input": ("      mode:", "      B:", ["23: operators.Sum.attributes.B: is also the name of an input or output", "30: operators.Sum.examples.0.attributes.mode: no attribute 'mode'; attributes has axis, B, steps"]),
    "an attribute named like a parameter": ("      steps:", "      stream:", "24: operators.Sum.attributes.stream: is also the name of a parameter of gradkern.run"),
    "an attribute that is a word of Python": ("      steps:", "      from:", "24: operators.Sum.attributes.from: is a word of the Python language"),
    # axes and shapes
    "a shape of an unknown axis": (B, B.replace("[columns]", "[colums]"), "17: operators.Sum.inputs.1.shape.0: no axis 'colums'; axes has rows, columns"),
    "a shape with a number": (B, B.replace("[columns]", "[3]"), f"17: operators.Sum.inputs.1.shape.0: expected {TOKEN}, got 3"),
    "a shape with an unknown form": (B, B.replace("[columns]", "[{many: rows}]"), f"17: operators.Sum.inputs.1.shape.0: expected {TOKEN}, got {{'many': 'rows'}}"),
    "ones for a single axis": (B, B.replace("[columns]", "[{ones: columns}]"), "17: operators.Sum.inputs.1.shape.0: 'columns' is a single axis, not a group"),
    "two groups in one shape": (X, X.replace("[rows, columns]", "[rows, rows, columns]"), "16: operators.Sum.inputs.0.shape: has more than one group of axes, and nothing says where the second begins"),
    "an axis in no shape": ("      columns: {doc: the last}", "      columns: {doc: the last}\n      N: {doc: batch}", ["15: operators.Sum.axes.N: is in no shape", "31: operators.Sum.examples.0.axes: gives no size to 'N'", "33: operators.Sum.benchmarks.0.axes: gives no size to 'N'"]),
    "bounds for a single axis": ("columns: {doc: the last}", "columns: {doc: the last, most: 3}", "14: operators.Sum.axes.columns: most is for a group; this is a single axis"),
    "bounds the wrong way round": ("last, group: true", "last, group: true, least: 3, most: 2", "13: operators.Sum.axes.rows.most: is less than least, 3"),
    "as many as no group": ("last, group: true", "last, group: true, as_many_as: cols", "13: operators.Sum.axes.rows.as_many_as: 'cols' is no other axis or group of axes"),
    "as many as itself": ("last, group: true", "last, group: true, broadcasts_to: rows", "13: operators.Sum.axes.rows.broadcasts_to: 'rows' is no other group of axes"),
    "begins at no attribute": ("last, group: true", "last, group: true, begins_at: mode", "13: operators.Sum.axes.rows.begins_at: 'mode' is no attribute with axis_of"),
    # outputs
    "an order of no input": (Y, Y.replace("}", ", order_of: X}"), "19: operators.Sum.outputs.0.order_of: 'X' is no input, or the output has no shape"),
    "an output like no input": (Y, Y.replace("like: X", "like: W"), "19: operators.Sum.outputs.0.like: no input 'W'; inputs has B, X"),
    "an output of no shape": (Y, Y.replace("like: X, ", ""), "19: operators.Sum.outputs.0: needs exactly one of like and shape"),
    "an output of two shapes": (Y, Y.replace("like: X", "like: X, shape: [rows, columns]"), "19: operators.Sum.outputs.0: needs exactly one of like and shape"),
    "no output": (f"      - {Y}\n      - {Z}", "      []", "18: operators.Sum.outputs: needs at least one, got ()"),
    # in place
    "in place over no input": ("{X: Y}", "{W: Y}", "26: operators.Sum.in_place.0.W: no input 'W'; inputs has X, B"),
    "in place into no output": ("{X: Y}", "{X: W}", "26: operators.Sum.in_place.0.X: no output 'W'; outputs has Y, Z"),
    # attributes
    "a default of another type": ("default: -1", "default: last", "22: operators.Sum.attributes.axis.default: 'last' is no int"),
    "a default that is not allowed": ("default: all", "default: none", "23: operators.Sum.attributes.mode.default: 'none' is not among the allowed all, some"),
    "a default below the minimum": ("default: -1", "default: -9", "22: operators.Sum.attributes.axis.default: -9 is less than the minimum -8"),
    "a required default": ("default: -1", "default: -1, required: true", ["22: operators.Sum.attributes.axis.default: a required attribute has no default", "30: operators.Sum.examples.0.attributes: misses the required 'axis'", "32: operators.Sum.benchmarks.0.attributes: misses the required 'axis'"]),
    "allowed values of an int": (AXIS, AXIS.replace("minimum: -8", "allowed: [x]").replace("default: -1, ", "required: true, "), ["22: operators.Sum.attributes.axis.allowed: holds x; expected values of type int", "30: operators.Sum.examples.0.attributes: misses the required 'axis'", "32: operators.Sum.benchmarks.0.attributes: misses the required 'axis'"]),
    "ints per nothing": (STEPS, STEPS.replace("per: rows, ", ""), "24: operators.Sum.attributes.steps: type ints and `per` belong together"),
    "one int per group": (STEPS, STEPS.replace("ints", "int"), "24: operators.Sum.attributes.steps: type ints and `per` belong together"),
    "ints per single axis": (STEPS, STEPS.replace("rows", "columns"), "24: operators.Sum.attributes.steps.per: 'columns' is no group of axes"),
    "an axis of no input": ("axis_of: X", "axis_of: Y", "22: operators.Sum.attributes.axis.axis_of: 'Y' is no input, or the attribute is no int"),
    "an axis that may be absent": ("default: -1, ", "", "22: operators.Sum.attributes.axis: with axis_of needs a default or required: true"),
    "a type that binds nothing": (MODE, "{type: type, default: T, doc: type}", "23: operators.Sum.attributes.mode: type `type` and `binds` belong together"),
    "a type that binds no variable": (MODE, "{type: type, binds: V, default: T, doc: type}", "23: operators.Sum.attributes.mode.binds: no type variable 'V'; types has T, U"),
    "a type that is its own default": (MODE, "{type: type, binds: T, default: T, doc: type}", "23: operators.Sum.attributes.mode.default: 'T' is no other type variable, and no type"),
    "an attribute of an unknown type": (STEPS, STEPS.replace("ints", "list"), "24: operators.Sum.attributes.steps.type: input should be 'int', 'float', 'string', 'ints', 'floats' or 'type', got 'list'"),
    # providers, examples
    "a provider without modules": ("cpu: [cpu]", "cpu: []", "28: operators.Sum.providers.cpu: needs at least one, got ()"),
    "no provider": ("      cpu: [cpu]", "      {}", "27: operators.Sum.providers: needs at least one, got {}"),
    "an example without a size": ("{rows: [2], columns: 3}, attributes", "{rows: [2]}, attributes", "30: operators.Sum.examples.0.axes: gives no size to 'columns'"),
    "an example of an unknown axis": ("columns: 3}, attributes", "columns: 3, N: 2}, attributes", "30: operators.Sum.examples.0.axes.N: no axis 'N'; axes has rows, columns"),
    "an example with one size for a group": ("{rows: [2], columns: 3}, attributes", "{rows: 2, columns: 3}, attributes", "30: operators.Sum.examples.0.axes.rows: expected a list of sizes, got one size"),
    "an example of negative size": ("columns: 3}, attributes", "columns: -3}, attributes", f"30: operators.Sum.examples.0.axes.columns: expected {SIZES}, got -3"),
    "an example with an unknown attribute": ("{mode: some}", "{made: some}", "30: operators.Sum.examples.0.attributes.made: no attribute 'made' (did you mean mode?); attributes has axis, mode, steps"),
    "a benchmark without a size": ("{axes: {rows: [2], columns: 3}}", "{axes: {rows: [2]}}", "32: operators.Sum.benchmarks.0.axes: gives no size to 'columns'"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), [pytest.param(*case, id=name) for name, case in BAD.items()])
def test_a_mistake_is_refused_with_its_line_its_path_and_the_reason(
    old: str, new: str, expected: str | list[str]
) -> None:
    expected = [expected] if isinstance(expected, str) else expected
    assert mistakes(changed((old, new))) == [f"registry.yaml:{line}" for line in expected]


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines() -> None:
    text = changed(
        ("schema: 1", "schema: 3"), ("{X: Y}", "{W: Y}"), ("like: X", "like: W"), ("columns: 3}}", "columns: 3, N: 1}}")
    )
    second = MINIMAL.partition("operators:\n")[2].replace("Sum:", "Other:").replace("family: sums", "famly: sums")
    assert mistakes(text + second) == [
        "registry.yaml:1: schema: is 3; this gradkern reads schema 1",
        "registry.yaml:19: operators.Sum.outputs.0.like: no input 'W'; inputs has B, X",
        "registry.yaml:26: operators.Sum.in_place.0.W: no input 'W'; inputs has X, B",
        "registry.yaml:32: operators.Sum.benchmarks.0.axes.N: no axis 'N'; axes has rows, columns",
        "registry.yaml:33: operators.Other.family: is missing",
        "registry.yaml:36: operators.Other.famly: unknown key",
    ]


def test_a_type_that_only_outputs_have_must_follow_from_the_others() -> None:
    alone = (B, "{name: B, type: T, shape: [columns], doc: bias}")
    assert list(load(changed(alone))) == ["Sum"]
    open_ = changed(alone, ("{T: float16, U: float32}", "{T: float32, U: float16}"))
    reason = "is never bound: no input has this type, and the combinations leave it open"
    assert mistakes(open_) == [f"registry.yaml:8: operators.Sum.types.U: {reason}"]


def test_an_operator_that_is_there_twice_is_refused() -> None:
    assert mistakes(MINIMAL + MINIMAL.partition("operators:\n")[2]) == [
        "registry.yaml:33: operators.Sum: is there twice"
    ]


def test_mistakes_are_named_by_the_file_they_are_in() -> None:
    with pytest.raises(RegistryError, match=r"^mine\.yaml:1: schema: is 2; this gradkern reads schema 1$"):
        load(changed(("schema: 1", "schema: 2")), "mine.yaml")


def test_a_mistake_behind_an_alias_is_reported_for_every_use_at_the_line_it_is_written() -> None:
    text = changed(("{rows: [2], columns: 3}, attributes", "&sizes {rows: [2]}, attributes"))
    text = text.replace("- {axes: {rows: [2], columns: 3}}", "- {axes: *sizes}")
    assert mistakes(text) == [
        "registry.yaml:30: operators.Sum.examples.0.axes: gives no size to 'columns'",
        "registry.yaml:32: operators.Sum.benchmarks.0.axes: gives no size to 'columns'",
    ]


def test_aliases_that_stand_for_an_endless_file_are_refused() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert mistakes(f"l0: &l0 [1]\n{levels}") == ["registry.yaml:1: registry: aliases make the file endless"]
    assert mistakes("a: &a [*a]") == ["registry.yaml:1: registry: aliases make the file endless"]


def test_in_place_of_types_that_are_never_equal_is_refused() -> None:
    text = changed(("{X: Y}", "{X: Z}"), ("      - {T: float32, U: float32}\n", ""))
    assert mistakes(text) == ["registry.yaml:25: operators.Sum.in_place.0.X: 'X' and 'Z' never have the same type"]


# --- what toys need --------------------------------------------------------------------------------------------------

TOY = """\
schema: 1
operators:
  Toy:
    domain: test
    since_version: 1
    family: sums
    doc: a toy
    types: {T: data, S: lists, I: indices}
    combinations:
      - {T: [float16, float32], S: int64, I: [int32, int64]}
      - {T: float64, S: int64, I: int64}
    axes:
      before: {doc: before, group: true, ends_at: axis}
      V: {doc: rows}
      after: {doc: after, group: true}
      k: {doc: indices, group: true}
      G: {doc: groups, equals: groups}
      half: {doc: half, equals: V/2}
    inputs:
      - {name: shape, type: S, memory: host, gives: [before, V, after], doc: shape}
      - {name: indices, type: I, shape: [k], index_of: [V], negative: true, doc: indices}
      - {name: dY, type: T, shape: [before, k, after], where: {mode: {flat: [V]}}, doc: gradient}
      - {name: ratio, type: T, shape: [], memory: host, optional: true, default: false, doc: ratio}
      - {name: tied, type: T, shape: [before, V, after], optional: true, default: false, doc: added to}
    outputs:
      - {name: dX, type: T, shape: [before, V, after], alias: tied, doc: gradient}
      - {name: sums, type: T, shape: [G, half], doc: sums}
    attributes:
      axis: {type: int, default: 0, axis_of: shape, doc: axis}
      mode: {type: string, default: all, allowed: [all, flat], doc: mode}
      groups: {type: int, default: 1, minimum: 1, doc: groups}
      ratio: {type: float, default: 0.5, minimum: 0, below: 1, doc: ratio}
    providers: {cpu: [cpu]}
    examples: [{axes: {before: [], V: 4, after: [3], k: [2]}}]
    benchmarks: [{axes: {before: [], V: 4, after: [3], k: [2]}, attributes: {ratio: 0.25}}]
"""

HOST = "shape: [], memory: host, optional: true, default: false, doc: ratio}"
EXPRESSION = "A, A*B, A/B, ceil(A/B) or A+B+C of axes, attributes and whole numbers from 1 on"
BAD_TOYS = {
    # combinations that stand for several
    "a bad type in a list": ("[float16, float32]", "[float16, int8]", [f"10: operators.Toy.combinations.0.T: input should be {TYPES}, got 'int8'"] * 2),
    "a combination twice": ("{T: float64, S: int64, I: int64}", "{T: float32, S: int64, I: [int32]}", "11: operators.Toy.combinations.1: is the same combination as number 3"),
    "an empty list of types": ("[float16, float32]", "[]", [f"10: operators.Toy.combinations.0.T: input should be {TYPES}, got ()"] * 2),
    "variadic, with others behind it": ("shape: [before, k, after], ", "shape: [before, k, after], variadic: true, ", "22: operators.Toy.inputs.2.variadic: is for the last input"),
    "an optional input that is variadic": ("false, doc: added to}", "false, variadic: true, doc: added to}", ["24: operators.Toy.inputs.4: with variadic takes neither optional, memory, also nor where", *(f"24: operators.Toy.inputs.4.shape: {each!r} is no group that this input alone has" for each in ("V", "after", "before"))]),
    "a variadic output without such an input": ("alias: tied, ", "alias: tied, variadic: true, ", "26: operators.Toy.outputs.0.variadic: is for an output that is like the variadic input"),
    # axes that follow
    "no expression": ("V/2", "V/2+1", f"18: operators.Toy.axes.half.equals: expected {EXPRESSION}, got 'V/2+1'"),
    "a division by zero": ("V/2", "V/0", f"18: operators.Toy.axes.half.equals: expected {EXPRESSION}, got 'V/0'"),
    "an expression of nothing known": ("V/2", "W/2", "18: operators.Toy.axes.half.equals: 'W' is no axis, and no attribute of whole numbers"),
    "an expression of a later axis": ("equals: groups", "equals: 2*half", "17: operators.Toy.axes.G.equals: 'half' is an axis that does not stand before this one"),
    "an expression of itself": ("V/2", "half/2", "18: operators.Toy.axes.half.equals: 'half' is an axis that does not stand before this one"),
    "an expression of a text": ("equals: groups", "equals: mode", "17: operators.Toy.axes.G.equals: 'mode' is no axis, and no attribute of whole numbers"),
    "a group of one size": ("{doc: groups, equals: groups}", "{doc: groups, group: true, equals: groups}", "17: operators.Toy.axes.G.equals: 'groups' is int; a group takes ints, a single axis an int"),
    "an end at no attribute": ("ends_at: axis", "ends_at: axes", ["13: operators.Toy.axes.before.ends_at: 'axes' is no attribute with axis_of"]),
    "two open groups": (", ends_at: axis", "", [f"{line}: operators.Toy.inputs.{number}.{key}: has more than one group of axes, and nothing says where the second begins" for line, number, key in ((20, 0, "gives"), (22, 2, "shape"), (24, 4, "shape"))]),
    # shapes that are chosen
    "a choice by nothing": ("where: {mode:", "where: {made:", "22: operators.Toy.inputs.2.where.made: is no attribute of type int or string"),
    "a choice that is not allowed": ("{flat: [V]}", "{round: [V]}", "22: operators.Toy.inputs.2.where.mode.round: is not among all, flat"),
    "a choice of an unknown axis": ("{flat: [V]}", "{flat: [W]}", "22: operators.Toy.inputs.2.where.mode.flat.0: no axis 'W'; axes has before, V, after, k, G, half"),
    # the host
    "a shape that is on the device": ("memory: host, gives", "gives", "20: operators.Toy.inputs.0.gives: is for an input with memory: host, without a shape and not optional"),
    "a matrix on the host": (HOST, HOST.replace("[]", "[V, V]"), ["23: operators.Toy.inputs.3.memory: host is for a number or a list", "32: operators.Toy.attributes.ratio: is also the name of an input or output"]),
    "a group on the host": (HOST, HOST.replace("[]", "[k]"), ["23: operators.Toy.inputs.3.memory: host is for a number or a list, whose shape is one axis", "32: operators.Toy.attributes.ratio: is also the name of an input or output"]),
    "a list on either side": (HOST, HOST.replace("[], memory: host", "[V], memory: any"), ["23: operators.Toy.inputs.3.memory: any is for a number", "32: operators.Toy.attributes.ratio: is also the name of an input or output"]),
    "an unknown memory": ("memory: host, optional", "memory: hots, optional", "23: operators.Toy.inputs.3.memory: input should be 'device', 'host' or 'any', got 'hots'"),
    "a shape of floats": ("S: int64, I: [int32, int64]}", "S: float32, I: [int32, int64]}", "20: operators.Toy.inputs.0.type: 'S' may be float32; expected whole numbers"),
    "an attribute of a required input": (HOST, HOST.replace("optional: true, ", ""), ["32: operators.Toy.attributes.ratio: is also the name of an input or output", "34: operators.Toy.examples.0.attributes: misses the value of input 'ratio'"]),
    # values
    "an index into nothing": ("index_of: [V]", "index_of: [W]", "21: operators.Toy.inputs.1.index_of: no axis 'W'; axes has before, V, after, k, G, half"),
    "an index of floats": ("name: indices, type: I", "name: indices, type: T", ["8: operators.Toy.types.I: is never bound: no input has this type, and the combinations leave it open", "21: operators.Toy.inputs.1.type: 'T' may be float16, float32, float64; expected whole numbers"]),
    "negative without an index": ("index_of: [V], ", "", "21: operators.Toy.inputs.1: with negative or along needs index_of"),
    "along no axis of it": ("negative: true", "along: V", "21: operators.Toy.inputs.1.along: 'V' is no axis of the input"),
    "a mask of floats": ("{mode: {flat: [V]}}", "{mode: {flat: [V]}}, values: mask", "22: operators.Toy.inputs.2.values: mask is for bool, or for bits in uint32"),
    "a probability of ints": ("negative: true", "values: probability", "21: operators.Toy.inputs.1.values: probability is for floating-point types"),
    # aliases
    "an alias of nothing": ("alias: tied", "alias: tide", "26: operators.Toy.outputs.0.alias: 'tide' is no input in the memory of the device"),
    "an alias of another type": ("alias: tied", "alias: indices", "26: operators.Toy.outputs.0.alias: 'indices' and 'dX' are not always of one type"),
    "an alias like another input": ("shape: [before, V, after], alias", "like: dY, alias", "26: operators.Toy.outputs.0.alias: needs a shape, or like: tied"),
    # attributes, examples
    "a default that is not below": ("default: 0.5", "default: 1.0", "32: operators.Toy.attributes.ratio.default: 1.0 is not below 1"),
    "an example's quotient": ("V: 4, after: [3], k: [2]}}]", "V: 5, after: [3], k: [2]}}]", "34: operators.Toy.examples.0: V/2 is 5/2; expected a whole number"),
    "an example's unknown value": ("{ratio: 0.25}", "{ration: 0.25}", "35: operators.Toy.benchmarks.0.attributes.ration: no attribute 'ration' (did you mean ratio?); attributes has axis, mode, groups, ratio"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), [pytest.param(*case, id=name) for name, case in BAD_TOYS.items()])
def test_a_mistake_in_what_toys_need_is_refused(old: str, new: str, expected: str | list[str]) -> None:
    expected = [expected] if isinstance(expected, str) else expected
    assert load(TOY)["Toy"].examples[0].axes["half"] == 2
    assert TOY.count(old) == 1, old
    assert mistakes(TOY.replace(old, new)) == [f"registry.yaml:{line}" for line in expected]
