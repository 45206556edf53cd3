"""Plan a call that is new: choose a provider, check the contract, let the provider's modules make the plan."""

# Callers may pass what its type does not allow; it is looked at nevertheless.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import copyreg
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import View, dtype_of
from gradkern.call import (
    HOST,
    Call,
    Choosing,
    CompilingAhead,
    Configurable,
    Pinning,
    Plan,
    ProviderModule,
    Refusal,
    Resolving,
    Wrapper,
)
from gradkern.contract.binder import Binder
from gradkern.contract.check import check, scattered_outputs
from gradkern.contract.host import host_key
from gradkern.contract.request import Request, Views, request_of
from gradkern.dispatch.plan_cache import pending, plan_cache
from gradkern.dispatch.prepared import Prepared
from gradkern.errors import GradkernError, ProviderError, nearest, shown
from gradkern.policy import effective, searching
from gradkern.system import providers
from gradkern.system.implementations import added
from gradkern.system.importing import load
from gradkern.system.notice import notice
from gradkern.system.own_thread import turn
from gradkern.system.progress import bar
from gradkern.system.providers import Provider, device_kind, unavailable

CompileJob = tuple[str, str, Callable[[], None]]
"""A provider, the device of a plan, and the function that makes the plan; a dry run compiles nothing of it."""


def plan(
    request: Request, views: Views, signature: Hashable = None, before_planning: Callable[[], None] | None = None
) -> Prepared:
    """The plan of a call, cached by its signature if it has one. One thread plans at a time, so none is planned twice.

    before_planning: called once the call has passed its check; what it raises is raised here.

    Raises a GradkernError where the call does not fit its contract, or no provider takes it.
    """
    with turn(plan_cache.planning):
        entry = None if signature is None else plan_cache.peek(signature)
        if entry is not None:
            return entry
        binder = request.binder
        provider = _choose(binder, views.device, request.provider)
        call = _checked(request, views)
        if before_planning is not None:
            before_planning()
        with notice(f"gradkern: {binder.name}: first call of its kind, compiling"):
            made = _make(binder, provider, pending.with_search_deferred(call))
        entry = Prepared(binder, provider.name, call, made, views.out, host_key(request.host))
        if entry.provisional:
            pending.add(entry)
        if signature is not None:
            plan_cache.put(signature, entry)
        return entry


def dry_plan(request: Request, views: Views, provider: str) -> None:
    """Plan on a provider that need not be able to run here, so that its modules ask for what they would compile.

    Raises a GradkernError where the call does not fit its contract, or no module takes it.
    """
    _make(request.binder, providers.PROVIDERS[provider], _checked(request, views))


def _dry_search(plan: Prepared) -> None:
    """Plan again as `search` does, in a dry run: modules only list what they would compile."""
    _make(plan.binder, providers.PROVIDERS[plan.provider], _searching(plan.call))


def compile_ahead(jobs: Iterable[CompileJob]) -> None:
    """Compile together what these plans need, where their provider supports that, with a bar."""
    groups: dict[tuple[str, str], list[Callable[[], None]]] = {}
    for provider, device, plan in jobs:
        module = providers.PROVIDERS[provider].compile_ahead
        if module is not None:
            groups.setdefault((module, device), []).append(plan)
    for (module, device), plans in groups.items():
        cast(CompilingAhead, load(module)).for_plans(plans, device, _compiling)


def compile_job(plan: Prepared) -> CompileJob:
    """The job that compiles what a search for this plan needs."""
    return plan.provider, plan.call.device, partial(_dry_search, plan)


def _compiling(items: Iterable[Any], total: int) -> Iterator[Any]:
    """Kernels as they are compiled, above a bar."""
    return bar("compiling", items, lambda each: each[0].name, total)


def search(plan: Prepared) -> None:
    """Search for the fastest kernels of a plan that was made without a search, and let it have them.

    Raises a GradkernError where that fails; the plan is as it was then.
    """
    with turn(plan_cache.planning):
        plan.renew(_make(plan.binder, providers.PROVIDERS[plan.provider], _searching(plan.call)))


def _searching(call: Call) -> Call:
    """The call with a policy that searches."""
    return replace(call, policy=searching(call.policy))


def _checked(request: Request, views: Views) -> Call:
    """The call, held against its contract."""
    family: Any = load(f"gradkern.ops.{request.binder.operator.family}")
    resolve = family.resolve if isinstance(family, Resolving) else None
    return check(request, views, effective(request.policy), resolve)


def _make(binder: Binder, provider: Provider, call: Call) -> Plan:
    """What executes a call on this provider."""
    made = None
    if call.device == HOST != provider.device:
        made = _wrapped(provider.host_copies, binder, provider, call)
    elif scattered := scattered_outputs(binder.operator, call):  # no module of a GPU's provider supports them
        made = _wrapped(provider.contiguous, binder, provider, call, scattered)
    return made or _ask(binder, provider, call)


