"""How arrays reach CPU kernels: without a copy where they are dense, whole and unharmed where they are not."""

import math
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradkern.call import Call, Tensor
from gradkern.cpu.element_types import OVER
from gradkern.cpu.flat_plan import FlatPlan
from gradkern.cpu.runs import Runs
from gradkern.policy import Policy
from gradkern.strides import is_dense


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(array.dtype, array.shape, array.strides, array.dtype.itemsize if array.flags.aligned else 1)


def call(X: np.ndarray, Y: np.ndarray, in_place: frozenset = frozenset()) -> Call:
    return Call("op", {"X": tensor(X)}, {"Y": tensor(Y)}, {}, {}, in_place, "cpu", Policy())


def copying(seen: list) -> Callable[[list, list], None]:
    def launch(read: list, write: list) -> None:
        seen.extend([read[0], write[0]])
        write[0][:] = read[0]

    return launch


def through(X: np.ndarray, Y: np.ndarray, **options: Any) -> tuple[FlatPlan, list]:
    seen: list = []
    plan = FlatPlan(call(X, Y), kernel="copy", outputs=("Y",), launch=copying(seen), **options)
    plan((X,), (Y,), None)
    return plan, seen


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


LAYOUTS = {
    "dense": lambda array: array,
    "columns first": np.asfortranarray,
    "every other": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "unaligned": unaligned,
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("of_output", LAYOUTS)
@pytest.mark.parametrize("of_input", LAYOUTS)
def test_every_layout_arrives(of_input: str, of_output: str, dtype: type, rng: np.random.Generator) -> None:
    values = rng.standard_normal((3, 4, 5)).astype(dtype)
    X, Y = LAYOUTS[of_input](values), LAYOUTS[of_output](np.zeros_like(values))
    plan, (read, write) = through(X, Y)
    np.testing.assert_array_equal(Y.astype(np.float64), values.astype(np.float64))
    assert np.shares_memory(read, X) == (of_input == "dense")
    assert np.shares_memory(write, Y) == (of_output == "dense")
    assert plan.scratch == values.nbytes * ((of_input != "dense") + (of_output != "dense"))


def test_channels_last_arrays_are_taken_as_they_are_where_wanted(rng: np.random.Generator) -> None:
    order = (0, 2, 3, 1)
    X, Y = (rng.standard_normal((2, 5, 6, 3)).transpose(0, 3, 1, 2) for _ in range(2))
    plan, seen = through(X, Y, orders={"X": order, "Y": order})
    assert plan.scratch == 0
    assert all(np.shares_memory(*pair) for pair in zip(seen, (X, Y), strict=True))
    np.testing.assert_array_equal(X, Y)


def test_a_read_only_array_is_seen_writeable_without_a_copy_and_stays_as_it_was(rng: np.random.Generator) -> None:
    X = rng.standard_normal((3, 4)).astype(np.float32)
    X.flags.writeable = False
    _, (read, _) = through(X, np.empty_like(X))
    assert read.flags.writeable
    assert np.shares_memory(read, X)
    assert not X.flags.writeable


def test_an_output_over_an_input_is_a_marker_only_where_nothing_is_copied(rng: np.random.Generator) -> None:
    for layout, expected in (("dense", OVER[1][0]), ("every other", None)):
        X = LAYOUTS[layout](rng.standard_normal((3, 4)))
        seen: list = []
        described = call(X, X, frozenset({("X", "Y")}))
        FlatPlan(
            described,
            kernel="",
            outputs=("other", "Y"),
            launch=lambda read, write, seen=seen: seen.extend(write),
            over=("D", "X"),
        )((X,), (X,), None)
        assert seen[0] is None
        assert seen[1] is expected or (expected is None and isinstance(seen[1], np.ndarray))
    assert OVER[0][0] is not OVER[1][0]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_dense_means_that_flattening_makes_no_copy(rank: int) -> None:
    every = (product(range(1, 4), repeat=rank), product((1, 2), repeat=rank), permutations(range(rank)))
    for shape, steps, order in product(*every):
        whole = np.zeros([size * step for size, step in zip(shape, steps, strict=True)])
        array = whole[tuple(slice(None, None, step) for step in steps)]
        flat = array.transpose(order).reshape(-1)
        assert is_dense(tensor(array), order) == (np.shares_memory(flat, array) and flat.strides == (8,))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=6))
def test_the_runs_of_batch_norm_reach_every_element_once_under_its_channel(axes: list[tuple[int, bool]]) -> None:
    sizes, channels = [size for size, _ in axes], [is_channel for _, is_channel in axes]
    runs = Runs.of(sizes, channels)
    shape = [size if is_channel else 1 for size, is_channel in axes]
    channel = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), sizes).ravel()
    assert runs.channels == math.prod(shape)
    found = np.full(channel.size, -1)
    for index, begin in enumerate(runs.channel_offsets):
        for place in runs.reduced_offsets:
            for at in range(min(runs.length, channel.size - begin - place)):
                assert found[begin + place + at] == -1
                plain = runs.length // runs.folded
                found[begin + place + at] = index * plain + at % plain if runs.columns else index
    np.testing.assert_array_equal(found, channel)
