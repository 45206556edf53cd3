"""What is known of calls that are alike: what gradkern makes of them, and how they are recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.torch_guards import tensor_guards
from gradkern.call import Tensor
from gradkern.torch.aten.request import AtenRequest, Constant, Declined, Derived, Finish, View
from gradkern.torch.counter import Counter
from gradkern.torch.native.recording import Steps
from gradkern.torch.native.records import Record
from gradkern.torch.operators import described_as

_TYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_INDICES = {torch.int32, torch.int64}
_COUNTS = torch.int32  # the type of numbers of elements; for a call that is only timed they may be 1
_ALIGNMENT = 16  # of what PyTorch allocates, at least; a call with other addresses is PyTorch's


@dataclass(frozen=True)
class Result:
    """One of aten's results that gradkern computes: its place, what PyTorch's kernel makes it, and how it is seen."""

    place: int
    tensor: Tensor
    seen_as: Tensor
    view: View | None = field(compare=False)


Source = int | tuple[Callable[..., torch.Tensor], tuple[int, ...]] | Constant
"""Where an input comes from: its place among the call's tensors; a function and its tensors' places; a constant."""


@dataclass(frozen=True)
class Description:
    """A request described: nothing of it holds a tensor. Equal ones have equal plans.

    sources   of every input, in contract order
    """

    op: str
    device: str
    inputs: tuple[tuple[str, Tensor], ...]
    sources: tuple[Source, ...]
    outputs: tuple[tuple[str, Result], ...]
    attributes: tuple[tuple[str, Any], ...]
    results: int  # how many aten has
    views: tuple[View | None, ...] = field(compare=False)  # of the inputs
    finish: Finish | None = field(compare=False)


def derived(source: Source, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """What is computed of a call's tensors."""
    function, places = source  # pyright: ignore[reportGeneralTypeIssues]
    return function(*[tensors[place] for place in places])


def describe(request: AtenRequest, tensors: tuple[torch.Tensor, ...], answer: Any) -> Description:
    """The description of a request, from PyTorch's answer to it. Raises Declined for what no contract has."""
    device = tensors[0].device
    host = device.type == "cpu"
    inputs, views = [], []
    sources: list[Source] = []
    for name, value in request.inputs.items():
        view = request.views.get(name)
        if isinstance(value, Constant):
            value, source = torch.empty(value.shape, dtype=value.dtype, device="meta"), value
        elif isinstance(value, Derived):
            source = value.function, tuple(_place(each, tensors) for each in value.tensors)
            value = derived(source, tensors)
        else:
            source = _place(value, tensors)
        inputs.append((name, _described(value if view is None else view(value), host)))
        sources.append(source)
        views.append(view)
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    outputs = []
    for place, name in enumerate(request.outputs):
        if name is not None:
            given = answers[place]
            if given is None:
                raise Declined(f"PyTorch's kernel returns no result number {place + 1}, but it is wanted")
            model = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="meta")
            view = request.views.get(name)
            seen = model if view is None else view(model)
            outputs.append((name, Result(place, _described(model, host), _described(seen, host), view)))
    if not outputs:
        raise Declined("no result that gradkern computes is wanted")
    return Description(
        request.op,
        "cpu" if host else f"cuda:{device.index}",
        tuple(inputs),
        tuple(sources),
        tuple(outputs),
        tuple(request.attributes.items()),
        len(answers),
        tuple(views),
        request.finish,
    )


def _place(tensor: torch.Tensor, tensors: tuple[torch.Tensor, ...]) -> int:
    return next(place for place, each in enumerate(tensors) if each is tensor)


def _described(tensor: torch.Tensor, host: bool) -> Tensor:
    if tensor.dtype not in _TYPES | _INDICES:
        raise Declined(f"{tensor.dtype} is none of gradkern's types")
    return described_as(tensor, 0 if host else _ALIGNMENT)


