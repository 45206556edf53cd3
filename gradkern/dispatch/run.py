"""run and prepare: the path of a call.

A plan is made once per signature and cached. The contract is checked when the plan is made: the same signature gets the
same verdict, so a warm call pays for one look-up. What depends on addresses (an `out` that overlaps an input) is
checked at every call. Calls on plain tensors of a GPU like those of an earlier call need no signature to find its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import Kind, View
from gradkern.arrays.torch_compile import opaque
from gradkern.arrays.view import device_arrays
from gradkern.call import HOST, Tensor
from gradkern.contract.host import scalars_of
from gradkern.contract.request import Request, Views, request_of
from gradkern.dispatch import planner
from gradkern.dispatch.operands import read, views_of
from gradkern.dispatch.plan_cache import plan_cache, shortcuts, signature_of
from gradkern.dispatch.prepared import Prepared
from gradkern.policy import Policy


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

    >>> gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1]).dW.shape
    (4, 4, 3, 3)
    """
    request = request_of(op, inputs, named, outputs, out, provider, policy, domain, version)
    plan, buffers, kind, out_buffers = _find(request, stream)
    if request.host:
        buffers += scalars_of(request.host)
    return plan.execute(buffers, kind, request.out, out_buffers, stream)


def run_known(request: Request) -> Any:
    """What `run` returns, if a call like it on plain tensors of a GPU is known; else None."""
    if type(request.arrays[request.binder.first]) is not shortcuts.tensor:
        return None
    found = shortcuts.find(request)
    if found is None:
        return None
    plan, buffers, kind, out_buffers = found
    if request.host:
        buffers += scalars_of(request.host)
    return plan.execute(buffers, kind, request.out, out_buffers, None)


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
    >>> plan
    <gradkern plan LayerNormalizationGrad on cpu: rows, ... bytes of scratch>
    >>> grads = plan(dY, X, scale, mean, inv_std)
    """
    return _find(request_of(op, inputs, named, outputs, out, provider, policy, domain, version), stream)[0]


def plan_for(op: str, tensors: Mapping[str, Tensor], **described: Any) -> Prepared:
    """The plan for inputs that are described, by name, and need not be there: checked and made, not kept.

    device is "cpu" (the default) or "cuda:0", and `out` has descriptions too; all else is as in `prepare`. Arrays that
    fit the descriptions can be given to the plan.
    """
    return planner.plan(*_described_call(op, tensors, **described))


def dry_plan_for(op: str, tensors: Mapping[str, Tensor], provider: str, **described: Any) -> None:
    """Plan as `plan_for` does, for a device that need not be there: for use in `gradkern.cuda.dry_run`."""
    planner.dry_plan(*_described_call(op, tensors, provider=provider, **described), provider)


def _described_call(
    op: str,
    tensors: Mapping[str, Tensor],
    *,
    device: str = HOST,
    outputs: Any = None,
    out: Mapping[str, Tensor] | None = None,
    provider: str | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    **attributes: Any,
) -> tuple[Request, Views]:
    given = {name: _described(each, device) for name, each in (out or {}).items()}
    request = request_of(op, (), {**tensors, **attributes}, outputs, given, provider, policy)
    request.binder.require(request.arrays)
    named = zip(request.binder.inputs, request.arrays, strict=True)
    views = {name: _described(each, device) for name, each in named if each is not None}
    same = [(source, name) for source, name in request.binder.aliases if source in views and name in request.wanted]
    return request, Views(views, {**{name: views[source] for source, name in same}, **given}, frozenset(same))


def _described(tensor: Tensor, device: str) -> View:
    return View(tensor, None, device, NUMPY)


def _find(request: Request, stream: Any) -> tuple[Prepared, tuple[Any, ...], Kind, tuple[Any, ...]]:
    """The plan of a call, cached or made; and as in Operands the buffers, the kind and the buffers of `out`."""
    binder, arrays, out = request.binder, request.arrays, request.out
    if type(arrays[binder.first]) is shortcuts.tensor:
        try:
            found = shortcuts.find(request)
        except Exception:  # it comes again below, after what is wrong with the arrays
            found = None
        if found is not None:
            return found
    operands = read(binder, arrays, out)
    _, buffers, kind, _, out_buffers, _ = operands
    signature = signature_of(request, operands)
    try:
        plan = plan_cache.get(signature)
    except Exception:  # an attribute that cannot be hashed, or raises anything else: the check names it
        plan = signature = None
    if plan is None:
        on_host = kind.device == HOST
        before_planning = None if on_host else partial(device_arrays().refuse_capture, binder.name, kind, stream)
        plan = planner.plan(request, views_of(binder, operands), signature, before_planning)
    elif kind.device != HOST:
        shortcuts.add(request, operands, plan_cache.slot(signature))
    if out:
        plan.refuse_overlap(operands)
    return plan, buffers, kind, out_buffers


opaque(run, prepare, Prepared.__call__)