def plan_again(call: Call, provider: str, out: tuple[str, ...]) -> Prepared:
    """The plan of a call that was planned before, perhaps in another process. `out` names its `out` arrays."""
    attributes = {name: value for name, value in call.attributes.items() if value is not None}
    given = {name: View(call.outputs[name], None, call.device, NUMPY) for name in out}
    scalars = {name: dtype_of(each) for name, each in call.scalars.items()}
    named = {**attributes, **call.inputs, **scalars}
    request = request_of(call.operator, (), named, tuple(call.outputs), given, provider, call.policy)
    inputs = {name: View(tensor, None, call.device, NUMPY) for name, tensor in call.inputs.items()}
    return plan(request, Views(inputs, given, call.in_place))


def _reduced(plan: Prepared) -> tuple[Any, ...]:
    """Pickled as its call, and planned again where it is unpickled: kernels do not leave their process."""
    return plan_again, (plan.call, plan.provider, plan.out)


copyreg.pickle(Prepared, _reduced)


def module_of(family: str, name: str) -> ProviderModule:
    """A module of a family, as registry.yaml names it for a provider; imported by the first who asks."""
    return cast(ProviderModule, load(f"gradkern.ops.{family}.{name}"))


def _choose(binder: Binder, device: str, named: str | None) -> Provider:
    """The best provider for arrays on this device, or the named one if it is for them."""
    registered, kind = binder.operator.providers, device.partition(":")[0]
    if named is not None and (not isinstance(named, str) or named not in registered):
        known = ", ".join(registered)
        raise ProviderError(
            f"{binder.name}: no provider {shown(named)}{nearest(named, registered)}; registered are {known}"
        )
    fitting = [each for each in registered if device_kind(each) == kind]
    if not fitting:
        raise ProviderError(
            f"{binder.name}: the arrays are on {device}; registered providers are {', '.join(registered)}"
        )
    if named is not None:
        record = providers.PROVIDERS.get(named)
        if named not in fitting and (device != HOST or record is None or record.host_copies is None):
            raise ProviderError(f"{binder.name}: provider {named!r} was asked for, but the arrays are on {device}")
        fitting = [named]
    reasons = {each: unavailable(each) for each in fitting}
    chosen = next((each for each, reason in reasons.items() if reason is None), None)
    if chosen is None:
        first, reason = next(iter(reasons.items()))
        raise ProviderError(f"{binder.name}: provider {first!r} cannot run here: {reason}")
    return providers.PROVIDERS[chosen]


def _ask(binder: Binder, provider: Provider, call: Call) -> Plan:
    """The first plan that a module of the provider makes. Raises an error with each one's reason where none does.

    Arrays with strides that no module takes are copied end to end, where the provider has a module for that.
    """
    family, names = binder.operator.family, binder.operator.providers[provider.name]
    more, reasons = added(binder.name, provider.name), list[str]()
    for name in names:
        searched = bool(provider.search and more)
        try:
            module = module_of(family, name)
            searched = searched or bool(provider.search and isinstance(module, Configurable))
            if searched:
                every = {each: f"gradkern.ops.{family}.{each}" for each in names} | dict(more)
                return cast(Choosing, load(str(provider.search))).plan(call, every)
            return _planned(module, call)
        except Refusal as refusal:
            reasons.append(str(refusal) if searched else f"{name}: {refusal}")
            if searched:  # all modules
                break
        except ImportError as error:
            reasons.append(f"{name}: cannot be loaded: {error}")
        except GradkernError as error:
            raise type(error)(f"{binder.name}: {error}") from None
    made = _wrapped(provider.contiguous, binder, provider, call)
    if made is not None:
        return made
    raise ProviderError(f"{binder.name}: provider {provider.name!r} cannot take the call: {'; '.join(reasons)}")


def _wrapped(
    module: str | None, binder: Binder, provider: Provider, call: Call, names: tuple[str, ...] = ()
) -> Plan | None:
    """The plan that a module of the provider makes from that of another call of the provider."""
    if module is None:
        return None
    try:
        return cast(Wrapper, load(module)).wrap(call, partial(_ask, binder, provider), names)
    except Refusal as refusal:
        raise ProviderError(f"{binder.name}: provider {provider.name!r} cannot take the call: {refusal}") from None


def _planned(module: ProviderModule, call: Call) -> Plan:
    """The module's plan. Where it has no choice, the kernel that the policy pins must be the one it has."""
    made, pinned = module.plan(call), call.policy.kernel
    selects_by_name = isinstance(module, Pinning) and module.SELECTS_BY_NAME
    if pinned not in (None, made.kernel) and made.kernel != "empty" and not selects_by_name:
        raise Refusal(f"has no kernel {pinned!r} for this call; it has {made.kernel!r}")
    return made
