"""What became of the calls since `enable`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradkern.torch.kernel import Kernel

__all__ = ["Report", "Row", "report_of"]


@dataclass(frozen=True)
class Row:
    """Calls that are alike.

    taken, declined   how many calls gradkern answered, and how many PyTorch's own kernel
    reason            why that is who answers the next one; "" where gradkern does
    """

    op: str
    device: str
    signature: str
    taken: int
    declined: int
    reason: str


@dataclass(frozen=True)
class Report:
    """One row for each operator and signature that was met."""

    rows: tuple[Row, ...]

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

    def __str__(self) -> str:
        if not self.rows:
            return "gradkern.torch: no call of an operator that gradkern could answer"
        lines = [f"gradkern.torch: {self.taken} calls by gradkern, {self.declined} by PyTorch"]
        for row in self.rows:
            who = row.reason or "gradkern"
            lines.append(f"{row.taken:8} {row.declined:8}  {row.op} {row.device} {row.signature}: {who}")
        return "\n".join(lines)


def report_of(kernels: Iterable[Kernel]) -> Report:
    rows = []
    for kernel in kernels:
        name, device = kernel.translation.name, kernel.key.lower()
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for each in kernel.signatures():
            reason = "waits for a plan: gradkern.torch.tune" if each.waits else each.reason
            taken, declined = found.get((each.text, reason), (0, 0))
            found[each.text, reason] = taken + each.taken.value, declined + each.declined.value
        for (text, reason), (taken, declined) in found.items():
            rows.append(Row(name, device, text, taken, declined, reason))
        if kernel.small.value:
            least = kernel.options.least(kernel.translation.group)
            what, reason = ("small tensors", f"fewer than {least} bytes") if least else ("empty tensors", "it is empty")
            rows.append(Row(name, device, what, 0, kernel.small.value, reason))
    return Report(tuple(rows))
