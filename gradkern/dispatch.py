"""run and prepare: bind, view, signature, plan, outputs, execute.

A plan is made once per signature and cached. The contract is checked when the plan is made: the same signature gets the
same verdict, so a warm call pays for one look-up. What depends on addresses (an `out` that overlaps an input) is
checked at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from gradkern import registry
from gradkern.arrays import Kind, Maker, View, overlap, same_memory, view
from gradkern.binding import Binder, attribute_key
from gradkern.call import Call, Plan, Refusal
from gradkern.checking import check
from gradkern.errors import ArgumentError, DeviceError, GradkernError, OutputError, ProviderError, UnknownOperatorError
from gradkern.plans import PlanCache
from gradkern.policies import Policy, merged
from gradkern.spelling import nearest

__all__ = ["Prepared", "plan_cache", "prepare", "run"]

plan_cache: PlanCache[Prepared] = PlanCache(bound=1024)


def run(
    op: str,
    *inputs: Any,
    outputs: Any = None,
    out: Mapping[str, Any] | None = None,
    provider: str | None = None,
    stream: Any = None,
    policy: Policy | Mapping[str, Any] | None = None,
    domain: str | None = None,
    version: int | None = None,
    **named: Any,
) -> Any:
    """Compute an operator of the registry.

    op        the operator's name, such as "ConvGrad"
    inputs    arrays in contract order; or by name, among `named`
    outputs   names of the outputs to compute; by default those the contract marks as default
    out       arrays to write outputs into, by name; an input's own array exactly where the contract's in_place permits
    provider  "cpu" or "cuda"; by default the one of the device the arrays are on
    stream    the CUDA stream to run on; by default the current stream of the arrays' framework
    policy    a gradkern.Policy, or a mapping of the fields that differ from the policy in force
    domain, version   checked against the contract where given
    named     attributes (ONNX names), and inputs by name

    Returns a named tuple in contract order, None for outputs not wanted. Outputs are arrays of the first input's kind.
    Types, shapes, units and sources of every operator: `gradkern.operators()[op]`, or `gradkern ops NAME`.

    Raises a GradkernError, before anything is computed or written, for a call outside the contract.

    >>> gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1]).dW
    """
    entry, views, out_views = _find(op, inputs, outputs, out, provider, policy, domain, version, named)
    return entry._execute(views, out_views, out, stream)


def prepare(
    op: str,
    *inputs: Any,
    outputs: Any = None,
    out: Mapping[str, Any] | None = None,
    provider: str | None = None,
    stream: Any = None,
    policy: Policy | Mapping[str, Any] | None = None,
    domain: str | None = None,
    version: int | None = None,
    **named: Any,
) -> Prepared:
    """The plan for a call, without making it. Takes the arguments of `run`.

    The arrays given are read for their types, shapes and strides only.

    >>> plan = gradkern.prepare("LayerNormalizationGrad", dY, X, scale, mean, inv_std)
    >>> plan.kernel, plan.scratch
    >>> grads = plan(dY, X, scale, mean, inv_std)
    """
    entry, _, _ = _find(op, inputs, outputs, out, provider, policy, domain, version, named)
    return entry


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
        views = _views(self._binder, arrays)
        out_views, in_place = _out_views(self._binder, views, out)
        keys = tuple(each.key for each in views if each is not None)
        if keys != self._keys or in_place != self.call.in_place or views[0].device != self.call.device:
            raise ArgumentError(self._differs(views, keys, in_place))
        if {name: each.key for name, each in out_views.items()} != self._out_keys:
            raise ArgumentError(f"{self.operator}: out differs from the one the plan was prepared with, {self._outs()}")
        return self._execute(views, out_views, out, stream)

    def __repr__(self) -> str:
        return f"<gradkern plan {self.operator} on {self.provider}: {self.kernel}, {self.scratch} bytes of scratch>"

    def _execute(
        self, views: tuple[View, ...], out_views: Mapping[str, View], out: Mapping[str, Any] | None, stream: Any
    ) -> Any:
        if stream is not None and self.provider == "cpu":
            raise ArgumentError(f"{self.operator}: stream is for arrays on a GPU; these are on the host")
        kind = views[0].kind
        made = [
            new() if name not in out_views else (None, out_views[name].buffer)
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


@cache
def _binders() -> dict[str, Binder]:
    return {name: Binder(name, operator) for name, operator in registry.operators().items()}


def _find(
    op: str,
    inputs: tuple[Any, ...],
    outputs: Any,
    out: Mapping[str, Any] | None,
    provider: str | None,
    policy: Policy | Mapping[str, Any] | None,
    domain: str | None,
    version: int | None,
    named: dict[str, Any],
) -> tuple[Prepared, tuple[Any, ...], Mapping[str, View]]:
    """The plan for these arguments, cached or made, and the views of the arrays."""
    binder = _binders().get(op) if isinstance(op, str) else None
    if binder is None:
        raise UnknownOperatorError(
            f"unknown operator {op!r}{nearest(op, _binders())}; known are {', '.join(_binders())}"
        )
    if domain is not None or version is not None:
        _check_version(binder, domain, version)
    arrays, attributes = binder.bind(inputs, named)
    wanted = binder.wanted(outputs, out)
    views = _views(binder, arrays)
    out_views, in_place = _out_views(binder, views, out)
    in_force = merged(policy)
    device = views[0].device
    signature = (
        op,
        wanted,
        attribute_key(attributes) if attributes else (),
        tuple([None if each is None else each.key for each in views]),
        tuple([(name, each.key) for name, each in sorted(out_views.items())]) if out_views else (),
        in_place,
        device,
        provider,
        in_force,
    )
    try:
        entry = plan_cache.get(signature)
    except TypeError:  # an attribute that cannot be hashed: no contract takes it, and the check says which
        entry = None
        signature = None
    if entry is None:
        entry = _plan(signature, binder, views, attributes, wanted, out_views, in_place, provider, in_force)
    return entry, views, out_views


def _plan(
    signature: Any,
    binder: Binder,
    views: tuple[View, ...],
    attributes: dict[str, Any],
    wanted: tuple[str, ...],
    out_views: Mapping[str, View],
    in_place: frozenset[tuple[str, str]],
    provider: str | None,
    policy: Policy,
) -> Prepared:
    """Check a call and find its plan; one thread at a time, so that no signature is planned twice."""
    with plan_cache.planning:
        entry = plan_cache.peek(signature) if signature is not None else None
        if entry is not None:
            return entry
        inputs = {name: each for name, each in zip(binder.inputs, views, strict=True) if each is not None}
        chosen = _provider(binder, inputs, provider)
        resolve = getattr(import_module(f"gradkern.ops.{binder.operator.family}"), "resolve", None)
        call = check(binder.name, binder.operator, inputs, attributes, wanted, out_views, in_place, policy, resolve)
        entry = Prepared(binder, chosen, call, _ask(binder, chosen, call), out_views)
        if signature is not None:
            plan_cache.put(signature, entry)
        return entry


def _provider(binder: Binder, inputs: Mapping[str, View], named: str | None) -> str:
    """The provider of the device the arrays are on; a named one must be that one."""
    devices = {each.device for each in inputs.values()}
    if len(devices) > 1:
        places = ", ".join(f"input {name} on {each.device}" for name, each in inputs.items())
        raise DeviceError(f"{binder.name}: the arrays are on different devices: {places}")
    device = next(iter(devices))
    kind = device.partition(":")[0]
    registered = binder.operator.providers
    if named is not None and (not isinstance(named, str) or named not in registered):
        raise ProviderError(
            f"{binder.name}: no provider {named!r}{nearest(named, registered)}; registered are {', '.join(registered)}"
        )
    if kind not in registered:
        raise ProviderError(
            f"{binder.name}: the arrays are on {device}; registered providers are {', '.join(registered)}"
        )
    if named is not None and named != kind:
        raise ProviderError(f"{binder.name}: provider {named!r} was asked for, but the arrays are on {device}")
    return kind


def _ask(binder: Binder, provider: str, call: Call) -> Plan:
    """The first plan that a module of the provider makes; an error with each one's reason where none does."""
    reasons = []
    for module in binder.operator.providers[provider]:
        try:
            return import_module(f"gradkern.ops.{binder.operator.family}.{module}").plan(call)
        except Refusal as refusal:
            reasons.append(f"{module}: {refusal}")
        except ImportError as error:
            reasons.append(f"{module}: cannot be loaded: {error}")
        except GradkernError as error:
            raise type(error)(f"{binder.name}: {error}") from None
    raise ProviderError(f"{binder.name}: provider {provider!r} cannot take the call: {'; '.join(reasons)}")


