"""Conv whole on a GPU: every source in one search, types, ranks, groups and layouts against float64."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.searches import keep_searches_in
from helpers.tolerance import assert_close

import gradkern
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((4, 32, 14, 15), (48, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    "1x1": ((4, 24, 14, 14), (40, 24, 1, 1), {}),
    "1x1, strides": ((3, 24, 15, 14), (40, 24, 1, 1), {"strides": (2, 2)}),
    "asymmetric pads": ((3, 24, 15, 14), (16, 24, 3, 3), {"strides": (2, 2), "pads": (2, 0, 1, 1)}),
    "groups, dilations": ((3, 32, 13, 11), (64, 8, 3, 2), {"group": 4, "dilations": (2, 1), "pads": (2, 1, 2, 0)}),
    "depthwise": ((3, 32, 15, 14), (32, 1, 5, 5), {"group": 32, "pads": (2, 2, 2, 2)}),
    "depthwise, strides": ((3, 40, 30, 29), (40, 1, 3, 3), {"group": 40, "strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    "two filters a channel": ((3, 16, 15, 14), (32, 1, 3, 3), {"group": 16, "pads": (1, 1, 1, 1)}),
    "one axis": ((4, 32, 301), (24, 32, 3), {"dilations": (4,), "pads": (8, 0)}),
    "depthwise, one axis": ((4, 16, 301), (16, 1, 4), {"group": 16, "pads": (1, 2)}),
    "three axes": ((2, 16, 6, 11, 9), (24, 16, 3, 3, 3), {"pads": (1,) * 6}),
}


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Short searches, kept in a folder of the test's own; what they warn about is not what is tested."""
    from gradkern.ops.conv.cuda import plan as conv

    keep_searches_in(tmp_path, monkeypatch)
    monkeypatch.setattr(conv, "choose", partial(conv.choose, seconds=0.5))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="gradkern: .* not used, as it is wrong", category=RuntimeWarning)
        yield


def given(name: str, dtype: str, biased: bool, last: bool) -> tuple[list[Any], dict[str, Any]]:
    """X, W and perhaps B on the GPU, and the attributes."""
    X, W, attributes = CASES[name]
    random = torch.Generator("cuda").manual_seed(0)
    made = [torch.randn(each, device="cuda", generator=random) for each in (X, W, W[:1])[: 2 + biased]]
    made = [each.to(getattr(torch, dtype)) for each in made]
    if last:
        made[:2] = [each.movedim(1, -1).contiguous().movedim(-1, 1) for each in made[:2]]
    return made, attributes


def check(result: Any, inputs: list[Any], attributes: dict[str, Any]) -> None:
    widened = [each.double().cpu().numpy() for each in inputs]
    expected = reference("Conv", dict(zip(("X", "W", "B"), widened, strict=False)), attributes)["Y"]
    found = result.double().cpu().numpy()
    name = str(result.dtype).removeprefix("torch.")
    assert_close("Conv", "Y", found.astype(np.dtype(name)), expected)


@pytest.mark.parametrize("search", ["exhaustive", "default"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_every_shape_type_and_layout(name: str, dtype: str, search: Any) -> None:
    for biased, last in ((True, False), (False, True), (True, True)):
        inputs, attributes = given(name, dtype, biased, last)
        result = gradkern.run("Conv", *inputs, **attributes, policy=Policy(search, allow_tf32=False)).Y
        check(result, inputs, attributes)
        assert (result.stride(1) == 1) == last


@pytest.mark.parametrize("name", ["3x3", "1x1", "depthwise"])
def test_every_ranked_kernel_can_be_pinned(name: str) -> None:
    inputs, attributes = given(name, "float16", biased=True, last=True)
    searched = gradkern.prepare("Conv", *inputs, **attributes, policy=Policy("exhaustive"))
    kinds: Any = searched.plan
    for row in kinds.results["Y"].ranking[:8]:
        check(gradkern.run("Conv", *inputs, **attributes, policy=Policy(kernel=row.name)).Y, inputs, attributes)


def test_arrays_with_gaps_and_a_bias_with_gaps() -> None:
    X, B = torch.randn((3, 8, 9, 14), device="cuda")[..., ::2], torch.randn(16, device="cuda")[::2]
    for W, group in ((torch.randn((8, 8, 3, 3), device="cuda"), 1), (torch.randn((8, 1, 3, 3), device="cuda"), 8)):
        result = gradkern.run("Conv", X, W, B, group=group, pads=[1] * 4, policy=Policy("exhaustive", allow_tf32=False))
        check(result.Y, [X, W, B], {"pads": (1,) * 4, "group": group})


def test_a_batch_of_nothing_is_one_and_an_out_array_is_written() -> None:
    X, W = torch.randn((2, 8, 9, 7), device="cuda"), torch.randn((4, 8, 3, 3), device="cuda")
    assert gradkern.run("Conv", X[:0], W).Y.shape == (0, 4, 7, 5)
    for order in (torch.contiguous_format, torch.channels_last):
        Y = torch.full((2, 4, 7, 5), torch.nan, device="cuda").contiguous(memory_format=order)
        gradkern.run("Conv", X, W, out={"Y": Y}, policy=Policy("exhaustive", allow_tf32=False))
        check(Y, [X, W], {})
