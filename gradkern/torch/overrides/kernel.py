"""An aten backward operator with gradkern in front of PyTorch's kernel."""

from __future__ import annotations

import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.dispatch.planner import CompileJob
from gradkern.dispatch.recogniser import Recogniser
from gradkern.dispatch.run import dry_plan_for, plan_for
from gradkern.errors import GradkernError, ProviderError
from gradkern.policy import DEFAULT, current, searching
from gradkern.system import locks
from gradkern.system.notice import warn
from gradkern.system.own_thread import turn
from gradkern.torch.aten.request import Declined, Translation
from gradkern.torch.counter import Counter
from gradkern.torch.flags import policy_of
from gradkern.torch.native import words
from gradkern.torch.native.kernel import NativeKernel, unsupported
from gradkern.torch.native.recording import Steps, Unrepeatable
from gradkern.torch.native.records import Record
from gradkern.torch.operators import short_name
from gradkern.torch.overrides.options import Options
from gradkern.torch.overrides.override import Override
from gradkern.torch.overrides.runners import Run, by_python, runner, steps
from gradkern.torch.overrides.signatures import Description, Signature, describe, random_args, recogniser

MOST, _MOST_ALIKE = 4096, 16
_TAKEN, _DECLINED = attrgetter("taken"), attrgetter("declined")
_planning = locks.reentrant_lock()  # a search that times kernels must have the device to itself


