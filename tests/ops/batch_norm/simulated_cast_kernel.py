"""The kernel that brings a batch norm's vectors into the type of the arithmetic and back, under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import simulated
from helpers.guarded import Guarded

from gradkern.ops.batch_norm.cuda.cast_kernel import ARGUMENTS, build

GRID, THREADS, COUNT = 2, 32, 150


@pytest.mark.parametrize("vectors", [1, 2, 3])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float16", "float32"),
        ("float32", "float16"),
        ("bfloat16", "float32"),
        ("float32", "bfloat16"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_vectors_are_cast_element_by_element_whatever_lies_between(source: str, target: str, vectors: int) -> None:
    rng = np.random.default_rng(vectors)
    given, expected = [COUNT], []
    for number in range(vectors):
        read, written = (
            Guarded((COUNT, 1), kind, 0, (1 + number) * np.dtype(kind).itemsize) for kind in (source, target)
        )
        read.array[...] = rng.standard_normal((COUNT, 1))
        given += [read.address, read.array.strides[0], written.address, written.array.strides[0]]
        expected.append((read, written))
    given += [0] * (ARGUMENTS - len(given))
    arguments = tuple(np.int64(each) for each in given)
    simulated.launch(build(source, target, vectors), GRID, THREADS, 1, 0, arguments)
    for read, written in expected:
        written.check()
        assert written.array.tobytes() == read.array.astype(target).tobytes()
