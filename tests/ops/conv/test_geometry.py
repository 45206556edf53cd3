"""ConvGrad's resolve: attributes filled in as ONNX Conv has them, and a message for whatever is no convolution."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gradkern.errors import AttributeValueError, GradkernError, ShapeError
from gradkern.ops.conv import resolve
from gradkern.ops.conv.geometry import Geometry, Window

DEFAULTS: dict[str, Any] = {
    "kernel_shape": None,
    "pads": None,
    "strides": None,
    "dilations": None,
    "group": 1,
    "auto_pad": "NOTSET",
}


def axes(spatial: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...], **sizes: int) -> dict[str, Any]:
    named = {"N": 2, "C": 4, "M": 6, "C_per_group": 4, **sizes}
    return {**named, "spatial": spatial, "kernel": kernel, "out": out}


def resolved(described: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return resolve(described, {**DEFAULTS, **attributes})


def test_attributes_left_out_become_a_plain_convolution() -> None:
    assert resolved(axes((8, 9), (3, 2), (6, 8))) == {
        "kernel_shape": (3, 2),
        "pads": (0, 0, 0, 0),
        "strides": (1, 1),
        "dilations": (1, 1),
        "group": 1,
        "auto_pad": "NOTSET",
    }


def test_attributes_given_stay_as_they_are() -> None:
    given_ones = {"kernel_shape": (3,), "pads": (2, 1), "strides": (2,), "dilations": (3,), "group": 2}
    # 10 + 2 + 1 = 13 padded, the kernel covers 7: positions 0, 2, 4, 6
    described = axes((10,), (3,), (4,), C_per_group=2)
    assert resolved(described, **given_ones) == {**given_ones, "auto_pad": "NOTSET"}


def test_resolved_attributes_resolve_to_themselves() -> None:
    described = axes((7, 6), (4, 3), (4, 3))
    once = resolved(described, strides=(2, 2), auto_pad="SAME_LOWER")
    assert resolve(described, once) == once


# (in, kernel, stride, dilation) -> out and the pads of SAME_UPPER, by hand. SAME_LOWER has them the other way round.
SAME = [
    ((5, 3, 1, 1), 5, (1, 1)),
    ((5, 2, 1, 1), 5, (0, 1)),
    ((5, 4, 1, 1), 5, (1, 2)),
    ((5, 3, 2, 1), 3, (1, 1)),
    ((6, 3, 2, 1), 3, (0, 1)),  # covers 2*2 + 3 = 7
    ((6, 3, 1, 2), 6, (2, 2)),  # dilated to 5
    ((7, 2, 3, 4), 3, (2, 2)),  # dilated to 5; covers 2*3 + 5 = 11
    ((5, 1, 2, 1), 3, (0, 0)),
    ((6, 1, 2, 1), 3, (0, 0)),  # covers 5 of 6: no negative padding
    ((4, 2, 4, 1), 1, (0, 0)),
    ((1, 7, 1, 1), 1, (3, 3)),
    ((0, 3, 1, 1), 0, (1, 1)),  # an empty axis stays empty
]


@pytest.mark.parametrize(("sizes", "out", "pads"), SAME)
def test_same_padding_puts_the_odd_element_where_its_name_says(
    sizes: tuple[int, int, int, int], out: int, pads: tuple[int, int]
) -> None:
    size, kernel, stride, dilation = sizes
    described = axes((size,), (kernel,), (out,))
    given_ones = {"strides": (stride,), "dilations": (dilation,)}
    assert resolved(described, auto_pad="SAME_UPPER", **given_ones)["pads"] == pads
    assert resolved(described, auto_pad="SAME_LOWER", **given_ones)["pads"] == pads[::-1]


def test_same_padding_lists_all_begins_then_all_ends() -> None:
    described = axes((5, 6, 5), (2, 3, 4), (5, 3, 5))
    result = resolved(described, strides=(1, 2, 1), auto_pad="SAME_UPPER")
    assert result["pads"] == (0, 0, 1, 1, 1, 2)
    assert result["auto_pad"] == "NOTSET"


def test_valid_padding_is_none() -> None:
    assert resolved(axes((5, 6), (2, 3), (4, 4)), auto_pad="VALID")["pads"] == (0, 0, 0, 0)


def test_an_empty_batch_is_a_convolution() -> None:
    assert resolved(axes((5,), (3,), (3,), N=0))["pads"] == (0, 0)


def test_an_empty_axis_is_a_convolution_where_its_pads_hold_the_kernel() -> None:
    assert resolved(axes((0,), (3,), (2,)), pads=(2, 2))["pads"] == (2, 2)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], type[GradkernError], str]] = [
    (
        axes((8,), (3,), (6,), C=6, C_per_group=2),
        {"group": 2},
        ShapeError,
        "input X has 6 channels (axis 1); W's axis 1 is 2 with group 2, which needs 4",
    ),
    (
        axes((8,), (3,), (6,), M=5, C_per_group=2),
        {"group": 2},
        ShapeError,
        "input W has 5 filters (axis 0); M must be divisible by group, which is 2",
    ),
    (
        axes((8, 8), (5, 5), (4, 4)),
        {"kernel_shape": (3, 3)},
        ShapeError,
        "kernel_shape (3, 3) disagrees with W, whose kernel is (5, 5)",
    ),
    (
        axes((8, 8), (3, 0), (6, 9)),
        {},
        ShapeError,
        "input W has kernel (3, 0); every axis of it needs at least 1 element",
    ),
    (
        axes((16, 16), (3, 3), (14, 14)),
        {"pads": (1, 1, 1, 1)},
        ShapeError,
        "input dY has spatial shape (14, 14); the forward convolution gives (16, 16)",
    ),
    (
        axes((8,), (3,), (6,)),
        {"auto_pad": "SAME_UPPER"},
        ShapeError,
        "input dY has spatial shape (6,); the forward convolution gives (8,)",
    ),
    (
        axes((5, 5), (4, 4), (1, 1)),
        {"dilations": (2, 2)},
        ShapeError,
        "the kernel covers (7, 7) with dilation, larger than the padded input (5, 5): "
        "the forward convolution has no output",
    ),
    (
        axes((0,), (1,), (0,)),
        {},
        ShapeError,
        "the kernel covers (1,) with dilation, larger than the padded input (0,): "
        "the forward convolution has no output",
    ),
    (
        axes((8,), (3,), (8,)),
        {"auto_pad": "SAME_LOWER", "pads": (0, 0)},
        AttributeValueError,
        "attribute pads is (0, 0) and auto_pad is SAME_LOWER; only one of them may be given",
    ),
    (
        axes((8,), (3,), (6,)),
        {"auto_pad": "VALID", "pads": (1, 1)},
        AttributeValueError,
        "attribute pads is (1, 1) and auto_pad is VALID; only one of them may be given",
    ),
]


@pytest.mark.parametrize(("described", "attributes", "error", "message"), REFUSED)
def test_what_is_no_convolution_is_refused(
    described: dict[str, Any], attributes: dict[str, Any], error: type[GradkernError], message: str
) -> None:
    with pytest.raises(error) as caught:
        resolved(described, **attributes)
    assert type(caught.value) is error
    assert str(caught.value) == message


one_axis = st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))


@given(st.lists(one_axis, min_size=1, max_size=3))
def test_windows_hold_exactly_the_terms_of_the_equations(sizes: list[tuple[int, int, int, int, int]]) -> None:
    spatial, kernel, strides, dilations, pads = (tuple(axis) for axis in zip(*sizes, strict=True))
    per_axis = [_terms(*axis) for axis in sizes]
    assume(all(count for count, _ in per_axis))
    out = tuple(count for count, _ in per_axis)
    attributes = {**DEFAULTS, "strides": strides, "dilations": dilations, "pads": pads + pads}
    described = axes(spatial, kernel, out)
    geometry = Geometry.of(described, resolve(described, attributes)).lifted(3)
    lifted = [{(0, 0, 0)}] * (3 - len(sizes)) + [terms for _, terms in per_axis]
    terms = {tuple(zip(*each, strict=True)) for each in product(*lifted)}  # (o, k, i), three indices each

    window = geometry.weight_window()
    kernel_taps = list(product(*(range(size) for size in geometry.kernel)))
    assert set(_seen(window, kernel_taps, geometry.spatial)) == terms

    found, written = [], np.zeros(geometry.spatial, int)
    for part in geometry.data_parts():
        for taps, first in zip(part.taps.tolist(), part.firsts.tolist(), strict=True):

            def data_position(q: tuple[int, ...], first: list[int] = first) -> tuple[int, ...]:
                return tuple(s * each + f for s, each, f in zip(geometry.strides, q, first, strict=True))

            seen = ((o, k, data_position(q)) for q, k, o in _seen(part.window, [*map(tuple, taps)], geometry.out))
            found += [term for term in seen if _inside(term[2], geometry.spatial)]
            for q in product(*(range(size) for size in part.window.grid)):
                if _inside(data_position(q), geometry.spatial):
                    written[data_position(q)] += 1
    assert set(found) == terms
    assert len(found) == len(terms)
    assert (written == 1).all()


def _terms(size: int, kernel: int, stride: int, dilation: int, pad: int) -> tuple[int, set[tuple[int, int, int]]]:
    """One axis: the number of outputs, and the (o, k, i) that multiply, by stepping until the kernel no longer fits."""
    padded = size + 2 * pad
    outputs = [o for o in range(padded) if o * stride + (kernel - 1) * dilation < padded]
    met = {(o, k, o * stride + k * dilation - pad) for o in outputs for k in range(kernel)}
    return len(outputs), {term for term in met if 0 <= term[2] < size}


def _seen(window: Window, taps: list[tuple[int, ...]], sizes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """(grid position, tap, source position) for all that lie inside a source of these sizes."""
    for tap, offsets in zip(taps, product(*window.offsets), strict=True):
        for q in product(*map(range, window.grid)):
            place = tuple(s * each + offset for s, each, offset in zip(window.steps, q, offsets, strict=True))
            if _inside(place, sizes):
                yield q, tap, place


def _inside(position: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    return all(0 <= each < size for each, size in zip(position, sizes, strict=True))