class Signature:
    """Calls that are alike in all that a plan may know.

    run      computes the results of such a call from its tensors; None where PyTorch's kernel answers
    reason   why it does; "" where gradkern answers, or has no plan yet
    failure  why gradkern could not answer the last such call that it failed at; others are tried all the same
    description  None where gradkern does not support the call
    args     the first such call's, for a call that is only timed: each tensor is replaced by what makes one of random
             numbers; None where that cannot be
    steps    of its plan, for machine code; by_python says why there are none
    records  of such calls that machine code answers, or leaves to PyTorch; `taught` counts those that were made
    natively counts those of the taken that machine code has answered
    comparison  the times of gradkern's and of PyTorch's kernels, once both are measured
    """

    __slots__ = (
        *("args", "by_python", "comparison", "declined", "description", "failure"),
        *("key", "natively", "reason", "records", "run", "steps", "taken", "taught", "text"),
    )

    def __init__(
        self,
        key: Any,
        text: str,
        description: Description | None,
        reason: str,
        args: tuple[Any, ...] | None = None,
    ) -> None:
        self.key, self.text, self.description, self.reason, self.args = key, text, description, reason, args
        self.comparison: Any = None
        self.failure = self.by_python = ""
        self.steps: Callable[[tuple[torch.Tensor, ...], Callable[[torch.Tensor], int]], Steps] | None = None
        self.records: list[Record] = []
        self.taught = 0
        self.run: Callable[[tuple[torch.Tensor, ...]], Any] | None = None
        self.taken, self.declined, self.natively = Counter(), Counter(), Counter()

    @property
    def waits(self) -> bool:
        """Whether a plan would let gradkern answer."""
        return self.run is None and not self.reason

    @property
    def calls(self) -> int:
        """How many there were, whoever answered."""
        return self.taken.value + self.declined.value

    def decline(self, reason: str) -> None:
        """Leave the calls to PyTorch from now on."""
        self.reason, self.run = reason, None
        self.withdraw()

    def withdraw(self) -> None:
        """Let no record answer from now on."""
        self.taught = 0
        for each in tuple(self.records):  # others may be forgotten at once
            each.withdraw()


def random_args(args: tuple[Any, ...], named: Any, below: int | None = None) -> tuple[Any, ...] | None:
    """A call's arguments for Signature.args. None where it has named ones, or tensors that no such numbers make.

    below: whole numbers are indices, from 0 to before it
    """
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    known = {*_TYPES, _COUNTS} if below is None else _TYPES | _INDICES
    if named or any(
        type(each) not in (torch.Tensor, torch.nn.Parameter) or each.dtype not in known for each in tensors
    ):
        return None
    return tuple([_randoms(each, below) if isinstance(each, torch.Tensor) else each for each in args])


def _randoms(tensor: torch.Tensor, below: int | None) -> Callable[[], torch.Tensor]:
    """Makes a tensor that a recogniser takes for this one."""
    shape, strides, dtype, device = tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if tensor.numel() else 0
    grad, parameter = tensor.requires_grad, type(tensor) is torch.nn.Parameter

    def randoms() -> torch.Tensor:
        if below is not None and dtype in _INDICES:
            return torch.randint(max(below, 1), (extent,), dtype=dtype, device=device).as_strided(shape, strides)
        if dtype is _COUNTS:
            return torch.ones(extent, dtype=dtype, device=device).as_strided(shape, strides)
        made = torch.randn(extent, dtype=dtype, device=device).as_strided(shape, strides)
        return torch.nn.Parameter(made, grad) if parameter else made.requires_grad_(grad)

    return randoms


def recogniser(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool]:
    """Checks whether other tensors are like these: class, dispatch keys, type, device, shape, strides, gradient."""
    guards = tensor_guards()
    if guards is not None:  # one look of PyTorch's own at all of them, in the time of two attributes
        return guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check  # None: all of them count
    known = list(map(_looks, tensors))
    return lambda *others: list(map(_looks, others)) == known


def _looks(tensor: torch.Tensor) -> tuple[Any, ...]:
    return type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.device
