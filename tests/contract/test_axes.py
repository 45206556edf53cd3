"""Shapes against named axes: what is taken, and both arrays and the axis where they disagree."""

from typing import Any

import numpy as np
import pytest
from helpers.calls import FakeProvider, arguments, message, run_any

from gradkern import AttributeValueError, ShapeError

LAYER, SIMPLE, CONV = "LayerNormalizationGrad", "SimplifiedLayerNormalizationGrad", "ConvGrad"
GELU, BATCH, DML = "BiasGeluGrad_dX", "BatchNormalizationGrad", "DmlBatchNormalizationGrad"
Shape = tuple[int, ...]


def shaped(name: str, shapes: dict[str, Shape], **attributes: Any) -> Any:
    """Run an operator on ones, of the shapes of its example except for these."""
    given = arguments(name, **attributes)
    given.update({key: np.ones(shape, np.float32) for key, shape in shapes.items()})
    return run_any(name, **given)


def axes(provider: FakeProvider) -> dict[str, Any]:
    return dict(provider.calls[-1].axes)


@pytest.mark.parametrize(
    ("axis", "rows", "columns"),
    [(0, (), (2, 3, 4)), (1, (2,), (3, 4)), (2, (2, 3), (4,)), (-1, (2, 3), (4,)), (-3, (), (2, 3, 4))],
)
def test_the_axis_attribute_cuts_the_shape_into_rows_and_columns(
    provider: FakeProvider, axis: int, rows: Shape, columns: Shape
) -> None:
    shapes = {"Y_grad": (2, 3, 4), "X": (2, 3, 4), "scale": columns, "inv_std_var": rows}
    shaped(SIMPLE, shapes, axis=axis)
    assert axes(provider) == {"rows": rows, "columns": columns}


@pytest.mark.parametrize(
    ("scale", "statistics"),
    [((3, 4), (2,)), ((12,), (2,)), ((3, 4), (2, 1, 1)), ((12,), (2, 1, 1))],
)
def test_parameters_may_be_flat_and_statistics_may_end_in_ones(
    provider: FakeProvider, scale: Shape, statistics: Shape
) -> None:
    shapes = {"Y_grad": (2, 3, 4), "X": (2, 3, 4), "scale": scale, "mean": statistics, "inv_std_dev": statistics}
    result = shaped(LAYER, shapes, axis=1)
    assert axes(provider) == {"rows": (2,), "columns": (3, 4)}
    assert result.scale_grad.shape == result.bias_grad.shape == scale


@pytest.mark.parametrize("spatial", [(), (5,), (5, 7), (2, 3, 4), (1, 2, 3, 4)])
def test_batch_norm_takes_any_number_of_spatial_dimensions(provider: FakeProvider, spatial: Shape) -> None:
    shaped(BATCH, {"dY": (4, 3, *spatial), "X": (4, 3, *spatial)})
    assert axes(provider) == {"N": 4, "C": 3, "spatial": spatial}


@pytest.mark.parametrize("shape", [(17,), (2, 17), (0, 17), (2, 3, 4, 5, 17)])
def test_gelu_takes_any_rank_from_one(provider: FakeProvider, shape: Shape) -> None:
    shaped(GELU, {"dY": shape, "X": shape, "B": (17,)})
    assert axes(provider) == {"rows": shape[:-1], "columns": 17}


