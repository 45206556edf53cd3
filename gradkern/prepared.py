"""A plan bound to its signature: what `prepare` returns and the plan cache keeps."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gradkern.arrays import Kind, Maker, View
from gradkern.binding import Binder
from gradkern.call import Call, Plan
from gradkern.errors import ArgumentError, GradkernError
from gradkern.operands import input_views, out_views

__all__ = ["Prepared"]


class Prepared:
    """A call's plan, bound to its signature.

    operator, provider   names
    kernel       the kernel that was chosen
    scratch      bytes of scratch memory of one execution
    bytes        the fewest bytes an execution must move: every input read once, every output written once
    call         types, shapes, strides, attributes: all the plan was made from

    Calling it with arrays of the same types, shapes, strides and alignments computes the wanted outputs, without
    look-up and without the contract's checks; other arrays are refused.
    """

    __slots__ = (
        "_binder",
        "_keys",
        "_makers",
        "_names",
        "_names_out",
        "_out_keys",
        "_places",
        "_plan",
        "bytes",
        "call",
        "kernel",
        "operator",
        "provider",
        "scratch",
    )

    def __init__(self, binder: Binder, provider: str, call: Call, plan: Plan, out: Mapping[str, View]) -> None:
        self.operator = binder.name
        self.provider = provider
        self.kernel = plan.kernel
        self.scratch = plan.scratch
        self.call = call
        self.bytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
        self._binder = binder
        self._plan = plan
        self._names = tuple(call.inputs)
        self._keys = tuple(
            (tensor.dtype, tensor.shape, tensor.strides, tensor.alignment) for tensor in call.inputs.values()
        )
        self._out_keys = {name: each.key for name, each in out.items()}
        self._names_out = tuple(call.outputs)
        self._places = tuple(binder.outputs.index(name) for name in call.outputs)
        self._makers: dict[Kind, tuple[Maker, ...]] = {}

    def __call__(self, *inputs: Any, out: Mapping[str, Any] | None = None, stream: Any = None, **named: Any) -> Any:
        """The outputs for these inputs. Returns, and raises, as `run` does."""
        arrays, attributes = self._binder.bind(inputs, named)
        if attributes:
            raise ArgumentError(
                f"{self.operator}: attribute {min(attributes)} is fixed in a prepared plan; prepare another"
            )
        views = input_views(self._binder, arrays)
        given, in_place = out_views(self._binder, views, out)
        keys = tuple(each.key for each in views if each is not None)
        if keys != self._keys or in_place != self.call.in_place or views[0].device != self.call.device:
            raise ArgumentError(self._differs(views, keys, in_place))
        if {name: each.key for name, each in given.items()} != self._out_keys:
            raise ArgumentError(f"{self.operator}: out differs from the one the plan was prepared with, {self._outs()}")
        return self.execute(views, given, out, stream)

    def __repr__(self) -> str:
        return f"<gradkern plan {self.operator} on {self.provider}: {self.kernel}, {self.scratch} bytes of scratch>"

    def execute(
        self, views: tuple[View, ...], given: Mapping[str, View], out: Mapping[str, Any] | None, stream: Any
    ) -> Any:
        kind = views[0].kind
        if stream is None:
            stream = kind.stream()
        elif self.provider == "cpu":
            raise ArgumentError(f"{self.operator}: stream is for arrays on a GPU; these are on the host")
        else:
            stream = import_module("gradkern.device_arrays").stream_handle(stream, self.operator)
        made = [
            new() if name not in given else (None, given[name].buffer)
            for name, new in zip(self._names_out, self._makers_of(kind), strict=True)
        ]
        try:
            self._plan(
                tuple([each.buffer for each in views if each is not None]), tuple([each[1] for each in made]), stream
            )
        except GradkernError as error:
            raise type(error)(f"{self.operator}: {error}") from None
        results: list[Any] = [None] * len(self._binder.outputs)
        for place, name, (array, _) in zip(self._places, self._names_out, made, strict=True):
            results[place] = out[name] if array is None and out is not None else kind.finish(array)
        return self._binder.result._make(results)

    def _makers_of(self, kind: Kind) -> tuple[Maker, ...]:
        makers = self._makers.get(kind)
        if makers is None:
            makers = self._makers[kind] = tuple(kind.maker(tensor) for tensor in self.call.outputs.values())
        return makers

    def _differs(self, views: tuple[View, ...], keys: tuple[Any, ...], in_place: frozenset[tuple[str, str]]) -> str:
        given = tuple(name for name, each in zip(self._binder.inputs, views, strict=True) if each is not None)
        if given != self._names:
            return f"{self.operator}: inputs {', '.join(given)}; the plan was prepared for {', '.join(self._names)}"
        for name, key, expected in zip(self._names, keys, self._keys, strict=True):
            if key != expected:
                return f"{self.operator}: input {name} has {_shown(key)}; the plan was prepared for {_shown(expected)}"
        if in_place != self.call.in_place:
            now, planned = _pairs(in_place), _pairs(self.call.in_place)
            return f"{self.operator}: out reuses {now}; the plan was prepared to reuse {planned}"
        return f"{self.operator}: the arrays are on {views[0].device}; the plan was prepared for {self.call.device}"

    def _outs(self) -> str:
        return ", ".join(f"{name} {key[0]} {key[1]}" for name, key in self._out_keys.items()) or "none"


def _shown(key: tuple[Any, ...]) -> str:
    return f"type {key[0]}, shape {key[1]}, strides {key[2]}, alignment {key[3]}"


def _pairs(in_place: frozenset[tuple[str, str]]) -> str:
    return ", ".join(f"{source} for {target}" for source, target in sorted(in_place)) or "nothing"
