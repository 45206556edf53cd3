"""The options of `enable`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, get_args

from gradkern.errors import ArgumentError, nearest

Group = Literal[
    "layer_norm", "rms_norm", "batch_norm", "group_norm", "conv", "gelu", "softmax", "embedding", "pooling", "resize"
]
Refusal = Literal["torch", "warn", "raise"]
When = Literal["tune", "now"]

GROUPS = get_args(Group)
"""What users call the operators that can be taken over."""

MIN_BYTES = {
    **dict.fromkeys(GROUPS, 1 << 20),
    "conv": 0,
    "gelu": 1 << 22,
}
"""Of the input; of an embedding and of resizing, the gradient. Under these the host's time is what counts, and
PyTorch's own kernels cost it less. Estimated from the times of single operators, not measured in training steps.
"""


class OptionsByName(TypedDict, total=False):
    """Options of `gradkern.torch.enable` but for ops, for what hands them on to it."""

    devices: str | Iterable[str] | None  # of torch.device.type, a str
    min_bytes: int | Mapping[Group, int] | None
    on_refusal: Refusal
    plan: When
    only_faster: bool
    native: bool


class AllOptions(OptionsByName, total=False):
    """All of them."""

    ops: Group | Iterable[Group] | None


@dataclass(frozen=True)
class Options:
    """ops, devices, min_bytes, on_refusal, plan, only_faster, native: see `gradkern.torch.enable`."""

    ops: tuple[str, ...] = GROUPS
    devices: tuple[str, ...] = ("cuda",)
    min_bytes: Mapping[str, int] = field(default_factory=dict)
    on_refusal: Refusal = "torch"
    plan: When = "tune"
    only_faster: bool = True
    native: bool = True

    @classmethod
    def of(cls, *given: Any) -> Options:
        """Of what `enable` was given, in this order. Raises ArgumentError for what no option can be."""
        raw: Any = cls(*given)
        min_bytes = raw.min_bytes
        chosen = GROUPS if raw.ops is None else _names("ops", raw.ops, GROUPS)
        if min_bytes is None:
            gates = dict(MIN_BYTES)
        elif isinstance(min_bytes, Mapping):
            _names("min_bytes", tuple(min_bytes), GROUPS)
            gates = {**MIN_BYTES, **min_bytes}
        else:
            gates = dict.fromkeys(GROUPS, min_bytes)
        for name, size in gates.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise ArgumentError(f"enable: min_bytes of {name} is {size!r}; expected a number of bytes, 0 or more")
        refusal, when = _one("on_refusal", raw.on_refusal, get_args(Refusal)), _one("plan", raw.plan, get_args(When))
        for name in ("only_faster", "native"):
            if not isinstance(getattr(raw, name), bool):
                raise ArgumentError(f"enable: {name} is {getattr(raw, name)!r}; expected True or False")
        found = {"ops": chosen, "devices": _names("devices", raw.devices, ("cuda", "cpu")), "min_bytes": gates}
        return replace(raw, on_refusal=refusal, plan=when, **found)  # type: ignore[arg-type]

    @property
    def leaves_what_does_not_gain(self) -> bool:
        """Whether calls that do not gain are to be left to PyTorch."""
        return self.only_faster and self.plan == "tune" and self.on_refusal != "raise"

    def least(self, group: str) -> int:
        return self.min_bytes.get(group, 0)


def _one(option: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ArgumentError(f"enable: {option} is {value!r}{nearest(value, known)}; expected {' or '.join(known)}")
    return value


def _names(option: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    try:
        names = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise ArgumentError(f"enable: {option} is {value!r}; expected names of {', '.join(known)}") from None
    for name in names:
        if name not in known:
            hint = nearest(name, known) if isinstance(name, str) else ""
            raise ArgumentError(f"enable: {option} has {name!r}{hint}; expected {', '.join(known)}")
    return names
