"""What became of the calls since `enable`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkern.system.display import table
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.choice import StepTimes, compared
from gradkern.torch.compile_backend.findings import Finding, shown
from gradkern.torch.counter import calls
from gradkern.torch.overrides.kernel import MOST, Kernel
from gradkern.torch.overrides.signatures import Signature


@dataclass(frozen=True)
class Row:
    """Calls that are alike.

    taken, declined   how many calls gradkern answered, and how many PyTorch's own kernel
    reason            why PyTorch's kernel answers the next such call; "" where gradkern does. Where it could not at the
                      last such call, what failed: it tries again
    natively  how many of those taken machine code has answered; by_python says why Python answers the next; ""
              where machine code does, and with enable(native=False)
    """

    op: str
    device: str
    signature: str
    taken: int
    declined: int
    reason: str
    natively: int = 0
    by_python: str = ""


@dataclass(frozen=True)
class Report:
    """One row for each operator and signature that `enable` has met.

    compiled   what torch.compile(model, backend="gradkern") has found in models, and made of it
    unmatched  norms in those models that are part of nothing that it fuses
    modules    calls that gradkern.torch's functions computed, for modules and accelerated models, too: by function and
               device
    steps      times of compiled models' steps with gradkern's graphs and with Inductor's, as `tune` has compared them

    Printing it shows all of them; `taken` and `declined` are counts of calls, and it is iterated by row.

    >>> found = gradkern.torch.report()
    >>> [row.op for row in found if row.reason]
    []
    """

    rows: tuple[Row, ...]
    compiled: tuple[Finding, ...] = ()
    unmatched: tuple[Finding, ...] = ()
    modules: tuple[Row, ...] = ()
    steps: tuple[StepTimes, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def taken(self) -> int:
        """Calls that gradkern answered."""
        return sum(row.taken for row in self.rows)

    @property
    def declined(self) -> int:
        """Calls that PyTorch's own kernels answered."""
        return sum(row.declined for row in self.rows)

    def __repr__(self) -> str:
        parts = {"fusions": self.compiled, "norms left": self.unmatched, "functions": self.modules}
        counts = [f"{len(each)} {name}" for name, each in parts.items() if each]
        kinds = f"{len(self.rows)} kinds of calls, {self.taken} by gradkern and {self.declined} by PyTorch"
        return f"<gradkern.torch report: {', '.join([kinds, *counts])}; print it to see all>"

    def _repr_html_(self) -> str:
        rows = [(each.op, each.device, each.signature, each.taken, each.declined, each.reason) for each in self.rows]
        heads = ("operator", "device", "calls like", "by gradkern", "by PyTorch", "why PyTorch")
        return table(repr(self).strip("<>"), heads, rows)

    def __str__(self) -> str:
        if not (self.rows or self.compiled or self.unmatched or self.modules or self.steps):
            return "gradkern.torch: no call of an operator that gradkern could answer"
        lines = []
        if self.compiled:
            taken = sum(not each.reason for each in self.compiled)
            left = len(self.compiled) - taken
            lines += [f"gradkern.torch: {taken} fusions in compiled models, {left} left to Inductor"]
            lines += shown(self.compiled)
        lines += map(str, self.steps)
        if self.unmatched:
            lines.append(f"gradkern.torch: {len(self.unmatched)} norms in compiled models that no fusion has")
            lines += shown(self.unmatched)
        if self.modules:
            count = sum(row.taken for row in self.modules)
            lines.append(f"gradkern.torch: {count} calls of its functions, modules and accelerated models")
            lines += [f"{row.taken:8} {'':8}  {row.op} {row.device}" for row in self.modules]
        if self.rows:
            lines.append(f"gradkern.torch: {self.taken} calls by gradkern, {self.declined} by PyTorch")
        for row in self.rows:
            who = row.reason or "gradkern"
            line = f"{row.taken:8} {row.declined:8}  {row.op} {row.device} {row.signature}: {who}"
            lines.append(line + (f"; Python answers: {row.by_python}" if row.by_python else ""))
        return "\n".join(lines)


def report_of(kernels: Iterable[Kernel]) -> Report:
    """What there is to say now; `kernels` are those of `enable`."""
    rows = []
    for kernel in kernels:
        name, device = kernel.translation.name, kernel.key.lower()
        found: dict[tuple[str, str], list[Signature]] = {}
        for each in kernel.signatures():
            reason = each.reason or kernel.inactive or (each.failure and f"failed, is tried again: {each.failure}")
            if each.waits:
                reason = "waits for a plan: gradkern.torch.tune"
            found.setdefault((each.text, reason), []).append(each)
        for (text, reason), alike in found.items():
            taken, declined = sum(each.taken.value for each in alike), sum(each.declined.value for each in alike)
            natively = sum(each.natively.value for each in alike)
            by_python = ""
            if kernel.options.native and not reason:
                by_python = kernel.by_python or next((each.by_python for each in alike if each.by_python), "")
            rows.append(Row(name, device, text, taken, declined, reason, natively, by_python))
        if kernel.enabled and kernel.override.covered:
            reason = "another kernel was registered on top of gradkern's: it gets the calls that this one hands on"
            rows.append(Row(name, device, "every call", 0, 0, reason))
        gone = kernel.forgotten
        if gone:
            what, reason = f"{gone['kinds']} other kinds of calls", f"forgotten: more than {MOST} had come"
            rows.append(Row(name, device, what, gone["taken"], gone["declined"], reason))
        if kernel.small.value:
            least = kernel.options.least(kernel.translation.group)
            what, reason = ("small tensors", f"fewer than {least} bytes") if least else ("empty tensors", "it is empty")
            rows.append(Row(name, device, what, 0, kernel.small.value, reason))
    modules = tuple([Row(function, device, "", count, 0, "") for function, device, count in calls()])
    return Report(tuple(rows), findings.findings(), findings.unmatched(), modules, tuple(compared))