class Kernel:
    """One aten operator at one dispatch key.

    PyTorch's kernel answers the first call of a signature: this shows what results look like. Once there is a plan for
    it, gradkern answers. Nothing is planned in a call unless the options say so, and nothing while a graph is captured.
    """

    def __init__(self, translation: Translation, key: str) -> None:
        self.translation, self.key = translation, key
        self.options = Options()
        self.small = Counter()  # calls under the gate
        self.forgotten: Tally[str] = Tally()  # kinds of calls that there was no more room for, and who answered them
        self._table: Recogniser[Callable[..., bool], Signature] = Recogniser(
            MOST, _MOST_ALIKE, keeps=lambda signature: signature.run is not None
        )
        self._counts: dict[Record, tuple[Signature, tuple[Counter, ...]]] = {}
        self._runs: dict[tuple[Description, Any], tuple[Run, Callable[..., Steps], str]] = {}
        self._least = 0
        self.by_python = ""  # why Python answers all calls, where machine code was asked for
        self._enabled = self._raises = False
        self._native: NativeKernel | None = None  # where machine code answers now
        self.inactive = ""  # why every call is PyTorch's until the next `activate`
        self._changing = locks.reentrant_lock()
        self.answer = self._body()
        self.override = Override(translation.name, key, self.answer)

    @property
    def enabled(self) -> bool:
        return self._enabled

    def enable(self, options: Options) -> None:
        """Answer calls by these options. An inactive kernel stays so, unless the options take all that has a plan.

        Raises RuntimeError where PyTorch has no such kernel.
        """
        self.follow(options)
        if not (self.inactive and options.leaves_what_does_not_gain):
            self.activate()

    def follow(self, options: Options) -> None:
        """Answer calls by these options; none come before the override is installed."""
        self.options = options
        self._raises = options.on_refusal == "raise"
        for each in self.signatures() if self._raises else ():
            if each.reason:
                each.withdraw()  # Python raises for them
        self.answer_natively()
        self._answer_from(max(1, options.least(self.translation.group)))  # what is empty is PyTorch's
        self._set_enabled(True)

    def answer_natively(self) -> None:
        """Let machine code answer, if that is wanted and there is a plan that it can repeat, or will be one in a step:
        what it hands on to Python costs more than by Python alone. Registering is not safe while other threads train.
        """
        options, kinds = self.options, self.signatures()
        able = options.plan == "now" or any(each.run is not None and not each.by_python for each in kinds)
        if options.native and able and self.override.native is None:
            self._use_machine_code()
            self._answer_from(self._least)
            self._set_enabled(self._enabled)

    def _use_machine_code(self) -> None:
        """Register machine code in place of Python, where that can be."""
        name, key, override = self.translation.name, self.key, self.override
        self.by_python = unsupported(name, key)
        if self.by_python:
            return
        installed = override.installed
        if not override.remove():
            self.by_python = "another kernel is registered on top of gradkern's"
            return
        try:
            translation = self.translation
            flags, measured, may_raise = translation.searched, translation.measured, translation.result is not None
            given = getattr(torch.ops.aten, name).default, key, self.answer, self._fold, flags, measured
            override.native = NativeKernel(*given, override.original, may_raise)
            self.small.others.append(override.native.small)
            override.install()
        except Exception as error:  # it cannot be compiled here, or PyTorch does not take it
            override.native, self.by_python = None, _said(error)
        if installed:
            override.install()
        else:
            override.remove()

    def _answer_from(self, least: int) -> None:
        """Answer calls on at least so many bytes."""
        self._least = least
        if self.override.native is not None:
            self.override.native.least(least)

    def _set_enabled(self, enabled: bool) -> None:
        self._enabled = enabled
        self._native = self.override.native if enabled and self.options.native else None
        if self.override.native is not None:
            ways = words.BY_PYTORCH, words.BY_PYTHON, words.BY_RECORDS
            self.override.native.answer(ways[enabled + (self._native is not None)])

    def disable(self) -> None:
        """Pass every call on to PyTorch's kernel until the next `enable`. Plans and verdicts are kept.

        The override stays: PyTorch's table of kernels is not safe to change while other threads train.
        """
        self._set_enabled(False)

    @property
    def replaces_errors(self) -> bool:
        """Whether PyTorch's kernel may raise at every call, as only deterministic algorithms are allowed now."""
        only = (
            torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
        )
        return self.translation.result is not None and only

    def deactivate(self, reason: str) -> None:
        """Leave the operator to PyTorch as if there were no gradkern, until `activate`: in `tune`, between steps.
        Not where it has to answer.
        """
        if not self.replaces_errors and self.override.remove():
            self.inactive = reason

    def activate(self) -> None:
        self.override.install()
        self.inactive = ""

    @contextmanager
    def handing_on(self) -> Iterator[None]:
        """Pass every call on to PyTorch, as too small ones are, and count none."""
        least, before = self._least, self.small.value
        self._answer_from(sys.maxsize)
        try:
            yield
        finally:
            self._answer_from(least)
            self.small.less(self.small.value - before)

    def signatures(self) -> list[Signature]:
        return self._table.entries()

    def forget(self) -> None:
        """Forget every signature and its plan, and why it is inactive."""
        with self._changing:
            for signature in self.signatures():
                signature.by_python = "it is forgotten"
            self._table.clear()
            self._runs.clear()
            self.small.less(self.small.value)
            self.forgotten.clear()
            if self.override.native is not None:
                self.override.native.clear()
        if self._enabled:
            self.activate()
        self.inactive = ""

    def plan(self, signature: Signature) -> None:
        """Plan for a signature that waits: compile, and search at once. Where that fails, the calls are PyTorch's."""
        description = signature.description
        if description is None or not signature.waits:
            return
        flags = signature.key[1][-1] if self.translation.searched else None
        with turn(_planning):
            try:
                signature.run, signature.steps, signature.by_python = self._planned(description, flags)
            except Exception as error:
                _raise_if_lost(error)
                signature.reason = _said(error)

    def wanted(self, signature: Signature) -> CompileJob | None:
        """What the plan of a signature needs, if it waits for one."""
        description = signature.description
        if description is None or not signature.waits:
            return None
        flags = signature.key[1][-1] if self.translation.searched else None
        provider = description.device.partition(":")[0]  # one of its device's name
        return provider, description.device, partial(dry_plan_for, provider=provider, **_described(description, flags))

    def _planned(self, description: Description, flags: Any) -> tuple[Run, Callable[..., Steps], str]:
        found = self._runs.get((description, flags))
        if found is None:
            prepared = plan_for(**_described(description, flags))
            described = description, prepared.plan, tuple(prepared.call.outputs)
            reason = self.translation.by_python(description) or by_python(description, prepared.plan)
            found = self._runs[description, flags] = runner(*described), partial(steps, *described), reason
        return found

    def _body(self) -> Callable[..., Any]:
        split, rows, measured = self.translation.split, self._table.rows, self.translation.measured
        may_raise = self.translation.result is not None

        def body(keys: Any, *args: Any, **named: Any) -> Any:
            if not self._enabled:
                return self.override.original(keys, *args, **named)
            x = args[measured]
            if x.nbytes < self._least and not (may_raise and x.nbytes and torch.are_deterministic_algorithms_enabled()):
                self.small.tick()
                return self.override.original(keys, *args, **named)
            tensors, rest = split(*args, **named)
            for fits, signature in rows((x.shape, rest), ()):
                if fits(*tensors):
                    run = signature.run
                    break
            else:
                return self._first(keys, args, named, tensors, (x.shape, rest))
            if run is not None:
                try:
                    results = run(tensors)
                    if results is not None:
                        finish = signature.description.finish  # pyright: ignore[reportOptionalMemberAccess]
                        if finish:
                            results = finish(results, args)
                        signature.taken.tick()
                        if self._native is not None:
                            self._teach(self._native, signature, args, named, tensors)
                        return results
                except Exception as error:  # PyTorch's kernel answers, and raises its own if it fails, too
                    self._failed(signature, error)
            elif self._raises and signature.reason:
                self._refused(signature, signature.reason)
            answer, count = self._original(tensors, keys, *args, **named)
            count(signature).tick()
            if self._native is not None and signature.reason and count is _DECLINED:
                self._leave(self._native, signature, args, named)
            return answer

        return body

    def _original(
        self, tensors: tuple[torch.Tensor, ...], keys: Any, *args: Any, **named: Any
    ) -> tuple[Any, Callable[[Signature], Counter]]:
        """PyTorch's answer; gradkern's where its kernel raises as it is not deterministic. And the one of a signature's
        counters that counts it.
        """
        try:
            return self.override.original(keys, *args, **named), _DECLINED
        except RuntimeError as error:
            result = self.translation.result
            if result is None or "deterministic" not in str(error) or _capturing(tensors[0]):
                raise
            try:
                request = self.translation.request(*args, **named)
                description = describe(request, tensors, result(*args, **named))
                with turn(_planning):
                    run, *_ = self._planned(description, None)
            except (Declined, GradkernError) as reason:
                raise error from reason
            results = run(tensors)
            if results is None:
                raise
            return results, _TAKEN

    def _teach(
        self, native: NativeKernel, signature: Signature, args: tuple[Any, ...], named: Any, tensors: tuple[Any, ...]
    ) -> None:
        """Let machine code answer the next call like this one, if it can."""
        if signature.by_python or signature.steps is None or _capturing(tensors[0]) or current() is not DEFAULT:
            return
        given = [each.data_ptr() for each in (*args, *named.values()) if isinstance(each, torch.Tensor)]
        if any(given.count(each.data_ptr()) > 1 for each in tensors):
            return  # its place is unknown: the tensors of other such calls differ
        device = tensors[0].device
        if signature.records and signature.records[-1].scratch >= 0 and native.add_stream(signature.records[-1]):
            return
        if signature.taught == _MOST_ALIKE:  # their addresses are aligned in as many ways, or they come and go
            if not any(each.calls for each in signature.records):
                signature.by_python = "machine code does not recognise such calls"
                signature.withdraw()  # or each is tried first, in vain
            return
        signature.taught += 1
        try:
            with self._changing:
                values = native.given(args, named)
                made = signature.steps(tensors, lambda tensor: next(n for n, x in enumerate(values) if x is tensor))
                record = native.add(values, made, args[self.translation.measured].nbytes, device)
                if record is not None:  # before another thread's call can replace it
                    self._note(record, signature, signature.taken, signature.natively)
        except Unrepeatable as reason:
            signature.by_python = str(reason)
            return
        if record is None:
            signature.by_python = "too much decides how it is computed"
            return
        if signature.run is None or signature.by_python:  # declined or forgotten meanwhile
            record.withdraw()
        if record.scratch >= 0:
            native.add_stream(record)

    def _leave(self, native: NativeKernel, signature: Signature, args: tuple[Any, ...], named: Any) -> None:
        """Let machine code hand the next call like this one to PyTorch's kernel, if it can tell such calls apart."""
        if signature.by_python or self._raises or signature.taught == _MOST_ALIKE:
            return
        signature.taught += 1
        x = args[self.translation.measured]
        with self._changing:
            record = native.add(native.given(args, named), None, x.nbytes, x.device)
            if record is None:
                return
            self._note(record, signature, signature.declined)
        if self._raises or not signature.reason or signature.by_python:  # forgotten meanwhile, or tried again
            record.withdraw()

    def _note(self, record: Record, signature: Signature, *counters: Counter) -> None:
        """Let the record count in these counters of a signature."""
        signature.records.append(record)
        self._counts[record] = signature, counters
        for each in counters:
            each.others.append(record.count)

    def _fold(self, record: Record) -> None:
        """Keep the count of a record that is forgotten."""
        if record in self._counts:
            signature, counters = self._counts.pop(record)
            for each in counters:
                each.others.remove(record.count)
                each.less(-record.calls)
            signature.records.remove(record)

    def _first(self, keys: Any, args: tuple[Any, ...], named: Any, tensors: tuple[Any, ...], key: Any) -> Any:
        """Answer the first call of a kind with PyTorch's kernel, and remember its signature."""
        answer, count = self._original(tensors, keys, *args, **named)
        if len(set(map(id, tensors))) < len(tensors):
            return answer  # a tensor given twice: such a call is not remembered
        description, reason = None, ""
        try:
            description = describe(self.translation.request(*args, **named), tensors, answer)
        except Declined as declined:
            reason = str(declined)
        except Exception as error:
            reason = _said(error)
        below = self.translation.below
        args_again = random_args(args, named, None if below is None else args[below])
        signature = Signature(key, _text(tensors, key[1]), description, reason, args_again)
        with self._changing:
            known = next((each for fits, each in self._table.rows(key, ()) if fits(*tensors)), None)
            if known is not None:  # another thread was first
                count(known).tick()
                return answer
            self._forget(self._table.add(key, recogniser(tensors), signature))
        count(signature).tick()
        if self.options.plan == "now" and not _capturing(tensors[0]):
            self.plan(signature)
        if signature.reason:
            self._refused(signature, signature.reason, first=True)
        return answer

    def _forget(self, signatures: list[Signature]) -> None:
        """Count kinds of calls that there is no more room for, and drop their plans."""
        for signature in signatures:
            self.forgotten.update(kinds=1, taken=signature.taken.value, declined=signature.declined.value)
            signature.by_python = "it is forgotten"
            signature.withdraw()
        runs = [each.run for each in signatures if each.run is not None]
        for wanted in [each for each, (run, *_) in self._runs.items() if run in runs] if runs else ():
            del self._runs[wanted]

    def _failed(self, signature: Signature, error: Exception) -> None:
        """Note why a call is PyTorch's that gradkern has begun to answer. The next of its kind is tried again if memory
        was lacking, or if the provider has refused this one; after any other error all of them are PyTorch's.
        """
        reason = _said(error)
        lasts = not isinstance(error, GradkernError | MemoryError | torch.OutOfMemoryError)
        if lasts:
            signature.decline(reason)
        else:
            signature.failure = reason
        self._refused(signature, reason, first=lasts)

    def _refused(self, signature: Signature, reason: str, first: bool = False) -> None:
        """Say so, if that is wanted."""
        how = self.options.on_refusal
        if how == "torch" or not (first or how == "raise"):
            return
        text = f"gradkern: {self.translation.name} of {signature.text} is left to PyTorch: {reason}"
        if how == "raise":
            raise ProviderError(text)
        warn(text, stacklevel=4)


