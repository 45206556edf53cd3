"""enable, disable, tune and report: gradkern in front of aten's backward kernels, for the whole process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.torch_guards import tensor_guards
from gradkern.dispatch import planner, tuning
from gradkern.errors import ArgumentError, ProviderError
from gradkern.system import locks
from gradkern.torch.aten import TRANSLATIONS
from gradkern.torch.compile_backend import choice, findings
from gradkern.torch.counter import forget_calls
from gradkern.torch.overrides import ranks
from gradkern.torch.overrides.comparison import Verdicts, compare, follow, leave_short, verdicts
from gradkern.torch.overrides.kernel import Kernel, synchronize
from gradkern.torch.overrides.options import Group, Options, OptionsByName, Refusal, When
from gradkern.torch.overrides.report import Report, report_of
from gradkern.torch.overrides.signatures import Signature
from gradkern.torch.overrides.step_comparison import compare_graphs, compare_steps, forget_runs

if TYPE_CHECKING:
    from typing import Unpack

_KEYS = {"cuda": "CUDA", "cpu": "CPU"}
_changing = locks.reentrant_lock()
_options: list[Options] = []  # in force; none while disabled


@cache
def _kernels() -> tuple[Kernel, ...]:
    return tuple(Kernel(each, key) for each in TRANSLATIONS for key in _KEYS.values())


def _enabled() -> list[Kernel]:
    return [each for each in _kernels() if each.enabled]


def enable(
    ops: Group | Iterable[Group] | None = None,
    *,
    devices: str | Iterable[str] | None = None,
    min_bytes: int | Mapping[Group, int] | None = None,
    on_refusal: Refusal = "torch",
    plan: When = "tune",
    only_faster: bool = True,
    native: bool = True,
) -> None:
    """Let gradkern answer aten's backward kernels, for every model, thread and stream of the process.

    ops         any of "layer_norm", "rms_norm", "batch_norm", "group_norm", "conv", "gelu", "softmax",
                "embedding", "pooling", "resize"; by default all
    devices     "cuda", "cpu" or both; by default "cuda" where PyTorch finds a GPU, else "cpu"
    min_bytes   inputs of fewer bytes are PyTorch's: one number, or by operator; by default where the kernel's time is
                likely to outweigh the host's
    on_refusal  a call that gradkern cannot take: "torch", PyTorch's kernel answers; "warn", it does, and the first call
                of a kind warns; "raise", a ProviderError comes out of backward()
    plan        when kernels are chosen and compiled: "tune", in `tune(step)` and nowhere else, so that no step waits;
                "now", in the first call of a kind: it may take seconds. Never while a graph is captured
    only_faster  `tune` times gradkern's kernels and PyTorch's for each kind of call, on random data, and leaves to
                PyTorch those that do not gain more on the device than they cost on the host, and a whole operator
                where that is better for the step. False takes all that has a plan; so do plan="now" and
                on_refusal="raise"
    native      machine code answers calls of kinds that have come before, without Python and without the GIL: on the
                host a call then costs about what PyTorch's own does. `report` says of which kinds of calls Python
                answers nevertheless, and why. False leaves all to Python

    Modules, hooks, state_dict, double backward, autocast, checkpointing and distributed wrappers see no difference. A
    second call changes the options. Spawned processes have to call it for themselves. Code compiled by AOTInductor, or
    with Inductor's cpp_wrapper, calls C functions and may bypass it.

    Raises ArgumentError for an unknown option, and ProviderError where this PyTorch has no kernels for a device; the
    options in force do not change then.

    >>> gradkern.torch.enable()
    >>> gradkern.torch.enable(["layer_norm", "conv"], on_refusal="warn")
    """
    if devices is None:
        devices = "cuda" if torch.cuda.device_count() else "cpu"
    options = Options.of(ops, devices, min_bytes, on_refusal, plan, only_faster, native)
    tensor_guards()  # tried out now, not in a step
    with _changing:
        there = [each for each in _kernels() if _there(each)]
        for device in options.devices:
            if all(each.key != _KEYS[device] for each in there):
                others = " or ".join(repr(each) for each in _KEYS if each != device)
                raise ProviderError(
                    f"enable: this PyTorch, {torch.__version__}, has no kernels for {device}; pass devices={others}"
                )
        keys = [_KEYS[each] for each in options.devices]
        for kernel in _kernels():
            if kernel in there and kernel.translation.group in options.ops and kernel.key in keys:
                kernel.enable(options)
            else:
                kernel.disable()
        _options[:] = [options]


def _there(kernel: Kernel) -> bool:
    """Whether this PyTorch has such a kernel: a CPU build has none for CUDA, another version may lack an operator."""
    if kernel.override.installed:
        return True
    if kernel.key == "CUDA" and not torch.backends.cuda.is_built():
        return False
    try:
        torch.library.get_kernel(f"aten::{kernel.translation.name}", kernel.key)
    except RuntimeError:
        return False
    return True


def disable() -> None:
    """Let PyTorch's own kernels answer again. Plans, and what `tune` has left to PyTorch, are kept for the next
    `enable`.

    gradkern stays in front of PyTorch's kernels and passes every call on to them, which costs the host what a declined
    call does: removing it while other threads train is not safe.

    >>> gradkern.torch.disable()
    >>> gradkern.torch.is_enabled()
    False
    """
    with _changing:
        for kernel in _kernels():
            kernel.disable()
        _options.clear()


def is_enabled() -> bool:
    """Whether `enable` is in force.

    >>> with gradkern.torch.enabled():
    ...     gradkern.torch.is_enabled()
    True
    """
    return bool(_options)


@contextmanager
def enabled(ops: Group | Iterable[Group] | None = None, **options: Unpack[OptionsByName]) -> Iterator[None]:
    """`enable` for a block of code, and what was in force before after it.

    It is no switch of this thread: every model and thread of the process is served meanwhile, since CUDA's backward
    passes run in threads of autograd's.

    >>> x = torch.randn(64, 8, 512, requires_grad=True)
    >>> with gradkern.torch.enabled("layer_norm", plan="now"):
    ...     torch.nn.functional.layer_norm(x, (512,)).square().sum().backward()
    """
    before = list(_options)
    enable(ops, **options)
    try:
        yield
    finally:
        if before:
            enable(**{each.name: getattr(before[0], each.name) for each in fields(before[0])})
        else:
            disable()


def tune(step: Callable[[], Any], *, repeats: int = 0) -> Any:
    """Run one step, then choose and compile the kernels for every signature it met. Returns what the step returns.

    repeats  then run more steps, 8 repeats + 8 or 12 repeats + 12 for each operator, in turns of so many with
             gradkern's kernels and with PyTorch's, and leave an operator to PyTorch unless steps are shorter with
             gradkern's. Each of them trains the model. 5 show what single calls cannot: whether the host bounds the
             step, as with small batches, or the device. Where the device does, calls pay even if they gain less than
             they cost the host.
             Of a model that is compiled with backend="gradkern", 8 repeats + 14 steps find out whether it is faster as
             Inductor alone compiles it; then it runs so. A CUDA graph always has the kernels that take less time. The
             report says whether one would help.
             Where turns differ too much to tell, as on a host that others use, there are more: for 10 seconds of a
             compiled model, and for 10 of all operators. If 10 seconds do not show it either, a compiled model runs
             the kernels that take less time

    The signatures are those that `enable` has met, and those of models that torch.compile has compiled with
    backend="gradkern". A CUDA graph keeps the kernels that it was captured with, so tune before: in the first step with
    mode="reduce-overhead", as that captures the second or a later one.

    Nothing is in flight on the device meanwhile. Searches that other calls of gradkern have deferred are made, too, as
    by `gradkern.tune()`. Under torch.distributed the first rank searches, then the others, who read what it found: all
    have to call it, with as many repeats. Kernels leave multiprocessors to NCCL's where the group is there by then.

    Raises ProviderError where neither is in use, and ArgumentError for a step that is no function, for repeats below 0,
    or where `enable` was not called, or takes every call that has a plan.

    >>> model = torch.nn.Sequential(torch.nn.Conv1d(4, 8, 3), torch.nn.ReLU())
    >>> gradkern.torch.enable()
    >>> gradkern.torch.tune(lambda: model(torch.randn(2, 4, 32)).sum().backward())
    """
    if not callable(step):
        raise ArgumentError(f"tune: step is a {type(step).__name__}; expected a function without arguments")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0:
        raise ArgumentError(f"tune: repeats is {repeats!r}; expected a number of steps, 0 or more")
    is_compared = bool(_options) and _only_faster()
    if repeats and _options and not is_compared and not choice.live():
        raise _nothing_to_compare(repeats)
    forget_runs()
    recorded = RecordedStep()
    result = step()
    if repeats and not is_compared and not choice.live():  # a model compiles in its first step, so it is known now
        raise _nothing_to_compare(repeats)
    calls = recorded.plan()
    if repeats and is_compared:
        compare_steps(_kernels(), calls, step, repeats)
    if repeats:
        compare_graphs(step, repeats)
    synchronize()
    return result


def _nothing_to_compare(repeats: int) -> ArgumentError:
    return ArgumentError(
        f"tune: repeats is {repeats!r}; expected 0, as nothing is left to PyTorch for its time unless "
        "enable(only_faster=True, plan='tune', on_refusal='torch' or 'warn') is in force, or a model is compiled "
        "with backend='gradkern' for fixed sizes"
    )


class RecordedStep:
    """The calls from here on, to `plan`: those of one step of training."""

    def __init__(self) -> None:
        for kernel in _enabled():
            kernel.activate()
        self._calls = {each: each.calls for kernel in _kernels() for each in kernel.signatures()}
        self._small = {kernel: kernel.small.value for kernel in _kernels()}

    def plan(self) -> dict[Signature, int]:
        """Choose and compile the kernels of every signature that the step met, as `tune` does, when it has ended.
        Returns how often each signature came.
        """
        calls = {each: each.calls - self._calls.get(each, 0) for kernel in _kernels() for each in kernel.signatures()}
        small = {kernel: kernel.small.value - count for kernel, count in self._small.items()}
        synchronize()
        if _options:
            _plan_signatures(calls, small)
        elif not tuning.tune().plans and not findings.used():
            raise ProviderError(
                "tune: gradkern.torch.enable() has not been called, and no model is compiled with backend='gradkern'"
            )
        synchronize()
        return calls


def _only_faster() -> bool:
    """Whether calls that do not gain are to be left to PyTorch."""
    return all(each.leaves_what_does_not_gain for each in _options)


def _plan_signatures(calls: Mapping[Signature, int], small: Mapping[Kernel, int]) -> None:
    """Plan for those that wait, and leave to PyTorch what is faster there, given how many calls a step has."""
    first = ranks.is_first()
    found = Verdicts() if first else ranks.of_first(Verdicts())  # waits until that has searched
    try:
        if not first:
            follow(_kernels(), found)
        elif _only_faster():
            leave_short(_kernels())
        met = [(kernel, each) for kernel in _enabled() for each in kernel.signatures()]
        planner.compile_ahead(filter(None, [kernel.wanted(each) for kernel, each in met]))
        for kernel, each in met:
            kernel.plan(each)
        tuning.tune()
        for kernel in _enabled():
            kernel.answer_natively()
        if first and _only_faster():
            compare(_kernels(), calls, small)
            found = verdicts(_kernels())
    finally:
        if first:
            ranks.of_first(found)


def runs() -> list[Any]:
    """What answers calls now: a graph that has captured some needs their kernels as long as it lives."""
    return [each.run for kernel in _kernels() for each in kernel.signatures() if each.run is not None]


def report() -> Report:
    """What became of every call, of models and in gradkern.torch's functions and modules, and of every model compiled
    with backend="gradkern", since the process began or since `forget`.

    >>> print(gradkern.torch.report())
    gradkern.torch: no call of an operator that gradkern could answer
    """
    return report_of(_kernels())


def forget() -> None:
    """Forget every signature, its plan and its count of calls, and what was found in compiled models.

    >>> gradkern.torch.forget()
    >>> len(gradkern.torch.report())
    0
    """
    for kernel in _kernels():
        kernel.forget()
    forget_calls()
    findings.clear()
    choice.compared.clear()


def follow_environment() -> None:
    """GRADKERN_TORCH=1 enables at import, with every option as it is by default."""
    switches = {"GRADKERN_TORCH": "1, which enables, or 0", "GRADKERN_NATIVE": "0, which leaves calls to Python, or 1"}
    for name, expected in switches.items():
        value = os.environ.get(name, "")
        if value not in ("", "0", "1"):
            raise ArgumentError(f"{name} is {value!r}; expected {expected}")
    if os.environ.get("GRADKERN_TORCH") == "1":
        enable()