@pytest.mark.parametrize("statistics", [(1, 1), (6, 1), (1, 9), (6, 9)])
def test_dml_statistics_have_size_one_or_that_of_the_input(provider: FakeProvider, statistics: Shape) -> None:
    shapes = {"Input": (6, 9), "InputGradient": (6, 9)}
    shaped(DML, {**shapes, **dict.fromkeys(("Mean", "Variance", "Scale"), statistics)})
    assert axes(provider) == {"sizes": (6, 9), "statistics": statistics}


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        # sizes
        (
            LAYER,
            {"X": (5, 40)},
            "input X has shape (5, 40): axis 0 (rows) is 5; expected 6, as input Y_grad has shape (6, 40)",
        ),
        (
            LAYER,
            {"X": (6, 41)},
            "input X has shape (6, 41): axis 1 (columns) is 41; expected 40, as input Y_grad has shape (6, 40)",
        ),
        (
            LAYER,
            {"scale": (39,)},
            "input scale has shape (39,): axis 0 (columns) is 39; expected 40, as input Y_grad has shape (6, 40); "
            "also taken: (columns folded into one)",
        ),
        (
            LAYER,
            {"mean": (6, 2)},
            "input mean has shape (6, 2): rank 2; expected rank 1, (rows (1)); also taken: (rows (1), 1) "
            "or (rows folded into one)",
        ),
        (
            GELU,
            {"B": (41,)},
            "input B has shape (41,): axis 0 (columns) is 41; expected 40, as input dY has shape (6, 40)",
        ),
        (
            BATCH,
            {"X": (4, 3, 5, 8)},
            "input X has shape (4, 3, 5, 8): axis 3 (spatial) is 8; expected 7, as input dY has shape (4, 3, 5, 7)",
        ),
        (
            BATCH,
            {"saved_mean": (4,)},
            "input saved_mean has shape (4,): axis 0 (C) is 4; expected 3, as input dY has shape (4, 3, 5, 7)",
        ),
        (
            DML,
            {"Mean": (1, 2, 1, 1)},
            "input Mean has shape (1, 2, 1, 1): axis 1 is 2; expected 1 or 3, as input Input has shape (4, 3, 5, 7)",
        ),
        (
            DML,
            {"Scale": (1, 1, 1, 1)},
            "input Scale has shape (1, 1, 1, 1): axis 1 (statistics) is 1; expected 3, "
            "as input Mean has shape (1, 3, 1, 1)",
        ),
        # ranks
        (
            LAYER,
            {"X": (2, 3, 40)},
            "input X has shape (2, 3, 40): rank 3; expected rank 2, (rows (1), columns (1))",
        ),
        (GELU, {"dY": ()}, "input dY has shape (): rank 0; expected at least rank 1, (rows..., columns)"),
        (BATCH, {"dY": (4,)}, "input dY has shape (4,): rank 1; expected at least rank 2, (N, C, spatial...)"),
        (BATCH, {"Scale": (3, 1)}, "input Scale has shape (3, 1): rank 2; expected rank 1, (C)"),
        (DML, {"Input": ()}, "input Input has shape (): 0 sizes dimensions; expected 1 to 8"),
        (DML, {"Input": (1,) * 9}, f"input Input has shape {(1,) * 9}: 9 sizes dimensions; expected 1 to 8"),
        (DML, {"Mean": (3,)}, "input Mean has shape (3,): rank 1; expected rank 4, (statistics (4))"),
        (CONV, {"X": (2, 6)}, "input X has shape (2, 6): rank 2; expected rank 4, (N, C, spatial (2))"),
        (CONV, {"dY": (2, 4), "X": (2, 6)}, "input X has shape (2, 6): 0 spatial dimensions; expected 1 to 3"),
        (
            CONV,
            {"dY": (2, 4, 1, 1, 1, 1), "X": (2, 6, 1, 1, 1, 1)},
            "input X has shape (2, 6, 1, 1, 1, 1): 4 spatial dimensions; expected 1 to 3",
        ),
        (
            CONV,
            {"W": (4, 6, 3)},
            "input W has shape (4, 6, 3): rank 3; expected rank 4, (M, C_per_group, kernel (2))",
        ),
        (
            CONV,
            {"dY": (2, 4, 9)},
            "input X has shape (2, 6, 9, 8): rank 4; expected rank 3, (N, C, spatial (1))",
        ),
        # convolution: sizes that follow from one another
        (
            CONV,
            {"X": (3, 6, 9, 8)},
            "input X has shape (3, 6, 9, 8): axis 0 (N) is 3; expected 2, as input dY has shape (2, 4, 9, 8)",
        ),
        (
            CONV,
            {"W": (5, 6, 3, 3)},
            "input W has shape (5, 6, 3, 3): axis 0 (M) is 5; expected 4, as input dY has shape (2, 4, 9, 8)",
        ),
        (CONV, {"dY": (2, 4, 9, 9)}, "input dY has spatial shape (9, 9); the forward convolution gives (9, 8)"),
        (CONV, {"W": (4, 5, 3, 3)}, "input X has 6 channels (axis 1); W's axis 1 is 5 with group 1, which needs 5"),
        (CONV, {"W": (4, 6, 0, 3)}, "input W has kernel (0, 3); every axis of it needs at least 1 element"),
        (
            CONV,
            {"W": (4, 6, 12, 3)},
            "the kernel covers (12, 3) with dilation, larger than the padded input (11, 10): "
            "the forward convolution has no output",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_both_arrays_and_the_axis(
    provider: FakeProvider, name: str, shapes: dict[str, Shape], expected: str
) -> None:
    assert message(ShapeError, shaped, name, shapes) == f"{name}: {expected}"
    assert not provider.calls


@pytest.mark.parametrize(
    ("shapes", "attributes", "expected"),
    [
        ({}, {"group": 2}, "input X has 6 channels (axis 1); W's axis 1 is 6 with group 2, which needs 12"),
        (
            {"W": (4, 2, 3, 3)},
            {"group": 3},
            "input W has 4 filters (axis 0); M must be divisible by group, which is 3",
        ),
        ({}, {"kernel_shape": [3, 2]}, "kernel_shape (3, 2) disagrees with W, whose kernel is (3, 3)"),
        ({}, {"pads": [0, 0, 0, 0]}, "input dY has spatial shape (9, 8); the forward convolution gives (7, 6)"),
        ({}, {"strides": [2, 1]}, "input dY has spatial shape (9, 8); the forward convolution gives (5, 8)"),
        (
            {},
            {"auto_pad": "VALID", "pads": None},
            "input dY has spatial shape (9, 8); the forward convolution gives (7, 6)",
        ),
    ],
)
def test_convolution_attributes_that_do_not_fit_the_shapes_are_refused(
    provider: FakeProvider, shapes: dict[str, Shape], attributes: dict[str, Any], expected: str
) -> None:
    assert message(ShapeError, shaped, CONV, shapes, **attributes) == f"ConvGrad: {expected}"


def test_an_array_without_axes_has_no_axis_to_normalize(provider: FakeProvider) -> None:
    expected = f"{LAYER}: attribute axis is -1, but input X has rank 0; it has no axis"
    assert message(AttributeValueError, shaped, LAYER, {"X": ()}) == expected
