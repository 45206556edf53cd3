"""BatchNormalizationGrad's candidates from cuDNN, for a described H200: which shapes, types and layouts have which.

For the graph API cuDNN's own code decides here; of the older functions only the layout of the arrays is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers import stub_driver
from helpers.cudnn_batch_norm import Layout, NormCase

pytestmark = pytest.mark.thorough

SHAPES = {
    "NC": (64, 40),
    "NCL": (8, 40, 300),
    "NCHW": (8, 40, 14, 14),
    "NCDHW": (4, 40, 4, 7, 7),
    "6-D": (2, 40, 2, 3, 4, 5),
}
LAYOUTS: tuple[Layout, ...] = ("first", "last")
OLDER = {"first": "cudnn_{}_{}", "last": "cudnn_{}_ex_{}"}


def ask(folder: Path, cases: Iterable[NormCase], finish: bool = False) -> list[dict[str, Any]]:
    """What a process with a driver of no functions and a described H200 finds for these cases."""
    question = [{"case": asdict(each), "finish": finish} for each in cases]
    return stub_driver.ask("helpers.cudnn_batch_norm_plans", folder, question)


def without_dX(case: NormCase) -> NormCase:
    return replace(case, outputs=("dScale", "dBias"))


def has_graph(answer: dict[str, Any]) -> bool:
    return any(each["recipe"]["route"] == "graph" for each in answer["candidates"])


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", pytest.param("float16", marks=pytest.mark.every_kernel)]
)
def test_every_dense_batch_norm_has_candidates_that_their_recipes_make_again(dtype: str, tmp_path: Path) -> None:
    wide = "float64" if dtype == "float64" else "float32"
    cases = {
        (name, layout): NormCase(shape, dtype, layout, wide, wide)
        for name, shape in SHAPES.items()
        for layout in LAYOUTS
    }
    answers = dict(zip(cases, ask(tmp_path, cases.values()), strict=True))
    assert {case: answer["unfit"] for case, answer in answers.items() if "unfit" in answer} == {}
    for (name, layout), answer in answers.items():
        names = [each["name"] for each in answer["candidates"]]
        assert len(names) == len(set(names))
        assert answer["rebuilt"] == answer["candidates"]
        seen = {"NCHW": ("NCHW", "NHWC"), "NCDHW": ("NCDHW", "NDHWC")}.get(name, ("NCL", "NLC"))[layout == "last"]
        for mode in ("spatial", "spatial_persistent"):
            assert OLDER[layout].format(seen, mode) in names
        assert has_graph(answer) == (dtype != "float64")
        # of the layouts that arrays have without spatial axes, each function gets its own
        assert ("cudnn_NCL_spatial" in names and "cudnn_NLC_ex_spatial" in names) == (name == "NC")


def test_the_graph_api_wants_channels_of_whole_16_bytes(tmp_path: Path) -> None:
    multiples = {"float32": 4, "float16": 8, "bfloat16": 8}
    cases = [
        NormCase((4, channels, 7, 7), dtype, layout)
        for dtype, layout, channels in product(multiples, LAYOUTS, (1, 2, 3, 4, 6, 8, 12, 60, 64))
    ]
    for case, answer in zip(cases, ask(tmp_path, cases), strict=True):
        assert has_graph(answer) == (case.shape[1] % multiples[case.dtype] == 0), case


def test_a_plan_of_the_graph_api_is_finished_and_turns_channels_first_over_in_its_workspace(tmp_path: Path) -> None:
    cases = [NormCase((8, 64, 28, 28), dtype, layout) for dtype, layout in product(("float32", "bfloat16"), LAYOUTS)]
    answers = iter(ask(tmp_path, [part for case in cases for part in (case, without_dX(case))], finish=True))
    for case, whole, sums in zip(cases, answers, answers, strict=True):
        array = case.problem().X.nbytes
        for answer in (whole, sums):
            assert (answer["workspaces"][0] >= 3 * array) == (case.layout == "first"), case
        assert whole["workspaces"][0] == whole["workspaces"][1], case
        assert array <= sums["workspaces"][1] - sums["workspaces"][0] < array + 256, case  # dX, which nobody wants


def test_a_pinned_mode_leaves_the_older_functions_in_this_mode(tmp_path: Path) -> None:
    modes = "spatial", "spatial_persistent"
    answers = ask(tmp_path, [NormCase(SHAPES["NCHW"], "float16", mode=mode) for mode in modes])
    names = [[each["name"] for each in answer["candidates"]] for answer in answers]
    assert names == [[f"cudnn_NCHW_{mode}"] for mode in modes]


def test_arrays_at_odd_addresses_are_kept_from_the_graph_api_only(tmp_path: Path) -> None:
    (answer,) = ask(tmp_path, [NormCase(SHAPES["NCHW"], "float16", alignment=2)])
    assert [each["recipe"]["route"] for each in answer["candidates"]] == ["plain", "plain"]


def test_what_cudnn_does_not_take_is_refused_with_the_reason(tmp_path: Path) -> None:
    case = NormCase((8, 16, 5, 5))
    refused = {
        "arrays of 1 to 2,147,483,647 elements; these have 0": replace(case, shape=(0, 8, 3, 3)),
        "these have 2,147,483,648": replace(case, shape=(1 << 15, 16, 64, 64)),
        "dense neither with channels first nor with channels last": replace(case, layout="gaps"),
        "or differ in it": replace(case, layout_of_dY="last"),
        "dX may be written over dY or X": replace(case, in_place=True),
        "no batch norm of int32": replace(case, dtype="int32"),
    }
    for words, answer in zip(refused, ask(tmp_path, refused.values()), strict=True):
        assert words in answer["unfit"]
