"""ONNX's own operators for tensors of PyTorch: what a training graph holds between gradkern's operators.

Each is a function of PyTorch's module, the inputs in order and the attributes by name. What is not here is computed by
onnx.reference, and tensors are copied to the host for that.
"""

from __future__ import annotations

import math
import operator as arithmetic
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from gradkern.onnx.table import Entry, Table

_SAME = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "IsNaN", "Log", "Neg", "Reciprocal", "Relu", "Round")
_SAME += ("Sigmoid", "Sign", "Sin", "Sqrt", "Tan", "Tanh")
"""Those that PyTorch has by the same name, in small letters."""

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": arithmetic.add,
    "And": arithmetic.and_,
    "Equal": arithmetic.eq,
    "Greater": arithmetic.gt,
    "GreaterOrEqual": arithmetic.ge,
    "Less": arithmetic.lt,
    "LessOrEqual": arithmetic.le,
    "MatMul": arithmetic.matmul,
    "Mul": arithmetic.mul,
    "Or": arithmetic.or_,
    "Sub": arithmetic.sub,
    "Xor": arithmetic.xor,
}

_REDUCTIONS: dict[str, Callable[[Any, Sequence[int], bool], Any]] = {
    "ReduceL2": lambda x, axes, keep: x.square().sum(axes, keep).sqrt(),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keep),
}

_OF_FLOATS = [_REDUCTIONS[name] for name in ("ReduceL2", "ReduceMean")]


def _same(name: str, torch: Any, x: Any) -> Any:
    return getattr(torch, name)(x)


def _binary(function: Callable[[Any, Any], Any], torch: Any, a: Any, b: Any) -> Any:
    return function(a, b)


