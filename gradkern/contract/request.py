"""What a caller asks for: the arguments of one call, sorted by the operator's contract, and views of its arrays."""

# Callers may pass what its type does not allow; it is looked at nevertheless.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from gradkern.arrays.kind import View
from gradkern.contract import registry
from gradkern.contract.binder import AttributeKey, Binder, attribute_key
from gradkern.contract.host import HostValue, host_key, host_values
from gradkern.errors import UnknownOperatorError, shown, unknown_operator
from gradkern.policy import Policy

Pairs = frozenset[tuple[str, str]]


class Request(NamedTuple):
    """One call as the caller made it. Built once, and passed along.

    binder       the operator's names
    arrays       the inputs in contract order, None for an optional one not given
    attributes   those given, as they came
    attribute_key   their part of keys
    wanted       the outputs to compute, in contract order
    out, provider, policy   as given; out with the arrays of outputs that are aliases
    host         the inputs on the host; `arrays` does not have them
    """

    binder: Binder
    arrays: tuple[Any, ...]
    attributes: dict[str, Any]
    attribute_key: AttributeKey
    wanted: tuple[str, ...]
    out: Mapping[str, Any] | None
    provider: str | None
    policy: Policy | Mapping[str, Any] | None
    host: tuple[HostValue, ...] = ()


def request_of(
    op: str,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
    outputs: Any = None,
    out: Mapping[str, Any] | None = None,
    provider: str | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    domain: str | None = None,
    version: int | None = None,
) -> Request:
    """The arguments of a call, sorted.

    Raises a GradkernError for names that the operator does not have. Values are checked when the call is planned.
    """
    try:
        binder = _binders[op]
    except Exception:  # no name at all: it cannot be hashed, or raises another error
        binder = binder_of(op)
    if binder.variadic is not None:
        binder = binder.of(inputs, named)
    if domain is not None or version is not None:
        _check_version(binder, domain, version)
    arrays, attributes = binder.bind(inputs, named)
    if outputs is None and binder.like_optional:
        outputs = binder.default_with(arrays, out)
    host = ()
    if not binder.is_plain:
        arrays, attributes, host = host_values(binder, arrays, attributes)
    key = attribute_key(attributes) if attributes else ()
    wanted = binder.wanted(outputs, out)
    if not binder.is_plain:
        key += host_key(host)
        out = binder.aliased(arrays, wanted, out)
    # Request(...) does the same in twice the time, in every warm call.
    return _new(Request, (binder, arrays, attributes, key, wanted, out, provider, policy, host))


_new = cast(Any, tuple).__new__


class Views(NamedTuple):
    """The arrays of one call: inputs and `out` arrays by name, and the (input, output) pairs that are one array."""

    inputs: Mapping[str, View]
    out: Mapping[str, View]
    in_place: Pairs

    @property
    def device(self) -> str:
        return next(iter(self.inputs.values())).device


_binders: dict[str, Binder] = {}
"""Of the operators that were called, by name: at most as many as the registry has."""


def binder_of(op: Any) -> Binder:
    """The binder of an operator. Raises UnknownOperatorError where the registry has none of this name."""
    operators = registry.operators()
    if not isinstance(op, str) or op not in operators:
        raise UnknownOperatorError(unknown_operator(op, operators))
    if op not in _binders:
        _binders[op] = Binder(op, operators[op])
    return _binders[op]


def _check_version(binder: Binder, domain: str | None, version: int | None) -> None:
    contract = binder.operator
    if domain is not None and not (isinstance(domain, str) and domain == contract.domain):
        raise UnknownOperatorError(
            f"{binder.name}: there is none in domain {shown(domain)}; it is of {contract.domain!r}"
        )
    last = contract.until_version
    if version is not None and not (
        isinstance(version, int) and contract.since_version <= version and (last is None or version <= last)
    ):
        span = f"since version {contract.since_version}" + ("" if last is None else f", until {last}")
        raise UnknownOperatorError(f"{binder.name}: there is none of version {shown(version)}; it is there {span}")
