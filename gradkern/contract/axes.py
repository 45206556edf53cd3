"""Shapes against the contract's named axes: every axis gets one size, and every array must agree on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gradkern.call import Tensor
from gradkern.contract.schema import Flat, Input, Ones, Operator, Shape, Token
from gradkern.errors import ShapeError

__all__ = ["match", "shape_of"]


def match(operator: Operator, tensors: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The size of every axis, and the tuple of sizes of every group, that the inputs agree on.

    Raises ShapeError with both arrays and the axis where they disagree.
    """
    axes = _Axes(operator, _lengths(operator, tensors, attributes))
    for each in operator.inputs:
        if each.name in tensors:
            axes.take(each, tensors[each.name].shape)
    return axes.sizes


def shape_of(shape: Shape, axes: Mapping[str, Any]) -> tuple[int, ...]:
    """The sizes a contract's shape has for these axes."""
    sizes: list[int] = []
    for token in shape:
        if isinstance(token, Ones):
            sizes.extend(1 for _ in axes[token.ones])
        elif isinstance(token, Flat):
            sizes.append(_product(axes[token.flat]))
        else:
            size: int | tuple[int, ...] = axes[token]
            sizes.extend(size if isinstance(size, tuple) else (size,))
    return tuple(sizes)


def _lengths(operator: Operator, tensors: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> dict[str, int]:
    """How many dimensions the groups have that begin where an attribute says."""
    lengths: dict[str, int] = {}
    for name, axis in operator.axes.items():
        if axis.begins_at is not None:
            model = operator.attributes[axis.begins_at].axis_of
            lengths[name] = len(tensors[str(model)].shape) - attributes[axis.begins_at]
    return lengths


class _Axes:
    """Sizes as they become known, input by input."""

    def __init__(self, operator: Operator, lengths: dict[str, int]) -> None:
        self._axes = operator.axes
        self._lengths = lengths
        self._owner: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.sizes: dict[str, Any] = {}

    def take(self, each: Input, shape: tuple[int, ...]) -> None:
        """Match one input: to its usual shape, or to another that the contract takes."""
        reasons: list[str] = []
        for expected in each.shapes:
            reason = self._try(each.name, expected, shape)
            if reason is None:
                return
            reasons.append(reason)
        also = [self._describe(expected) for expected in each.also]
        suffix = f"; also taken: {' or '.join(also)}" if also else ""
        raise ShapeError(f"input {each.name} has shape {shape}: {reasons[0]}{suffix}")

    def _try(self, name: str, expected: Shape, shape: tuple[int, ...]) -> str | None:
        """Take the sizes of one array, or say why it does not fit and take nothing."""
        open_counts = [self._count(token) for token in expected]
        known = sum(count for count in open_counts if count is not None)
        counts = [len(shape) - known if count is None else count for count in open_counts]
        if sum(counts) != len(shape) or min(counts, default=0) < 0:
            at_least = "at least " if None in open_counts else ""
            return f"rank {len(shape)}; expected {at_least}rank {known}, {self._describe(expected)}"
        found: dict[str, Any] = {}
        start = 0
        for token, count in zip(expected, counts, strict=True):
            part = shape[start : start + count]
            reason = self._fits(token, part, start, found)
            if reason is not None:
                return reason
            start += count
        for axis in found:
            self._owner.setdefault(axis, (name, shape))
        self.sizes.update(found)
        return None

    def _count(self, token: Token) -> int | None:
        """How many dimensions a part of a shape has; None while that is open."""
        if isinstance(token, Flat):
            return 1
        name = token.ones if isinstance(token, Ones) else token
        axis = self._axes[name]
        if not axis.group:
            return 1
        alike = [other for other, each in self._axes.items() if each.as_many_as == name]
        for group in (name, axis.as_many_as, *alike):
            if group in self.sizes:
                return len(self.sizes[group])
        return self._lengths.get(name)

    def _fits(self, token: Token, part: tuple[int, ...], start: int, found: dict[str, Any]) -> str | None:
        if isinstance(token, Ones):
            bad = [index for index, size in enumerate(part) if size != 1]
            return f"axis {start + bad[0]} is {part[bad[0]]}; expected 1" if bad else None
        if isinstance(token, Flat):
            expected = _product(self.sizes[token.flat])
            return (
                None if part[0] == expected else f"axis {start} is {part[0]}; expected {expected}, all of {token.flat}"
            )
        axis = self._axes[token]
        if axis.group and token not in self.sizes:
            if len(part) < axis.least or (axis.most is not None and len(part) > axis.most):
                return f"{len(part)} {token} dimensions; expected {axis.least} to {axis.most}"
            if axis.broadcasts_to is not None:
                return self._broadcasts(token, axis.broadcasts_to, part, start, found)
        size: Any = part if axis.group else part[0]
        known = self.sizes.get(token, found.get(token))
        if known is None:
            found[token] = size
        elif known != size:
            return self._disagree(token, known, size, start)
        return None

    def _broadcasts(
        self, token: str, model: str, part: tuple[int, ...], start: int, found: dict[str, Any]
    ) -> str | None:
        for index, (size, full) in enumerate(zip(part, self.sizes[model], strict=True)):
            if size not in (1, full):
                owner, shape = self._owner[model]
                expected = "1" if full == 1 else f"1 or {full}"
                return f"axis {start + index} is {size}; expected {expected}, as input {owner} has shape {shape}"
        found[token] = part
        return None

    def _disagree(self, token: str, known: Any, size: Any, start: int) -> str:
        owner, shape = self._owner.get(token, ("", ()))
        place = start
        if isinstance(size, tuple):
            sizes = cast(tuple[int, ...], size)
            offset = next(index for index, (one, two) in enumerate(zip(known, sizes, strict=True)) if one != two)
            known, size, place = known[offset], sizes[offset], start + offset
        of = f"as input {owner} has shape {shape}" if owner else "as before in this shape"
        return f"axis {place} ({token}) is {size}; expected {known}, {of}"

    def _describe(self, shape: Shape) -> str:
        return "(" + ", ".join(self._word(token) for token in shape) + ")"

    def _word(self, token: Token) -> str:
        if isinstance(token, Flat):
            return f"{token.flat} folded into one"
        name = token.ones if isinstance(token, Ones) else token
        count = self._count(token)
        if not self._axes[name].group:
            return name
        if isinstance(token, Ones):
            return "1" if count == 1 else f"{count} ones"
        return f"{name}..." if count is None else f"{name} ({count})"


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