def _reduction(function: Callable[[Any, Sequence[int], bool], Any]) -> Callable[..., Any]:
    def compute(
        torch: Any, data: Any, given: Any = None, *, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        chosen = _list(given, axes)
        if not chosen and noop_with_empty_axes:
            return data
        if function in _OF_FLOATS and not data.is_floating_point():
            raise NotImplementedError("PyTorch has it for floats alone")
        return function(data, tuple(chosen or range(data.ndim)), bool(keepdims))

    return compute


def _list(given: Any, attribute: Any) -> list[int] | None:
    """An operand that was an attribute in older versions of the operator."""
    return attribute if given is None else np.atleast_1d(given).tolist()


def _unsqueeze(torch: Any, data: Any, given: Any = None, *, axes: Any = None) -> Any:
    chosen = _list(given, axes) or []
    return reduce(lambda x, axis: x.unsqueeze(axis), sorted(each % (data.ndim + len(chosen)) for each in chosen), data)


def _squeeze(torch: Any, data: Any, given: Any = None, *, axes: Any = None) -> Any:
    chosen = _list(given, axes)
    return data.squeeze() if chosen is None else data.squeeze(tuple(chosen))


def _split(torch: Any, x: Any, given: Any = None, *, axis: int = 0, split: Any = None, num_outputs: int = 0) -> Any:
    size = _list(given, split) or (num_outputs and -(-x.shape[axis] // num_outputs))
    if not size:
        raise NotImplementedError("sizes follow from the number of outputs")
    parts = tuple(x.split(size, axis))
    if len(parts) < num_outputs:
        raise NotImplementedError("PyTorch makes no parts that are empty")
    return parts


def _reshape(torch: Any, data: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = enumerate(shape.tolist())
    return data.reshape([data.shape[at] if size == 0 and not allowzero else size for at, size in sizes])


def _slice(torch: Any, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = at if axes is None else int(axes[at]) % data.ndim
        step = 1 if steps is None else int(steps[at])
        if step > 0:
            data = data[(slice(None),) * axis + (slice(start, end, step),)]
        else:
            every = list(range(data.shape[axis])[start:end:step])
            data = data.index_select(axis, torch.tensor(every, dtype=torch.int64, device=data.device))
    return data


def _positive(torch: Any, indices: Any, size: int) -> Any:
    return torch.where(indices < 0, indices + size, indices).long()


def _gather(torch: Any, data: Any, indices: Any, *, axis: int = 0) -> Any:
    axis %= data.ndim
    rows = data.index_select(axis, _positive(torch, indices.reshape(-1), data.shape[axis]))
    return rows.reshape((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


def _gemm(
    torch: Any, A: Any, B: Any, C: Any = None, *, alpha: float = 1, beta: float = 1, transA: int = 0, transB: int = 0
) -> Any:
    A, B = A.T if transA else A, B.T if transB else B
    if C is None or beta == 0:
        return A @ B if alpha == 1 else A @ B * alpha
    return torch.addmm(C, A, B, alpha=alpha, beta=beta)


def _clip(torch: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    bounds = [None if each is None else each.item() for each in (low, high)]
    return x if bounds == [None, None] else x.clamp(*bounds)


def _cast(torch: Any, x: Any, *, to: int, saturate: int = 1) -> Any:
    from onnx import helper

    kind = getattr(torch, np.dtype(helper.tensor_dtype_to_np_dtype(to)).name, None)
    if kind is None or (kind.itemsize == 1 and kind.is_floating_point):
        raise NotImplementedError("PyTorch does not have the type, or rounds what is beyond its numbers otherwise")
    return x.to(kind)


def _average_pool(
    torch: Any,
    X: Any,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (),
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    auto_pad: str = "NOTSET",
) -> Any:
    rank = X.ndim - 2
    before, after = tuple(pads[:rank]), tuple(pads[rank:])
    if before != after or ceil_mode or auto_pad != "NOTSET":
        raise NotImplementedError("PyTorch pads both sides alike, and counts padding otherwise with ceil_mode")
    pool = getattr(torch.nn.functional, f"avg_pool{rank}d")
    steps = tuple(strides) or (1,) * rank
    return pool(X, tuple(kernel_shape), steps, before or 0, count_include_pad=bool(count_include_pad))


def _batch_norm(
    torch: Any, X: Any, scale: Any, B: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0,
) -> Any:  # fmt: skip
    if training_mode or len({each.dtype for each in (X, scale, B, mean, variance)}) > 1:
        raise NotImplementedError("PyTorch returns no running statistics, and takes one type")
    return torch.nn.functional.batch_norm(X, mean, variance, scale, B, False, 0.0, epsilon)


_OTHERS: dict[str, tuple[Callable[..., Any], Sequence[int]]] = {
    "AveragePool": (_average_pool, ()),
    "BatchNormalization": (_batch_norm, ()),
    "Cast": (_cast, ()),
    "Clip": (_clip, (1, 2)),
    "Concat": (lambda torch, *inputs, axis: torch.cat(inputs, axis), ()),
    "Div": (lambda torch, a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"), ()),
    "Expand": (lambda torch, x, shape: x.expand(np.broadcast_shapes(tuple(x.shape), tuple(shape.tolist()))), (1,)),
    "Flatten": (
        lambda torch, x, *, axis=1: x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),
        (),
    ),
    "Gather": (_gather, ()),
    "GatherElements": (
        lambda torch, x, index, *, axis=0: x.gather(axis, _positive(torch, index, x.shape[axis])),
        (),
    ),
    "Gelu": (lambda torch, x, *, approximate="none": torch.nn.functional.gelu(x, approximate=approximate), ()),
    "Gemm": (_gemm, ()),
    "GlobalAveragePool": (lambda torch, x: x.mean(tuple(range(2, x.ndim)), keepdim=True), ()),
    "Identity": (lambda torch, x: x, ()),
    "LogSoftmax": (lambda torch, x, *, axis=-1: x.log_softmax(axis), ()),
    "Max": (lambda torch, *inputs: reduce(torch.maximum, inputs), ()),
    "Min": (lambda torch, *inputs: reduce(torch.minimum, inputs), ()),
    "Not": (lambda torch, x: ~x, ()),
    "Pow": (lambda torch, a, b: torch.pow(a, b).to(a.dtype), ()),
    "Reshape": (_reshape, (1,)),
    "Shape": (lambda torch, x, *, start=0, end=None: np.array(tuple(x.shape)[start:end], np.int64), ()),
    "Size": (lambda torch, x: np.array(x.numel(), np.int64), ()),
    "Slice": (_slice, (1, 2, 3, 4)),
    "Softmax": (lambda torch, x, *, axis=-1: x.softmax(axis), ()),
    "Softplus": (lambda torch, x: torch.nn.functional.softplus(x), ()),
    "Split": (_split, (1,)),
    "Squeeze": (_squeeze, (1,)),
    "Sum": (lambda torch, *inputs: reduce(arithmetic.add, inputs), ()),
    "Transpose": (lambda torch, x, *, perm=None: x.permute(tuple(perm or reversed(range(x.ndim)))), ()),
    "Trilu": (lambda torch, x, k=None, *, upper=1: (x.triu if upper else x.tril)(0 if k is None else int(k)), (1,)),
    "Unsqueeze": (_unsqueeze, (1,)),
    "Where": (lambda torch, condition, x, y: torch.where(condition, x, y), ()),
}


def _made() -> Table:
    functions: dict[str, tuple[Callable[..., Any], Sequence[int]]] = dict(_OTHERS)
    functions |= {each: (partial(_same, each.lower()), ()) for each in _SAME}
    functions |= {name: (partial(_binary, each), ()) for name, each in _BINARY.items()}
    functions |= {name: (_reduction(each), (1,)) for name, each in _REDUCTIONS.items()}
    return Table({("", name): Entry(each, frozenset(host)) for name, (each, host) in functions.items()})


ONNX = _made()
