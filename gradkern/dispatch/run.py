"""run and prepare: bind, view, signature, plan, outputs, execute.

A plan is made once per signature and cached. The contract is checked when the plan is made: the same signature gets the
same verdict, so a warm call pays for one look-up. What depends on addresses (an `out` that overlaps an input) is
checked at every call. Calls on plain tensors of a GPU like those of an earlier call need no signature to find its plan.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import HOST, Kind, View
from gradkern.arrays.torch_guards import Known, recognised
from gradkern.call import Call, Plan, Refusal, Tensor
from gradkern.contract import registry
from gradkern.contract.binder import Binder, attribute_key
from gradkern.contract.check import check
from gradkern.dispatch.operands import Pairs, read, views_of
from gradkern.dispatch.plan_cache import Kept, PlanCache
from gradkern.dispatch.prepared import Prepared
from gradkern.errors import GradkernError, PolicyError, ProviderError, UnknownOperatorError, nearest
from gradkern.policy import USUAL, Policy, merged
from gradkern.system.providers import unavailable

__all__ = ["Prepared", "plan_cache", "plan_for", "prepare", "run"]

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
    provider  "cpu" or "cuda"; by default the one of the device the arrays are on. NumPy arrays with "cuda" are copied
              to the first GPU and back
    stream    the CUDA stream to run on; by default the current stream of the arrays' framework
    policy    a gradkern.Policy, or a mapping of the fields that differ from the policy in force
    domain, version   checked against the contract where given
    named     attributes (ONNX names), and inputs by name

    Returns a named tuple in contract order, None for outputs not wanted. Outputs are arrays of the first input's kind.
    Types, shapes, units and sources of every operator: `gradkern.operators()[op]`, or `gradkern ops NAME`.

    Raises a GradkernError, before anything is computed or written, for a call outside the contract.

    >>> gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1]).dW
    """
    entry, arrays, buffers, kind, out_buffers = _find(
        op, inputs, outputs, out, provider, policy, domain, version, named
    )
    if out:
        entry.require_apart(arrays, buffers, out, out_buffers)
    return entry.execute(buffers, kind, out, out_buffers, stream)


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
    return _find(op, inputs, outputs, out, provider, policy, domain, version, named)[0]


def plan_for(
    op: str,
    tensors: Mapping[str, Tensor],
    *,
    device: str = HOST,
    outputs: Any = None,
    out: Any = None,
    provider: str | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Prepared:
    """The plan for inputs that are described, by name, and need not be there: checked and made, not kept.

    device is "cpu" or "cuda:0", and `out` has descriptions too; all else is as in `prepare`. Arrays that fit the
    descriptions can be given to the plan.
    """
    binder = _binders().get(op)
    if binder is None:
        raise _unknown(op)
    described, values = binder.bind((), {**tensors, **attributes})
    views = tuple(None if each is None else _described(each, device) for each in described)
    given = {name: _described(each, device) for name, each in (out or {}).items()}
    wanted = binder.wanted(outputs, given)
    return _plan(None, binder, views, values, wanted, given, frozenset(), provider, merged(policy))


def _described(tensor: Tensor, device: str) -> View:
    return View((tensor.dtype, tensor.shape, tensor.strides, tensor.alignment), None, device, NUMPY)


def _unknown(op: Any) -> UnknownOperatorError:
    return UnknownOperatorError(f"unknown operator {op!r}{nearest(op, _binders())}; known are {', '.join(_binders())}")


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
) -> tuple[Prepared, tuple[Any, ...], tuple[Any, ...], Kind, tuple[Any, ...]]:
    """The plan for these arguments, cached or made; the arrays; and as in Operands buffers, kind and out_buffers."""
    binder = _binders().get(op) if isinstance(op, str) else None
    if binder is None:
        raise _unknown(op)
    if domain is not None or version is not None:
        _check_version(binder, domain, version)
    arrays, attributes = binder.bind(inputs, named)
    wanted = binder.wanted(outputs, out)
    attributed = attribute_key(attributes) if attributes else ()
    asked = None
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)  # not there while another thread imports PyTorch
    if type(arrays[0]) is tensor and not out:
        try:
            in_force = merged(policy)
            asked = (op, wanted, attributed, provider, None if in_force is USUAL else in_force, arrays[0].shape)
            seen = _seen.get(asked, ())
        except (PolicyError, TypeError):  # they come again below, after what is wrong with the arrays
            seen = ()
        for known, kept, kind in seen:
            addresses = known.addresses(arrays)
            if addresses is not None:
                entry = plan_cache.again(kept)
                if entry is not None:
                    return entry, arrays, addresses, kind, ()
    keys, buffers, kind, out_names, out_buffers, in_place = read(binder, arrays, out)
    in_force = merged(policy)
    signature = (
        op,
        wanted,
        attributed,
        keys,
        out_names,
        in_place,
        kind.device,
        provider,
        None if in_force is USUAL else in_force,  # a policy's hash is worked out in Python
    )
    try:
        entry = plan_cache.get(signature)
    except TypeError:  # an attribute that cannot be hashed: no contract takes it, and the check says which
        entry = None
        signature = None
    if entry is None:
        views, given, in_place = views_of(binder, arrays, out)
        entry = _plan(signature, binder, views, attributes, wanted, given, in_place, provider, in_force)
    elif asked is not None and kind.device != HOST:
        _remember(asked, arrays, plan_cache.kept(signature), kind)
    return entry, arrays, buffers, kind, out_buffers