def _views(binder: Binder, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([None if array is None else view(array, binder.where(index)) for index, array in enumerate(arrays)])


_NOTHING: tuple[dict[str, View], frozenset[tuple[str, str]]] = ({}, frozenset())


def _out_views(
    binder: Binder, views: tuple[View, ...], out: Mapping[str, Any] | None
) -> tuple[dict[str, View], frozenset[tuple[str, str]]]:
    """Views of the `out` arrays, and the (input, output) pairs that are one array. Any other overlap is an error."""
    if not out:
        return _NOTHING
    found: dict[str, View] = {}
    pairs = []
    permitted = binder.operator.in_place_pairs
    for name, array in out.items():
        one = found[name] = view(array, f"{binder.name}: out {name}")
        if one.device != views[0].device:
            raise DeviceError(
                f"{binder.name}: out {name} is on {one.device}, but input {binder.inputs[0]} on {views[0].device}"
            )
        if not one.writable:
            raise OutputError(f"{binder.name}: out {name} is read-only")
        for source, each in zip(binder.inputs, views, strict=True):
            if each is None or each.device != one.device or not overlap(one, each):
                continue
            if not same_memory(one, each):
                raise OutputError(f"{binder.name}: out {name} overlaps input {source} without being that array")
            if (source, name) not in permitted:
                allowed = sorted(pair[0] for pair in permitted if pair[1] == name)
                may = f"it may be that of {' or '.join(allowed)}" if allowed else "it may be that of no input"
                raise OutputError(f"{binder.name}: out {name} is the array of input {source}; {may}")
            pairs.append((source, name))
        for other, each in found.items():
            if other != name and overlap(one, each):
                raise OutputError(f"{binder.name}: out {name} overlaps out {other}")
    return found, frozenset(pairs)


def _check_version(binder: Binder, domain: str | None, version: int | None) -> None:
    contract = binder.operator
    if domain is not None and not (isinstance(domain, str) and domain == contract.domain):
        raise UnknownOperatorError(f"{binder.name}: there is none in domain {domain!r}; it is of {contract.domain!r}")
    last = contract.until_version
    if version is not None and not (
        isinstance(version, int) and contract.since_version <= version and (last is None or version <= last)
    ):
        span = f"since version {contract.since_version}" + ("" if last is None else f", until {last}")
        raise UnknownOperatorError(f"{binder.name}: there is none of version {version!r}; it is there {span}")
