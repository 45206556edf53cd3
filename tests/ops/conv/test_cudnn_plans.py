"""Candidates of cuDNN for Conv and ConvGrad, for a described H200: that shapes, types, layouts and alignments have
plans.

cuDNN's own code decides here which engines take a problem, so descriptors, notes and recipes are proved without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from helpers import stub_driver
from helpers.cudnn_conv import Case, Geometry

pytestmark = pytest.mark.thorough

GEOMETRIES = {
    "3x3": Geometry((8, 32, 20, 20), (48, 32, 3, 3), pads_begin=(1, 1)),
    "1x1": Geometry((8, 64, 14, 14), (96, 64, 1, 1)),
    "strided": Geometry((4, 16, 23, 21), (24, 16, 3, 5), strides=(2, 3), pads_begin=(1, 2)),
    "dilated": Geometry((4, 16, 23, 21), (24, 16, 3, 3), dilations=(2, 3), pads_begin=(2, 3)),
    "asymmetric pads": Geometry((4, 16, 12, 12), (24, 16, 3, 3), pads_begin=(2, 0), pads_end=(1, 1)),
    "stride beyond the kernel": Geometry((4, 16, 12, 12), (24, 16, 2, 2), strides=(3, 3)),
    "kernel beyond the input": Geometry((4, 16, 3, 3), (24, 16, 5, 5), pads_begin=(2, 2)),
    "one position": Geometry((16, 64, 1, 1), (32, 64, 1, 1)),
    "one image of one channel": Geometry((1, 1, 9, 9), (1, 1, 3, 3)),
    "in groups": Geometry((8, 64, 14, 14), (64, 16, 3, 3), group=4, pads_begin=(1, 1)),
    "depthwise": Geometry((8, 32, 14, 14), (32, 1, 3, 3), group=32, pads_begin=(1, 1)),
    "depthwise, two filters a channel": Geometry((8, 32, 14, 14), (64, 1, 5, 5), group=32, pads_begin=(2, 2)),
    "1-D": Geometry((8, 32, 300), (48, 32, 3), dilations=(2,), pads_begin=(2,)),
    "1-D, asymmetric": Geometry((8, 32, 300), (48, 32, 4), strides=(2,), pads_begin=(3,), pads_end=(0,)),
    "3-D": Geometry((2, 16, 8, 14, 14), (24, 16, 3, 3, 3), pads_begin=(1, 1, 1)),
}
TYPES = ("float32", "float64", "float16", "bfloat16")
GRADIENTS: tuple[Any, ...] = ("dX", "dW")
LAYOUTS: tuple[Any, ...] = ("first", "last", "gaps")


def biased(name: str, layout: str) -> bool:
    """Of every layout some, and some not: the tests of all convolutions have cases in common."""
    return (list(GEOMETRIES).index(name) + LAYOUTS.index(layout)) % 2 == 0


Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """What a process with a driver of no functions and a described H200 finds for cases: one for all tests, and each
    case is asked once.
    """
    known: dict[tuple[Case, int], Any] = {}
    with stub_driver.serving("helpers.cudnn_conv_plans", tmp_path_factory.mktemp("driver")) as answer:

        def found(cases: Iterable[Case], variations: int = 0) -> dict[str, Any]:
            asked = list(cases)
            new = [case for case in asked if (case, variations) not in known]
            told = answer({"cases": [asdict(each) for each in new], "variations": variations})
            known.update({(case, variations): each for case, each in zip(new, told["answers"], strict=True)})
            return {**told, "answers": [known[case, variations] for case in asked]}

        yield found


@pytest.mark.parametrize(
    "dtype",
    ["float32", *(pytest.param(each, marks=pytest.mark.every_kernel) for each in ("float64", "float16", "bfloat16"))],
)
def test_every_convolution_has_plans_under_every_policy(dtype: str, ask: Ask) -> None:
    cases = {
        (name, layout, gradient): Case(gradient, geometry, dtype, layout, biased=biased(name, layout))
        for place, (name, geometry) in enumerate(GEOMETRIES.items())
        for layout in ([LAYOUTS[place % 3]] if dtype == "float16" else LAYOUTS)  # bfloat16 has them all
        for gradient in (*GRADIENTS, "Y")
    }
    answers = dict(zip(cases, ask(cases.values())["answers"], strict=True))
    assert {case: answer["unfit"] for case, answer in answers.items() if "unfit" in answer} == {}
    assert [case for case, answer in answers.items() if not all(answer["admitted"].values())] == []
    for case, answer in answers.items():
        notes = {each["name"]: set(each["notes"]) for each in answer["candidates"]}
        for policy, note in (("no TF32", "tf32"), ("deterministic", "nondeterministic")):
            assert not any({note, "reduced_precision"} & notes[name] for name in answer["admitted"][policy]), case
        workspace = {each["name"]: each["workspace"] for each in answer["candidates"]}
        assert not any(workspace[name] for name in answer["admitted"]["strictest"]), case
        names = [each["name"] for each in answer["candidates"]]
        assert len(names) == len(set(names)), case
        assert answer["rebuilt"] == [answer["candidates"][0], answer["candidates"][-1]], case
    assert dtype == "float32" or not any("tf32" in x["notes"] for a in answers.values() for x in a["candidates"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_engines_for_channels_last_are_candidates_on_copies_of_other_orders(dtype: str, ask: Ask) -> None:
    names = ("3x3", "1x1", "strided", "in groups", "1-D", "3-D")
    asked: list[Any] = [(name, each, gradient) for name in names for each in LAYOUTS for gradient in (*GRADIENTS, "Y")]
    cases = [Case(each, GEOMETRIES[name], dtype, layout, biased=biased(name, layout)) for name, layout, each in asked]
    for (name, layout, gradient), answer in zip(asked, ask(cases)["answers"], strict=True):
        found = answer["on copies"]
        assert bool(found) == (layout != "last"), (name, layout, gradient)
        assert len({each["name"] for each in found}) == len(found)
        assert all(each["name"].startswith("channels_last_cudnn_") for each in found)
        assert any(each["refused"] is None for each in found) == bool(found), (name, layout, gradient)
        assert dtype != "float32" or all("tf32" in each["notes"] for each in found)


def test_weights_that_do_not_lie_end_to_end_are_not_put_to_cudnn(ask: Ask) -> None:
    """Engines take them and read them as if they were dense, most often where all axes have one size."""
    square = {"1-D": Geometry((1, 3, 4), (3, 3, 3)), "3-D": Geometry((1, 1, 4, 4, 4), (1, 1, 4, 4, 4))}
    cases = [
        Case(gradient, geometry, "float32", layout_of_W=layout)
        for geometry in square.values()
        for layout in ("gaps", "reversed")
        for gradient in GRADIENTS
    ]
    cases.append(Case("Y", square["1-D"], "float32", layout_of_W="reversed"))
    for answer in ask(cases)["answers"]:
        assert "contiguous weights" in answer["unfit"]


def test_arrays_in_other_orders_are_not_put_to_cudnn_but_on_copies(ask: Ask) -> None:
    """As Inductor lays gradients out at times: an engine read outside of the array, another was slow."""
    cases = [
        Case(gradient, GEOMETRIES[name], "bfloat16", "swapped", layout_of_W="last")
        for name in ("3x3", "3-D")
        for gradient in (*GRADIENTS, "Y")
    ]
    for answer in ask(cases)["answers"]:
        assert "trusted with the orders (N, C, spatial) and (N, spatial, C)" in answer["unfit"]
        assert any(each["refused"] is None for each in answer["on copies"])


def test_engines_that_are_faulty_are_no_candidates(ask: Ask) -> None:
    asked: list[tuple[str, Any]] = [("float32", "first"), ("bfloat16", "last")]
    for dtype, layout in asked:
        (answer,) = ask([Case("dW", GEOMETRIES["3x3"], dtype, layout)])["answers"]
        assert 70 not in {each["recipe"]["engine"] for each in answer["candidates"]}


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.every_kernel), "bfloat16"])
def test_arrays_that_start_anywhere_have_plans(dtype: str, ask: Ask) -> None:
    item = 4 if dtype == "float32" else 2
    cases = [
        Case(gradient, GEOMETRIES[name], dtype, layout, alignment)
        for name in ("3x3", "in groups", "3-D")
        for layout in ("first", "last")
        for gradient in GRADIENTS
        for alignment in (4, 8)
        if item == 4 or name != "in groups"
    ]
    answers = ask(cases)["answers"]
    assert [case for case, answer in zip(cases, answers, strict=True) if not all(answer["admitted"].values())] == []


def test_halves_at_odd_addresses_are_kept_from_it(ask: Ask) -> None:
    least = {("3x3", 2): 4, ("in groups", 8): 16}
    cases = [Case("dX", GEOMETRIES[name], "float16", "last", alignment) for name, alignment in least]
    assert [answer["unfit"] for answer in ask(cases)["answers"]] == [
        f"cuDNN is not trusted with float16 at odd addresses: dY is at no multiple of {each}" for each in least.values()
    ]


def test_a_line_is_tried_as_it_is_and_as_an_image_of_one_row_or_column(ask: Ask) -> None:
    (answer,) = ask([Case("dX", GEOMETRIES["1-D"], "float16", "last")])["answers"]
    layouts = [each["recipe"]["layout"] for each in answer["candidates"]]
    assert set(layouts) == {"NCL", "NC1L", "NCL1"}
    engines = [(each["recipe"]["engine"], str(each["recipe"]["knobs"])) for each in answer["candidates"]]
    distinct = len(set(engines))
    assert len(set(engines[:distinct])) == distinct, "the same engine and knobs in another layout come last"


def test_axes_of_one_element_do_not_hide_the_layout(ask: Ask) -> None:
    last = Case("dX", GEOMETRIES["1x1"], "float16", "last")
    as_given, as_first = ask([last, replace(last, layout_of_W="first")])["answers"]
    assert as_given == as_first


def test_float32_has_candidates_of_every_note(ask: Ask) -> None:
    (answer,) = ask([Case("dX", GEOMETRIES["3x3"])])["answers"]
    notes = [set(each["notes"]) for each in answer["candidates"]]
    for each in ({"tf32"}, {"tf32", "reduced_precision"}, {"nondeterministic"}, set()):
        assert each in notes
    assert all(each["origin"] == f"cudnn_eng{each['recipe']['engine']}" for each in answer["candidates"])


def test_uneven_pads_go_only_to_engines_that_heed_them(ask: Ask) -> None:
    answers = ask([Case(gradient, GEOMETRIES["asymmetric pads"]) for gradient in GRADIENTS])["answers"]
    plain = [
        {each["recipe"]["engine"] for each in answer["candidates"] if "tf32" not in each["notes"]} for answer in answers
    ]
    assert plain == [{0, 74}, {0, 67}]


def test_pads_that_no_output_sees_are_evened(ask: Ask) -> None:
    even = Geometry((4, 16, 24, 24), (24, 16, 3, 3), strides=(2, 2), pads_begin=(1, 1))
    uneven = replace(even, pads_end=(0, 0))
    assert even.Y == uneven.Y
    with_end, without = ask([Case("dW", even), Case("dW", uneven)])["answers"]
    assert with_end == without


def test_parts_that_are_rounded_to_16_bits_are_never_admitted(ask: Ask) -> None:
    cases = [Case("dW", GEOMETRIES["3x3"], dtype, "last") for dtype in ("float16", "bfloat16")]
    for answer in ask(cases)["answers"]:
        rounded = {each["recipe"]["engine"] for each in answer["candidates"] if "reduced_precision" in each["notes"]}
        assert {24, 47} <= rounded
        admitted = answer["admitted"]["default"]
        assert not any(name.startswith(("cudnn_NCHW_eng24", "cudnn_NCHW_eng47")) for name in admitted)


def test_variations_are_other_knobs_of_the_engine_the_nearest_first(ask: Ask) -> None:
    (answer,) = ask([Case("dW", GEOMETRIES["3x3"], "float16", "last")], variations=40)["answers"]
    assert any(answer["variations"].values())
    for candidate in answer["candidates"]:
        others = answer["variations"].get(candidate["name"], [])
        assert len({other["name"] for other in others} | {candidate["name"]}) == len(others) + 1
        assert all(other["origin"] == candidate["origin"] for other in others)
        mine = dict(candidate["recipe"]["knobs"])
        changes = [sum(mine.get(type_) != value for type_, value in other["recipe"]["knobs"]) for other in others]
        assert changes == sorted(changes)
        assert set(changes) <= {1, 2}
    others = [each for every in answer["variations"].values() for each in every]
    assert answer["named again"] == others, "what a search finds can be pinned by its name alone"
    first = answer["candidates"][0]["name"]
    assert {name for name, found in answer["named"].items() if found} == {first} == {answer["named"][first]}


def test_what_cudnn_does_not_take_is_refused_with_its_words(ask: Ask) -> None:
    behind = Geometry((1, 8, 9, 9), (8, 8, 2, 2), strides=(2, 2), pads_end=(-3, 0))
    refused = {
        "no positions of X behind all windows": Case("dX", behind),
        "BAD_PARAM": Case("dX", Geometry((0, 8, 9, 9), (8, 8, 3, 3))),
        "1 to 3 spatial axes; these have 4": Case("dX", Geometry((1, 8, 5, 5, 5, 5), (8, 8, 1, 1, 1, 1))),
        "no dX of int32": Case("dX", Geometry((1, 8, 9, 9), (8, 8, 3, 3)), "int32"),
    }
    for words, answer in zip(refused, ask(refused.values())["answers"], strict=True):
        assert words in answer["unfit"]


def test_every_descriptor_is_freed(ask: Ask) -> None:
    found = ask([Case("dX", GEOMETRIES["1-D"], "float16", "last")], variations=5)
    assert found["made"] > 1000
    assert found["alive"] == 0