def synchronize() -> None:
    """Wait for what the GPU still does, if this process uses one."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _said(error: Exception) -> str:
    """An error's text; with its class if it is not one of gradkern's."""
    if isinstance(error, GradkernError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _raise_if_lost(error: Exception) -> None:
    """Raise it where a kernel's fault has taken the device from this process: what runs next fails, too, and does not
    tell why.
    """
    try:
        synchronize()
    except RuntimeError:
        raise error from None


def _capturing(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _text(tensors: tuple[torch.Tensor, ...], rest: tuple[Any, ...]) -> str:
    """The first two tensors, gradient and input, and the types of the others."""
    parts = [f"{short_name(each.dtype)}{list(each.shape)}" for each in tensors[:2]]
    orders = ["" if each.is_contiguous() else f" strides {each.stride()}" for each in tensors[:2]]
    types = [short_name(each.dtype) for each in tensors[2:]]
    data = [part + order for part, order in zip(parts, orders, strict=True)]
    return ", ".join(dict.fromkeys(data)) + (f" with {', '.join(types)}" if types else "")


def _described(description: Description, flags: Any) -> dict[str, Any]:
    """The arguments of plan_for."""
    return {
        "op": description.op,
        "tensors": dict(description.inputs),
        "device": description.device,
        "outputs": [name for name, _ in description.outputs],
        "out": {name: result.seen_as for name, result in description.outputs},
        "policy": searching(DEFAULT if flags is None else policy_of(flags)),
        **dict(description.attributes),
    }
