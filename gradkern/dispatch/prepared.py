"""A plan bound to its signature: what `prepare` returns and the plan cache keeps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Protocol, cast

from gradkern.arrays.kind import Kind, Maker, View
from gradkern.arrays.torch_guards import Guard, guard_of, note_written
from gradkern.arrays.view import device_arrays
from gradkern.call import HOST, Call, Launching, Plan, Provisional, Tensor, execution
from gradkern.contract.binder import AttributeKey, Binder
from gradkern.contract.host import HostValue, host_key, host_values, scalars_of
from gradkern.contract.request import Pairs
from gradkern.dispatch.operands import Operands, read, views_of
from gradkern.errors import ArgumentError, GradkernError
from gradkern.results import result_type
from gradkern.system.display import table

_MOST_KINDS = 64
_new = cast(Any, tuple).__new__
_MOST_DISJOINT = 64
"""Addresses that are remembered: those of the layers of a model that share a plan."""


class Forgetting(Protocol):
    """Who keeps a plan."""

    def forget(self) -> None: ...


class Prepared:
    """A call's plan, bound to its signature.

    operator, provider   names
    kernel       the kernel that was chosen
    scratch      bytes of scratch memory of one execution
    bytes        the least memory traffic of an execution: every input read once, every output written once
    call         types, shapes, strides, attributes: all the plan was made from
    binder       the names of the operator's inputs and outputs
    plan         what executes on buffers alone, for a caller that makes its own outputs and knows that all fits

    Calling it with arrays of the same types, shapes, strides and alignments computes the wanted outputs, without
    look-up and without the contract's checks; other arrays are refused.
    """

    __slots__ = (
        "_disjoint",
        "_fits",
        "_given",
        "_guard",
        "_host",
        "_inputs",
        "_makers",
        "_names",
        "_out",
        "_out_names",
        "_read",
        "_replaced",
        "_result",
        "_run",
        "_told",
        "_written",
        "binder",
        "bytes",
        "call",
        "kernel",
        "operator",
        "plan",
        "provider",
        "scratch",
    )

    def __init__(
        self, binder: Binder, provider: str, call: Call, plan: Plan, out: Mapping[str, View], host: AttributeKey = ()
    ) -> None:
        self.operator = binder.name
        self.provider = provider
        self.kernel = plan.kernel
        self.scratch = plan.scratch
        self.call = call
        self.bytes = sum(tensor.nbytes for tensor in (*call.inputs.values(), *call.outputs.values()))
        self.binder = binder
        self.plan = plan
        self._replaced: list[Plan] = []
        self._told: set[weakref.ref[Forgetting]] = set()
        left = binder.appended_outputs - call.outputs.keys()
        self._names = tuple(name for name in binder.outputs if name not in left) if left else binder.outputs
        self._result = result_type(binder.name, self._names)
        self._run = execution(plan)
        self._host = host
        self._inputs = tuple(call.inputs.get(name) for name in binder.inputs)
        self._out = {name: each.tensor for name, each in out.items()}
        self._fits: Any = None  # the keys of arrays that fitted last
        self._guard: tuple[Guard, Kind, tuple[bool, ...] | None] | None = None  # recognises tensors that fit
        self._makers: dict[Kind, tuple[tuple[int, int, Maker], ...]] = {}
        self._out_names = tuple(name for name in call.outputs if name in out)
        self._given = [index for index, name in enumerate(call.outputs) if name in out]
        written = [(name, tensor.extent) for name, tensor in call.outputs.items() if name in out]
        self._disjoint: set[Any] = set()  # addresses of arrays that were disjoint
        self._read = [tensor.extent for tensor in call.inputs.values()]
        self._written = [
            (extent, [place for place, source in enumerate(call.inputs) if (source, name) in call.in_place])
            for name, extent in (written if call.device != HOST else ())
        ]

    def __call__(self, *inputs: Any, out: Mapping[str, Any] | None = None, stream: Any = None, **named: Any) -> Any:
        """The outputs for these inputs. Returns, and raises, as `run` does."""
        arrays, attributes = self.binder.bind(inputs, named)
        scalars = ()
        if not self.binder.is_plain:
            arrays, attributes, host = host_values(self.binder, arrays, attributes)
            if host_key(host) != self._host:
                raise ArgumentError(self._host_differs(host))
            scalars = scalars_of(host)
            out = self.binder.aliased(arrays, tuple(self.call.outputs), out)
        if attributes:
            raise ArgumentError(
                f"{self.operator}: attribute {min(attributes)} is fixed in a prepared plan; prepare another"
            )
        if self._guard is not None and len(out or ()) == len(self._out):
            guard, kind, missed = self._guard
            given, missing = self.binder.given(arrays)
            tensors = (*given, *[out.get(name) for name in self._out_names]) if out else given
            addresses = guard.addresses(tensors) if missing == missed else None
            if addresses is not None:
                buffers, out_buffers = addresses[: len(given)], addresses[len(given) :]
                if not out or self.disjoint(buffers, out_buffers):
                    return self.execute(buffers + scalars, kind, out, out_buffers, stream)
        operands = keys, buffers, kind, out_names, out_buffers, in_place = read(self.binder, arrays, out)
        fits = (keys, out_names, in_place, kind)
        if fits != self._fits:
            self._check(operands)
            self._fits = fits
            if self.call.device != HOST and not in_place:
                given, missing = self.binder.given(arrays)
                tensors = (*given, *[out[name] for name in out_names]) if out else given
                guard = guard_of(tensors, tuple([each for each in keys if each is not None]))
                self._guard = None if guard is None else (guard, kind, missing)
        self.refuse_overlap(operands)
        return self.execute(buffers + scalars, kind, out, out_buffers, stream)

    @property
    def provisional(self) -> bool:
        """Whether `gradkern.tune()` may find a faster kernel: no search has chosen this one."""
        return isinstance(self.plan, Provisional) and self.plan.provisional

    def renew(self, plan: Plan) -> None:
        """Execute by this plan from now on. The one before is held, as a captured graph may have its kernels."""
        self._replaced.append(self.plan)
        self.plan, self._run = plan, execution(plan)
        self.kernel, self.scratch = plan.kernel, plan.scratch
        told, self._told = self._told, set()
        for each in tuple(told):
            other = each()
            if other is not None:
                other.forget()

    def tell_renewal(self, other: Forgetting) -> None:
        """Let another, who executes the plan itself, forget it once this is renewed. It is not kept alive."""
        self._told.add(weakref.ref(other))

    @property
    def launches(self) -> tuple[Any, ...]:
        """The launches of gradkern's own kernels, where the plan knows them."""
        return self.plan.launches if isinstance(self.plan, Launching) else ()

    @property
    def out(self) -> tuple[str, ...]:
        """The names of the outputs that a call gives arrays for."""
        return tuple(self._out)

    def __repr__(self) -> str:
        return f"<gradkern plan {self.operator} on {self.provider}: {self.kernel}, {self.scratch} bytes of scratch>"

    def _repr_html_(self) -> str:
        names = ("provider", "kernel", "scratch", "bytes")
        return table(f"Plan of {self.operator}", (), ((name, getattr(self, name)) for name in names))

    def execute(
        self,
        buffers: tuple[Any, ...],
        kind: Kind,
        out: Mapping[str, Any] | None,
        out_buffers: tuple[Any, ...],
        stream: Any,
    ) -> Any:
        """Compute, for arrays that are known to be of the plan's signature and apart from one another."""
        if stream is None:
            where = kind.stream()
        elif self.provider == "cpu":
            raise ArgumentError(f"{self.operator}: stream is for arrays on a GPU; these are on the host")
        else:
            where = stream = device_arrays().stream_handle(stream, self.operator)
        names = self._names
        results: list[Any] = [out.get(name) for name in names] if out else [None] * len(names)
        makers = self._makers.get(kind)
        if makers is None:
            makers = self._makers_of(kind)
        written = out_buffers
        if makers:
            buffer_of: list[Any] = [None] * len(self.call.outputs)
            for place, index, new in makers:
                results[place], buffer_of[index] = new(stream)
            if out_buffers:
                for index, buffer in zip(self._given, out_buffers, strict=True):
                    buffer_of[index] = buffer
            written = tuple(buffer_of)
        self.compute(buffers, written, where)
        if out:
            note_written(out.values())
        finish = kind.finish
        if finish is not None:
            try:
                for place, _, _ in makers:
                    results[place] = finish(results[place])
            except GradkernError as error:
                raise type(error)(f"{self.operator}: {error}") from error.__cause__
        return _new(self._result, results)  # as _make does, in half the time

    def compute(self, read: tuple[Any, ...], written: tuple[Any, ...], stream: Any) -> None:
        """Compute outputs that the caller has made, all of them, and knows to fit."""
        try:
            self._run(read, written, stream)
        except GradkernError as error:
            raise type(error)(f"{self.operator}: {error}") from None

    def _makers_of(self, kind: Kind) -> tuple[tuple[int, int, Maker], ...]:
        """Of every output to be made: its places among all outputs and among the wanted ones, and what makes it."""
        if len(self._makers) >= _MOST_KINDS:  # libraries that are made anew for every call
            self._makers.clear()
        self._makers[kind] = tuple(
            (self._names.index(name), index, kind.maker(tensor))
            for index, (name, tensor) in enumerate(self.call.outputs.items())
            if name not in self._out
        )
        return self._makers[kind]

    def refuse_overlap(self, operands: Operands) -> None:
        """Refuse `out` arrays on a GPU that overlap; on the host, where not the span counts, `read` has done it."""
        if self._written and not self.disjoint(operands[1], operands[4]):
            views_of(self.binder, operands)  # raises, naming the arrays

    def disjoint(self, read: tuple[int, ...], written: tuple[int, ...]) -> bool:
        """Whether no array in `out` has a byte of another or, but where the plan is in place, of an input."""
        addresses = read, written
        if addresses in self._disjoint:
            return True
        spans = [(address + low, address + high) for address, (low, high) in zip(read, self._read, strict=True)]
        for address, ((low, high), same) in zip(written, self._written, strict=True):
            start, end = address + low, address + high
            for place, (other_start, other_end) in enumerate(spans):
                if other_start < end and start < other_end and place not in same:
                    return False
            spans.append((start, end))
        if len(self._disjoint) >= _MOST_DISJOINT:
            self._disjoint.clear()
        self._disjoint.add(addresses)
        return True

    def _check(self, operands: Operands) -> None:
        """Refuse arrays that are not of the plan's signature."""
        views = views_of(self.binder, operands)
        given = (views.inputs.get(name) for name in self.binder.inputs)
        inputs = tuple(None if each is None else each.tensor for each in given)
        if inputs != self._inputs or views.in_place != self.call.in_place or views.device != self.call.device:
            raise ArgumentError(self._differs(inputs, views.in_place, views.device))
        if {name: each.tensor for name, each in views.out.items()} != self._out:
            raise ArgumentError(f"{self.operator}: out differs from the one the plan was prepared with, {self._outs()}")

    def _host_differs(self, host: tuple[HostValue, ...]) -> str:
        """Of inputs on the host, what came and what was planned for."""
        now, planned = (
            ", ".join(" ".join(map(str, filter(None, (name, kind, value)))) for name, (kind, value) in key) or "none"
            for key in (host_key(host), self._host)
        )
        return f"{self.operator}: inputs on the host are {now}; the plan was prepared for {planned}"

    def _differs(self, inputs: tuple[Tensor | None, ...], in_place: Pairs, device: str) -> str:
        named = tuple(zip(self.binder.inputs, inputs, self._inputs, strict=True))
        given = [name for name, each, _ in named if each is not None]
        planned = [name for name, _, expected in named if expected is not None]
        if given != planned:
            return f"{self.operator}: inputs {', '.join(given)}; the plan was prepared for {', '.join(planned)}"
        for name, each, expected in named:
            if each is not None and expected is not None and each != expected:
                return f"{self.operator}: input {name} has {_shown(each)}; the plan was prepared for {_shown(expected)}"
        if in_place != self.call.in_place:
            now, planned = _pairs(in_place), _pairs(self.call.in_place)
            return f"{self.operator}: out reuses {now}; the plan was prepared to reuse {planned}"
        return f"{self.operator}: the arrays are on {device}; the plan was prepared for {self.call.device}"

    def _outs(self) -> str:
        return ", ".join(f"{name} {each.dtype} {each.shape}" for name, each in self._out.items()) or "none"


def _shown(each: Tensor) -> str:
    return f"type {each.dtype}, shape {each.shape}, strides {each.strides}, alignment {each.alignment}"


def _pairs(in_place: Pairs) -> str:
    return ", ".join(f"{source} for {target}" for source, target in sorted(in_place)) or "nothing"
