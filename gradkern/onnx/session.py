"""Running a checked graph: node after node, each value kept until its last use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from shutil import get_terminal_size
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradkern.dispatch.run import run
from gradkern.errors import ArgumentError, DataError, DeviceError, DTypeError, GradkernError, ShapeError, nearest
from gradkern.onnx.arrays import dtype_name, is_tensor, namespace, storage, to_device, to_host
from gradkern.onnx.onnx_ops import ONNX
from gradkern.onnx.table import Entry

if TYPE_CHECKING:
    from gradkern.onnx.graph import Graph, Node

Results = Sequence[Any]
_SHOWN = 20
_NUMBERS = (bool, int, float, list, tuple, np.generic)


class Report(list[dict[str, Any]]):
    """What computed each node of a session, and how long it took."""

    def __str__(self) -> str:
        rows = sorted(self, key=lambda row: -(row["seconds"] or 0))
        width = max((len(row["by"]) for row in rows), default=0)
        columns = max(40, get_terminal_size().columns)
        lines: list[str] = []
        for row in rows[:_SHOWN]:
            why = row["why"] and f" ({row['why']})"
            lines.append(f"{_time([row])}  {row['by']:<{width}}  {row['name']}{why}")
        others = [("others", rows[_SHOWN:])] * (len(rows) > _SHOWN)
        lines += [f"{_time(several)}  {len(several)} {title}" for title, several in (*others, ("nodes", rows))]
        return "\n".join(line[:columns] for line in lines)


def _time(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(row['seconds'] or 0 for row in rows) * 1e3:10.3f} ms"


class Session:
    """A model that is ready to run. Made by `gradkern.onnx.load`.

    inputs    names of the graph's inputs; those that are initializers, too, need not be given
    outputs   names of its outputs
    updated   names of inputs that nodes update in place: weights, moments, buffers of gradients
    times     seconds that each node of the last run took, in the order of `report`
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.inputs = tuple(graph.inputs)
        self.outputs = graph.outputs
        written = {node.inputs[at] for node in graph.nodes if node.entry for at in node.entry.writes}
        self.updated = tuple(name for name in self.inputs if name in written)
        self.times: tuple[float, ...] = ()
        self._initializers: dict[str, Any] = {
            name: array.copy() if name in written else array for name, array in graph.initializers.items()
        }
        self._on_device: dict[tuple[str, Any], Any] = {}
        self._last_use = {name: at for at, node in enumerate(graph.nodes) for name in (*node.outputs, *node.inputs)}
        self._names = frozenset([*self.inputs, *graph.initializers, *self._last_use])
        self._ended: list[list[str]] = [[] for _ in graph.nodes]  # by node, what nobody reads after it
        for name, at in self._last_use.items():
            self._ended[at].append(name)
        self._ran: list[tuple[str, str]] = [self._planned(node) for node in graph.nodes]

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        stream: Any = None,
        synchronize: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """The outputs, by name, for inputs by name.

        inputs        NumPy arrays, or tensors of PyTorch on one device, and that computes; a list of arrays for a
                      sequence; numbers and lists of numbers for what the host reads. Those that are `updated` are
                      written in place, as ONNX Runtime does
        outputs       names of values of the graph; by default its outputs
        stream        a stream of PyTorch; by default its current one
        synchronize   wait for the GPU after each node, so that `times` has what each one takes there
        progress      called with the name of each node, before it is computed

        Inputs are checked against the graph before anything is computed; what a node refuses, by its shapes, names it.
        """
        graph = self._graph
        if not isinstance(inputs, Mapping):
            raise ArgumentError(f"inputs is a {type(inputs).__name__}; expected arrays by name")
        given = {name: self._checked(name, value) for name, value in inputs.items()}
        missing = [name for name in graph.inputs if name not in given and name not in self._initializers]
        if missing:
            raise ArgumentError(f"input {missing[0]} of the graph is missing; it takes {', '.join(self.inputs)}")
        _check_sizes({name: (graph.inputs[name], value) for name, value in given.items()})
        device = self._device_of(given)
        self._check_updated(inputs)
        wanted = self.outputs if outputs is None else (outputs,) if isinstance(outputs, str) else tuple(outputs)
        unknown = [name for name in wanted if name not in self._names]
        if unknown:
            raise ArgumentError(f"the graph has no value {unknown[0]!r}{nearest(unknown[0], self._names)}")
        values = {**self._initializers, **given, "": None}
        kept = {*values, *wanted}
        live = Counter(storage(each) for value in values.values() for each in _arrays(value))
        times: list[float] = []
        with _on(device, stream), np.errstate(all="ignore"):  # an infinity is a result as any other
            for at, node in enumerate(graph.nodes):
                if progress is not None:
                    progress(node.name)
                began = perf_counter()
                try:
                    results = self._compute(at, node, values, device, kept, live)
                except GradkernError as error:
                    raise type(error)(f"{node.name}: {error}") from error.__cause__
                except Exception as error:  # of NumPy, PyTorch or onnx.reference, about arrays that do not fit
                    raise DataError(f"{node.name}: {error.__cause__ or error}") from error
                lacking = [name for name in node.outputs[len(results) :] if name]
                if lacking:
                    raise DataError(f"{node.name}: it has {len(results)} results; expected {lacking[0]} besides")
                if synchronize and device is not None and device.type == "cuda":
                    _torch().cuda.synchronize(device)
                times.append(perf_counter() - began)
                for name, value in zip(node.outputs, results, strict=False):
                    if name:
                        values[name] = value
                        live.update(storage(each) for each in _arrays(value))
                for name in self._ended[at]:
                    if name not in kept and name in values:
                        live.subtract(storage(each) for each in _arrays(values.pop(name)))
        self.times = tuple(times)
        found = {name: self._current(name, values[name], device) for name in wanted}
        own = {storage(each) for each in (*self._initializers.values(), *self._on_device.values())}
        return {name: _copied(value, own) for name, value in found.items()}

    def report(self) -> Report:
        """Of each node, in the order of execution, a mapping: name, op and domain; by, what computed it in the last run
        (before one, what would on the host); why, where the registry's operator of this name does not, or what its
        memory is; and seconds. Printed, it is a table of the nodes that took longest.
        """
        times = self.times or (None,) * len(self._ran)
        return Report(
            {"name": node.name, "op": node.op, "domain": node.domain, "by": by, "why": why, "seconds": time}
            for node, (by, why), time in zip(self._graph.nodes, self._ran, times, strict=True)
        )

    def _planned(self, node: Node) -> tuple[str, str]:
        return ("gradkern" if node.operator else "gradkern.onnx" if node.entry else "onnx.reference"), node.reason

    def _compute(
        self, at: int, node: Node, values: dict[str, Any], device: Any, kept: set[str], live: Counter[int]
    ) -> Results:
        given = [values[name] for name in node.inputs]
        reason = node.reason
        if node.operator is not None:
            provider = "cuda" if device is not None and device.type == "cuda" else "cpu"
            if provider in node.operator.providers or not (node.entry or node.evaluator):
                return self._by_registry(at, node, given, device, kept, live)
            reason = f"gradkern has no provider {provider} for it"
        if node.entry is not None:
            self._ran[at] = "gradkern.onnx", reason
            return self._by_entry(at, node, node.entry, given, node.options, device, kept, live)
        on_device = any(is_tensor(each) for value in given for each in _arrays(value))
        plain = ONNX.get((node.domain, node.op)) if on_device else None
        if plain is not None and plain.attributes >= node.attributes.keys() and plain.accepts(len(given)):
            try:
                self._ran[at] = "torch", reason
                return self._by_entry(at, node, plain, given, node.attributes, device, kept, live)
            except (IndexError, RuntimeError) as error:  # NotImplementedError among them: the reference may take it
                if isinstance(error, _torch().OutOfMemoryError):
                    raise
                reason = str(error).partition("\n")[0]
        elif on_device:
            reason = "not among the operators for PyTorch"
        self._ran[at] = "onnx.reference", f"on the host: {reason}" if on_device else reason
        feeds = {name: to_host(value) for name, value in zip(node.inputs, given, strict=True) if name}
        names = [name for name in node.outputs if name]
        found = dict(zip(names, cast(Any, node.evaluator).run(names, feeds), strict=True))
        results = [found.get(name) for name in node.outputs]
        return [to_device(each, device) for each in results] if on_device else results

    def _by_entry(
        self,
        at: int,
        node: Node,
        entry: Entry,
        given: list[Any],
        options: Mapping[str, Any],
        device: Any,
        kept: set[str],
        live: Counter[int],
    ) -> Results:
        arguments = [
            to_host(value) if place in entry.host else self._moved(name, value, device)
            for place, (name, value) in enumerate(zip(node.inputs, given, strict=True))
        ]
        for place in entry.writes:
            name = node.inputs[place]
            if name not in self._graph.inputs and name not in self._initializers:  # a node's result, maybe a view
                last = self._is_last(at, node, name, kept)
                shared = {key for key, count in live.items() if count > 1 or not last}
                shared |= {storage(each) for each in _arrays(arguments[place]) if _unwritable(each)}
                arguments[place] = _copied(arguments[place], shared)
        moving = tuple(each for place, each in enumerate(arguments) if place not in entry.host)
        return entry.compute(namespace(moving or tuple(arguments)), arguments, options)

    def _by_registry(
        self, at: int, node: Node, given: list[Any], device: Any, kept: set[str], live: Counter[int]
    ) -> Results:
        operator = cast(Any, node.operator)
        arrays: dict[str, Any] = {}
        free: dict[str, Any] = {}  # inputs whose memory nobody reads after this node
        for name, value, each in zip(node.inputs, given, operator.inputs, strict=False):
            if value is None:
                continue
            if each.memory == "host" or (each.memory == "any" and not is_tensor(value)):
                value = to_host(value)
                arrays[each.name] = value.reshape(()) if each.is_scalar and value.size == 1 else value
                continue
            arrays[each.name] = self._moved(name, value, device)
            if (
                self._is_last(at, node, name, kept)
                and arrays[each.name] is value
                and live[storage(value)] == 1
                and _dense(value)
            ):
                free[each.name] = value
        wanted = [each.name for name, each in zip(node.outputs, operator.outputs, strict=False) if name]
        kinds = {each.name: each.type for each in operator.inputs}
        out: dict[str, Any] = {}
        for source, target in sorted(operator.in_place_pairs):
            output = next(each for each in operator.outputs if each.name == target)
            like = arrays.get(output.like)
            fits = source in free and like is not None and free[source].shape == like.shape
            if fits and target in wanted and target not in out and kinds[source] == output.type:
                out[target] = free.pop(source)
        self._ran[at] = "gradkern", "; ".join(filter(None, [node.reason, f"in place: {', '.join(out)}" if out else ""]))
        results = run(node.op, outputs=wanted, out=out, **arrays, **node.given)
        return [getattr(results, each.name, None) for each in operator.outputs]

    def _is_last(self, at: int, node: Node, name: str, kept: set[str]) -> bool:
        """Whether nobody reads the value after this node, nor the node itself a second time."""
        return self._last_use[name] == at and name not in kept and node.inputs.count(name) == 1

    def _current(self, name: str, value: Any, device: Any) -> Any:
        """The value; of an initializer, that on the device, as it may have been updated there."""
        return self._moved(name, value, device) if value is self._initializers.get(name) else value

    def _moved(self, name: str, value: Any, device: Any) -> Any:
        """The value on the device; an initializer's copy there is kept."""
        if device is None or value is None or value is not self._initializers.get(name):
            return to_device(value, device)
        if (name, device) not in self._on_device:
            self._on_device[name, device] = to_device(value, device)
        return self._on_device[name, device]

    def _checked(self, name: str, value: Any) -> Any:
        """An input as an array, or a list of arrays, of the declared type."""
        if name not in self._graph.inputs:
            raise ArgumentError(
                f"the graph has no input {name!r}{nearest(name, self.inputs)}; it takes {', '.join(self.inputs)}"
            )
        kind = self._graph.types.get(name)
        sequence = self._graph.inputs[name].HasField("sequence_type")
        fits = isinstance(value, list) and all(map(_is_array, cast(list[Any], value))) if sequence else _is_array(value)
        if not fits and (sequence or not isinstance(value, _NUMBERS)):
            raise ArgumentError(
                f"input {name} is a {type(value).__name__}; expected {'a list of arrays' if sequence else 'an array'}"
            )
        if not fits:
            try:
                value = np.asarray(value, kind)
            except (TypeError, ValueError) as error:
                raise ArgumentError(f"input {name} is a {type(value).__name__}; expected an array") from error
        for each in _arrays(value):
            if kind is not None and dtype_name(each) != kind:
                raise DTypeError(f"input {name} has type {dtype_name(each)}; the graph takes {kind}")
        return value

    def _device_of(self, given: Mapping[str, Any]) -> Any:
        tensors = [each.device for value in given.values() for each in _arrays(value) if is_tensor(each)]
        devices = dict.fromkeys(each for each in tensors if each.type != "cpu") or dict.fromkeys(tensors)
        if len(devices) > 1:
            raise DeviceError(f"the inputs are on {' and '.join(map(str, devices))}; expected one device")
        device = next(iter(devices), None)
        for name in self.updated:
            if device is not None and any(getattr(each, "device", None) != device for each in _arrays(given.get(name))):
                raise DeviceError(f"input {name} is updated in place, and not on {device}, where the others are")
        return device

    def _check_updated(self, given: Mapping[str, Any]) -> None:
        """What is updated in place can be: before anything is computed, so that nothing is half updated."""
        for name in self.updated:
            for each in _arrays(given.get(name)):
                if not _is_array(each):
                    raise ArgumentError(
                        f"input {name} is updated in place; expected an array, not {type(each).__name__}"
                    )
                if why := _unwritable(each):
                    raise ArgumentError(f"input {name} is updated in place, but {why}; pass a copy")


