"""Arrays that are computed element by element on the CPU: one loop, for up to three inputs and outputs of one shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.compile import INLINE, Kernel, by_types, kernel, widest_vectors
from gradkern.cpu.element_types import arithmetic_type, destination, load, real, store
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.threads import QUEUE, take
from gradkern.strides import is_dense, memory_order

_SPAN = 1 << 14  # elements of one task
Numbers = Callable[[Mapping[str, Any]], Sequence[float]]


def elementwise_kernel(element: Any) -> Kernel:
    """The kernel of element(x0, x1, x2, r, one) -> (y0, y1, y2), a function that Numba has inlined: r are the call's
    numbers and `one` is 1, in the type of arithmetic; x of inputs that are not there repeat the first. Only the results
    of outputs that are wanted are stored.
    """

    def elements(
        queue: Any, X0: Any, X1: Any, X2: Any, Y0: Any, Y1: Any, Y2: Any, size: int, n0: float, n1: float, n2: float
    ) -> None:
        widest_vectors()
        T0, T1, T2 = destination(Y0, X0, X1, X2), destination(Y1, X0, X1, X2), destination(Y2, X0, X1, X2)
        r, one = (real(X0, n0), real(X0, n1), real(X0, n2)), real(X0, 1)
        task = take(queue)
        while task >= 0:
            begin = task * _SPAN
            for n in range(begin, min(begin + _SPAN, size)):
                y0, y1, y2 = element(_read(X0, n, X0), _read(X1, n, X0), _read(X2, n, X0), r, one)
                _write(T0, n, y0)
                _write(T1, n, y1)
                _write(T2, n, y2)
            task = take(queue)

    # of the cached file: whose name it has, and whose sources it depends on
    elements.__qualname__, elements.__module__ = element.py_func.__name__, element.py_func.__module__
    return kernel(elements)


@by_types(**INLINE)
def _read(array: Any, n: Any, first: Any) -> Any:
    """Element n in the type of arithmetic on `first`; of that where there is no array. Of bool 0 or 1; of words of 32
    bits, bit n of all.
    """
    kind = arithmetic_type(first)

    def absent(array: Any, n: Any, first: Any) -> Any:
        return load(first, n)

    def whole(array: Any, n: Any, first: Any) -> Any:
        return kind(array[n])

    def bit(array: Any, n: Any, first: Any) -> Any:
        return kind((array[n >> 5] >> types.uint32(n & 31)) & types.uint32(1))

    def element(array: Any, n: Any, first: Any) -> Any:
        return load(array, n)

    if array == types.none:
        return absent
    return {types.uint8: whole, types.uint32: bit}.get(array.dtype, element)


@by_types(**INLINE)
def _write(array: Any, n: Any, value: Any) -> Any:
    """Element n, where there is an array. As bool every value but 0 is true."""

    def nothing(array: Any, n: Any, value: Any) -> None:
        pass

    def truth(array: Any, n: Any, value: Any) -> None:
        array[n] = value != 0

    def element(array: Any, n: Any, value: Any) -> None:
        store(array, n, value)

    if array == types.none:
        return nothing
    return truth if array.dtype == types.uint8 else element


def floats_of(values: Mapping[str, Any]) -> list[float]:
    """The attributes that are floats, in contract order."""
    return [each for each in values.values() if isinstance(each, float)]


def elementwise_plan(
    call: Call,
    compiled_of: Kernel,
    inputs: Sequence[str],
    outputs: Sequence[str],
    numbers: Numbers = floats_of,
    bits: str = "",
) -> FlatPlan:
    """The plan of a call whose kernel has these inputs and outputs, as far as the call has them.

    numbers  what an element takes of the attributes and the numbers on the host, by name; at most three
    bits     the input that has a bit for each element
    """
    tensors = {**call.inputs, **call.outputs}
    arrays = [tensors[name] for name in (*inputs, *outputs) if name in tensors and name != bits]
    rank = range(len(arrays[0].shape))
    order = tuple(rank) if bits else memory_order(arrays[-1])  # elements may be in any order that all share
    if not all(is_dense(each, order) for each in arrays):
        order = tuple(rank)
    size, nbytes = arrays[-1].size, sum(each.nbytes for each in tensors.values())
    read_at = {name: place for place, name in enumerate((*call.inputs, *call.scalars))}
    places = [read_at.get(name) for name in inputs]
    padding = [None] * (3 - len(inputs))
    kinds = [argument_type(call, name, inputs, order) for name in (*inputs, *outputs)]
    kinds[len(inputs) : len(inputs)] = [types.none] * len(padding)
    kinds += [types.none] * (6 - len(kinds))
    compiled = compiled_of(QUEUE, *kinds, types.int64, *[types.float64] * 3)

    def launch(read: list[Any], write: list[Any]) -> None:
        values = {**call.attributes, **{name: read[read_at[name]] for name in call.scalars}}
        given = ([float(each) for each in numbers(values)] + [0.0] * 3)[:3]
        flat = [None if place is None else read[place] for place in places]
        unwanted = [None] * (3 - len(write))
        threads.run(compiled, -(-size // _SPAN), nbytes, *flat, *padding, *write, *unwanted, size, *given)

    orders = {name: None if name == bits else order for name in (*inputs, *outputs)}
    repeatable = not call.scalars
    return FlatPlan(
        call, kernel="elements", outputs=outputs, launch=launch, over=inputs, orders=orders, repeatable=repeatable
    )
