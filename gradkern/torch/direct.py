"""Operators of the registry for autograd functions, called in eager without PyTorch's dispatcher: a call of
torch.ops.gradkern passes the dispatcher three times, at a higher cost for the host than all the rest of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch.autograd import forward_ad  # pyright: ignore[reportMissingImports]

from gradkern.arrays.torch_guards import Guard, of_tensors
from gradkern.contract.binder import AttributeKey, attribute_key
from gradkern.contract.host import HostValue, host_key, host_values, scalars_of
from gradkern.contract.request import Request, binder_of
from gradkern.dispatch.operands import out_names
from gradkern.dispatch.plan_cache import Shortcut, plan_cache, shortcuts
from gradkern.dispatch.recogniser import Recogniser
from gradkern.dispatch.run import run, run_known
from gradkern.torch.flags import flags, in_force, policy_of
from gradkern.torch.operators import IN_FORCE, define, tensors_of

Tensors = tuple[torch.Tensor | None, ...]
Attributes = tuple[tuple[str, Any], ...]
define()
_MOST, _MOST_ALIKE = 256, 8
_is_compiling = torch.compiler.is_compiling
_count_modes = torch._C._len_torch_dispatch_stack
_is_transforming = torch._C._are_functorch_transforms_active
_trace: Callable[[], Any] = torch._C._get_tracing_state
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def is_eager() -> bool:
    """Whether operators run when they are called and nothing else sees them: no tracing, no dispatch mode."""
    return not (_is_compiling() or _count_modes())


def needs_pytorch(*tensors: torch.Tensor | None) -> bool:
    """Whether a function has to be PyTorch's whole, as our autograd functions have no rule for it: transforms of
    torch.func, forward-mode AD, torch.jit.trace, and tensors of other classes (nested, distributed, quantized ones),
    layouts or devices.
    """
    for each in tensors:
        if each is not None and (
            type(each) not in _PLAIN
            or each.layout is not torch.strided
            or not (each.is_cuda or each.is_cpu or each.is_meta)
        ):
            return True
    if _is_compiling():
        return False
    return _is_transforming() or forward_ad._current_level >= 0 or _trace() is not None


class _Known:
    """Calls that are alike, and their plan, as long as the cache of plans has it. It keeps no tensor alive."""

    __slots__ = ("_kind", "_names", "_places", "_scalars", "_slot")

    def __init__(
        self, plan: Shortcut, places: tuple[int, ...], names: tuple[str, ...], scalars: tuple[bool | int | float, ...]
    ) -> None:
        self._slot, self._kind = plan
        self._names, self._places, self._scalars = names, places, scalars

    @property
    def lives(self) -> bool:
        return self._slot.entry is not None

    def __call__(self, guard: Guard, given: tuple[Any, ...], out: dict[str, torch.Tensor] | None) -> Any:
        """What the plan returns; None for a call that is not like the others."""
        plan, inputs = self._slot.entry, len(given)
        if plan is None or len(self._names) != (len(out) if out else 0):
            return None
        tensors, written = given, ()
        if out:
            for name, place in zip(self._names, self._places, strict=True):
                each = out.get(name)
                if place >= inputs:
                    tensors = (*tensors, each)
                elif each is not tensors[place]:
                    return None
        addresses = guard.addresses(tensors)
        if addresses is None:
            return None
        if out:
            addresses, written = addresses[:inputs], tuple([addresses[place] for place in self._places])
            if not plan.disjoint(addresses, written):
                return None
        plan_cache.use(self._slot)
        return plan.execute(addresses + self._scalars, self._kind, out, written, None)


class Direct:
    """An operator of the registry, of whose outputs are computed those that are needed.

    What is traced or seen by a dispatch mode goes to torch.ops.gradkern, and so do tensors that only stand for others,
    such as subclasses and those of function transforms. Inputs on the host are numbers and lists, given as attributes.

    outputs   the contract's, from the first on
    searched  whether a search chooses its kernels; it depends on PyTorch's flags and on the policy in force
    seen      returns all settings in force that are part of a plan
    """

    def __init__(self, name: str, outputs: tuple[str, ...], searched: bool = False) -> None:
        self._name, self.outputs, self.searched = name, outputs, searched
        self.seen: Callable[[], Any] = flags if searched else in_force
        self._binder = binder_of(name)
        self._padding = {n: (None,) * (len(self._binder.inputs) - n) for n in range(1, len(self._binder.inputs) + 1)}
        self._count = len(outputs)
        self._on_host = {*self._binder.inputs} - {each.name for each in tensors_of(self._binder.operator)}
        self._prepared: dict[Any, tuple[tuple[str, ...], dict[str, Any], AttributeKey, tuple[HostValue, ...]]] = {}
        self._known: Recogniser[Guard, _Known] = Recogniser(_MOST, _MOST_ALIKE, lives=lambda known: known.lives)

    def __call__(
        self,
        needs: tuple[bool, ...],
        tensors: Tensors,
        attributes: Attributes = (),
        out: dict[str, torch.Tensor] | None = None,
    ) -> tuple[Any, ...]:
        """The outputs, None for one that is not needed, of the first inputs of the contract, None for one that is not
        given. With `out`, tensors to write outputs into, it is called at once whoever looks.
        """
        if not out and not is_eager():
            return self.dispatched(needs, tensors, attributes)
        if not self._binder.is_plain:
            out = dict(self._binder.aliased(self._padded(tensors), self._wanted(needs), out) or {})
        given = tuple([each for each in tensors if each is not None])
        seen = self.seen()
        alike = needs, attributes, given[0].shape, tuple([each is None for each in tensors]), seen
        for guard, known in self._known.rows(alike, ()):
            found = known(guard, given, out)
            if found is not None:
                return self._results(found)
        request = self._request(needs, tensors, attributes, out, seen)
        found = run_known(request)
        if found is not None:
            self._remember(alike, request)
            return self._results(found)
        if not out and of_tensors(given) is None:
            return self.dispatched(needs, tensors, attributes)
        inputs: Any = tensors
        wanted, policy = request.wanted, request.policy
        return self._results(run(self._name, *inputs, outputs=wanted, out=out, policy=policy, **dict(attributes)))

    def shortcut(
        self, needs: tuple[bool, ...], tensors: Tensors, attributes: Attributes, out: dict[str, torch.Tensor] | None
    ) -> Shortcut | None:
        """The plan of calls like this one; None where only a signature finds it."""
        if type(tensors[self._binder.first]) is not shortcuts.tensor:
            return None
        found = shortcuts.known(self._request(needs, tensors, attributes, out, self.seen()))
        return None if found is None else found[0][1]

    def _request(
        self,
        needs: tuple[bool, ...],
        tensors: Tensors,
        attributes: Attributes,
        out: dict[str, torch.Tensor] | None,
        seen: Any,
    ) -> Request:
        prepared = self._prepared.get((needs, attributes))
        if prepared is None:
            prepared = self._prepared[needs, attributes] = self._ask(needs, attributes)
        wanted, named, key, host = prepared
        policy = policy_of(seen) if self.searched else None
        return Request(self._binder, self._padded(tensors), named, key, wanted, out, None, policy, host)

    def _padded(self, tensors: Tensors) -> Tensors:
        """With None for every input behind them."""
        return tensors + self._padding[len(tensors)]

    def _results(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(found) < self._count:  # appended outputs come only where wanted
            return tuple([getattr(found, name, None) for name in self.outputs])
        return found[: self._count]

    def _remember(self, alike: Any, request: Request) -> None:
        """Recognise the next call like this one here. This call has its plan."""
        found = shortcuts.known(request)
        if found is None:
            return
        (guard, plan), places = found
        names = out_names(self._binder, request.out) if request.out else ()
        self._known.add(alike, guard, _Known(plan, places, names, scalars_of(request.host)))

    def _ask(
        self, needs: tuple[bool, ...], attributes: Attributes
    ) -> tuple[tuple[str, ...], dict[str, Any], AttributeKey, tuple[HostValue, ...]]:
        named = dict(attributes)
        on_host = tuple([named.pop(each, None) if each in self._on_host else None for each in self._binder.inputs])
        _, named, host = host_values(self._binder, on_host, named, complete=False)
        return self._wanted(needs), named, attribute_key(named) + host_key(host), host

    def _wanted(self, needs: tuple[bool, ...]) -> tuple[str, ...]:
        return tuple([name for name, need in zip(self.outputs, needs, strict=True) if need])

    def dispatched(self, needs: tuple[bool, ...], tensors: Tensors, attributes: Attributes) -> tuple[Any, ...]:
        """The same by a call of torch.ops.gradkern, also of tensors without data."""
        operator: Any = getattr(torch.ops.gradkern, self._name)
        wanted = ",".join(self._wanted(needs))
        policy: dict[str, Any] = {"search": IN_FORCE} if self.searched else {}
        named = zip(self._binder.inputs, tensors, strict=False)
        there = [each for name, each in named if name not in self._on_host]
        found = operator(*there, outputs=wanted, **policy, **dict(attributes))
        found = (found,) if isinstance(found, torch.Tensor) else found
        return tuple([each if need else None for each, need in zip(found, needs, strict=False)])  # it may have more


class OpCall(NamedTuple):
    """A call of a Direct operator with its arguments, one for eager and for what is compiled.

    results  the places of the outputs that the operator returns; by default all
    """

    operator: Direct
    needs: tuple[bool, ...]
    tensors: Tensors
    attributes: Attributes = ()
    out: dict[str, torch.Tensor] | None = None
    results: tuple[int, ...] | None = None

    def outputs(self) -> tuple[Any, ...]:
        """Those that are returned, None for one that is not needed."""
        return self._chosen(self.operator(self.needs, self.tensors, self.attributes, self.out))

    def answer(self) -> Any:
        """What the operator returns, an empty tensor in the place of one that is not wanted."""
        return self._given(self.outputs())

    def without_data(self) -> Any:
        """The same without data, by the registry's rules."""
        with torch.no_grad():
            return self._given(self._chosen(self.operator.dispatched(self.needs, self.tensors, self.attributes)))

    def _chosen(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        return found if self.results is None else tuple([found[place] for place in self.results])

    def _given(self, found: tuple[Any, ...]) -> Any:
        every = given(found, next(each for each in self.tensors if each is not None))
        return every[0] if len(every) == 1 else every

    def shortcut(self) -> Shortcut | None:
        """This call's plan, if only its tensors need to be recognised to find it."""
        return self.operator.shortcut(self.needs, self.tensors, self.attributes, self.out)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs that the operator returns."""
        outputs = self.operator.outputs
        return outputs if self.results is None else tuple([outputs[place] for place in self.results])


def given(results: tuple[torch.Tensor | None, ...], like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The results, an empty tensor in the place of one that is not wanted."""
    return tuple([like.new_empty(0) if each is None else each for each in results])