_MOST, _MOST_ALIKE = 1024, 16
_seen: dict[Hashable, tuple[tuple[Known, Kept[Prepared], Kind], ...]] = {}
"""Of calls made before on plain tensors of a GPU, by all that was asked and the first tensor's shape: the tensors, as
their guard recognises others like them, and where the plan is kept. To make a signature and look it up costs more.
"""


def _remember(asked: Hashable, arrays: tuple[Any, ...], kept: Kept[Prepared] | None, kind: Kind) -> None:
    """Let the next call like this one find its plan in `_seen`. Threads may do so at once: one of them is forgotten."""
    known = recognised(arrays)
    if known is None or kept is None:
        return
    if len(_seen) >= _MOST:
        _seen.clear()
    others = [each for each in _seen.get(asked, ()) if each[0] is not known and each[1].entry is not None]
    _seen[asked] = (*others[1 - _MOST_ALIKE :], (known, kept, kind))


def _plan(
    signature: Any,
    binder: Binder,
    views: tuple[View | None, ...],
    attributes: dict[str, Any],
    wanted: tuple[str, ...],
    out: Mapping[str, View],
    in_place: Pairs,
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
        call = check(binder.name, binder.operator, inputs, attributes, wanted, out, in_place, policy, resolve)
        if chosen == "cuda" and call.device == HOST:
            plan = import_module("gradkern.cuda.host_copies").Staged(call, partial(_ask, binder, chosen))
        else:
            plan = _ask(binder, chosen, call)
        entry = Prepared(binder, chosen, call, plan, out)
        if signature is not None:
            plan_cache.put(signature, entry)
        return entry


def _provider(binder: Binder, inputs: Mapping[str, View], named: str | None) -> str:
    """The provider of the device the arrays are on; a named one must be that one."""
    device = next(iter(inputs.values())).device
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
    chosen = "cuda" if named == "cuda" and device == HOST else kind  # asked for by name, host arrays are copied there
    if named is not None and named != chosen:
        raise ProviderError(f"{binder.name}: provider {named!r} was asked for, but the arrays are on {device}")
    reason = unavailable(chosen)
    if reason is not None:
        raise ProviderError(f"{binder.name}: provider {chosen!r} cannot run here: {reason}")
    return chosen


def _ask(binder: Binder, provider: str, call: Call) -> Plan:
    """The first plan that a module of the provider makes; an error with each one's reason where none does.

    On a GPU, inputs that no module takes as they lie are copied end to end first.
    """
    reasons = []
    for module in binder.operator.providers[provider]:
        try:
            return _made(import_module(f"gradkern.ops.{binder.operator.family}.{module}"), call)
        except Refusal as refusal:
            reasons.append(f"{module}: {refusal}")
        except ImportError as error:
            reasons.append(f"{module}: cannot be loaded: {error}")
        except GradkernError as error:
            raise type(error)(f"{binder.name}: {error}") from None
    if provider == "cuda":
        strided = import_module("gradkern.cuda.contiguous")
        names = strided.scattered(call)
        if names:
            return strided.Gathered(call, names, partial(_ask, binder, provider))
    raise ProviderError(f"{binder.name}: provider {provider!r} cannot take the call: {'; '.join(reasons)}")


def _made(module: Any, call: Call) -> Plan:
    """The module's plan. Where it has no choice, the kernel that the policy pins must be the one it has."""
    plan, pinned = module.plan(call), call.policy.kernel
    if pinned not in (None, plan.kernel) and plan.kernel != "empty" and not getattr(module, "HEEDS_PINS", False):
        raise Refusal(f"has no kernel {pinned!r} for this call; it has {plan.kernel!r}")
    return plan


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