def _arrays(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [] if value is None else [value]


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def _copied(value: Any, memory: set[int]) -> Any:
    """The value; of what is in this memory, a copy."""
    if isinstance(value, list):
        return [_copied(each, memory) for each in cast(list[Any], value)]
    if value is None or storage(value) not in memory:
        return value
    return value.clone() if is_tensor(value) else value.copy()


def _unwritable(array: Any) -> str:
    """Why an array cannot be updated in place; nothing where it can."""
    strides = array.stride() if is_tensor(array) else array.strides
    if any(stride == 0 and size > 1 for stride, size in zip(strides, array.shape, strict=True)):
        return "has elements in the same memory"
    return "" if is_tensor(array) or array.flags.writeable else "is read-only"


def _dense(value: Any) -> bool:
    return value.is_contiguous() if is_tensor(value) else value.flags.c_contiguous and value.flags.writeable


def _torch() -> Any:
    import torch

    return torch


@contextmanager
def _on(device: Any, stream: Any) -> Generator[None]:
    """PyTorch's stream; and weights may be parameters of its modules: what is updated in place has no history."""
    if device is None:
        yield
        return
    with _torch().no_grad(), nullcontext() if stream is None else _torch().cuda.stream(stream):
        yield


def _check_sizes(inputs: Mapping[str, tuple[Any, Any]]) -> None:
    """Each tensor's shape is as declared, and a size that has a name is the same wherever the name is."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, (declared, value) in inputs.items():
        if not declared.tensor_type.HasField("shape"):
            continue
        dims = declared.tensor_type.shape.dim
        expected = [each.dim_value if each.HasField("dim_value") else each.dim_param or "?" for each in dims]
        shape = tuple(value.shape)
        fits = len(shape) == len(expected)
        for size, want in zip(shape, expected, strict=False):
            fits = fits and (size == want if isinstance(want, int) else True)
        if not fits:
            raise ShapeError(f"input {name} has shape {shape}; the graph takes ({', '.join(map(str, expected))})")
        for size, want in zip(shape, expected, strict=True):
            if isinstance(want, str) and want != "?" and sizes.setdefault(want, (size, name))[0] != size:
                other, where = sizes[want]
                raise ShapeError(f"input {name} has size {size} for {want}, which is {other} in input {where}")
