"""The same bits wherever arrays lie: LLVM takes the vector code of a loop only where its arrays are not too near."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any

import gradkern
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example, shape_of

pytestmark = pytest.mark.thorough

LENGTHS = (3, 17, 26, 40, 53, 70)
AXES: dict[str, Callable[[int], Any]] = {
    "layer_norm": lambda n: {"rows": (2,), "columns": (n,)},
    "gather": lambda n: {  # of each operator's axes those that it has
        "before": (),
        "V": 5,
        "after": (n,),
        "gathered": (4,),
        "d0": 2,
        "d1": 3,
        "total": 4,
        "outer": (),
        "K": 4,
        "inner": (n,),
        "batch": (),
        "q": 1,
        "indexed": (5,),
        "slice": (n,),
    },
    "local_response_norm": lambda n: {"N": 2, "C": 3, "spatial": (n,)},
    "softmax": lambda n: {"rows": (2,), "columns": (n,)},
    "cross_entropy": lambda n: {"N": 2, "C": n, "spatial": (), "rows": (2,)},
    "activation": lambda n: {"sizes": (2, n)},
    "finite": lambda n: {"sizes": (2, n)},
    "scaling": lambda n: {"sizes": (2, n), "a": (2, n), "b": (2, n)},
    "gated": lambda n: {"sizes": (2, n)},
    "dropout": lambda n: {"sizes": (2, n), "words": -(-2 * n // 32)},
    "rotary_embedding": lambda n: {"B": 1, "N": 2, "S": 1, "D": 2 * n, "cached": (1, 1), "half": n},
    "bias_gelu": lambda n: {"rows": (2,), "columns": n},
    "batch_norm": lambda n: {"N": 2, "C": 2, "spatial": (n,), "numbers": 4},
    "dml_batch_norm": lambda n: {"sizes": (2, 2, n), "statistics": (1, 2, 1)},
}
BY_MATRIX_PRODUCTS = {"conv"}  # whose vector code is the BLAS library's
BY_ELEMENTS = {"pooling", "resize", "roi_align"}  # an element's sum has one order, in vector code or not
BY_BATCH_NORMS = {"group_norm"}  # each channel of each sample is one of a batch norm, whose kernels these are
BY_NUMPY = {"BatchNormalizationMergeStatistics", "LinearCrossEntropy", "SliceGrad", "DmlSliceGrad", "FlattenAndUnpad"}
SMALL = [
    name
    for name, operator in gradkern.operators().items()
    if operator.family not in BY_MATRIX_PRODUCTS | BY_ELEMENTS | BY_BATCH_NORMS and name not in BY_NUMPY
]


def laid(arrays: dict[str, np.ndarray], order: tuple[str, ...], gap: int) -> dict[str, np.ndarray]:
    """Copies of the arrays in one buffer, in this order, `gap` bytes apart."""
    starts, at = {}, 0
    for name in order:
        starts[name] = at
        at += -(-arrays[name].nbytes // 16) * 16 + gap
    memory = np.empty(at + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    placed = {}
    for name in order:
        array, start = arrays[name], skip + starts[name]
        placed[name] = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        placed[name][...] = array
    return placed


@pytest.mark.parametrize(
    "dtype",
    ["float32", *(pytest.param(each, marks=pytest.mark.every_kernel) for each in ("float64", "bfloat16"))],
)
@pytest.mark.parametrize("name", SMALL)
def test_bits_do_not_depend_on_where_arrays_lie(name: str, dtype: str) -> None:
    operator = gradkern.operators()[name]
    types = next(row for row in operator.combinations if row[operator.data.type] == dtype)
    for length in LENGTHS:
        attributes: dict[str, Any] = {key: 1 for key, each in operator.attributes.items() if each.required}
        attributes |= {"Epsilon": 1e-5} if "Epsilon" in operator.attributes else {}
        attributes |= {"scale_2": 0.5} if name == "BatchScale" else {}
        attributes |= {"count": 2 * length + 4} if name.endswith("FromSums") else {}
        axes = AXES[operator.family](length) | ({"numbers": 5} if name.endswith("Statistics") else {})
        example = Example(axes=axes, attributes=attributes)
        attributes |= {each.name: shape_of(each.gives, axes) for each in operator.inputs if each.gives}
        inputs = inputs_of(operator, types, example, np.random.default_rng(length))
        shapes = {
            each.name: inputs[each.like].shape if each.like else shape_of(each.shape or (), example.axes)
            for each in operator.outputs
        }
        outputs = {each.name: np.empty(shapes[each.name], types[each.type]) for each in operator.outputs}
        arrays = {**inputs, **outputs}
        names = tuple(arrays)
        big = [each for each in names if arrays[each].size > length]
        orders = [(*order, *(each for each in names if each not in big)) for order in permutations(big)]
        expected = None
        for order, gap in [(names, 1 << 13), *((order, gap) for order in orders for gap in (0, 32, 96))]:
            placed = laid(arrays, order, gap)
            out = {each: placed[each] for each in outputs}
            run_any(name, **{each: placed[each] for each in inputs}, **attributes, out=out)
            bits = {each: array.tobytes() for each, array in out.items()}
            expected = expected or bits
            assert bits == expected, f"{length} elements, {order} {gap} bytes apart: other bits than far apart"
