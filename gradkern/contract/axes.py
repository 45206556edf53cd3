"""Shapes against the contract's named axes: every axis gets one size, and every array must agree on it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any, cast

from gradkern.call import Tensor
from gradkern.contract.expression import expression, product
from gradkern.contract.schema import Axis, Flat, Input, Ones, Operator, Shape, Token, axis_of
from gradkern.errors import OutputError, ShapeError


def match(
    operator: Operator,
    tensors: Mapping[str, Tensor],
    attributes: Mapping[str, Any],
    out: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> dict[str, Any]:
    """The size of every axis, and the tuple of sizes of every group, that the inputs agree on, and those that follow.

    attributes have the values of inputs that are lists, too. out has the shapes of `out` arrays: they give the axes
    that an attribute would give.

    Raises ShapeError with both arrays and the axis where they disagree.
    """
    axes = _Axes(operator, attributes, _lengths(operator, tensors, attributes))
    pending: list[tuple[Input, tuple[int, ...]]] = []
    for each in operator.inputs:
        if each.gives is not None:
            pending.append((each, attributes[each.name]))
        elif each.is_list and attributes.get(each.name) is not None:
            pending.append((each, (len(attributes[each.name]),)))
        elif each.name in tensors:
            pending.append((each, tensors[each.name].shape))
    while pending:  # first those with at most one group that is still open
        found = next((index for index, (each, _) in enumerate(pending) if axes.can_take(each)), 0)
        axes.take(*pending.pop(found))
    axes.follow()
    for each in operator.outputs:
        if each.name in out and each.shape is not None:
            axes.learn(each.name, each.shape, out[each.name])
    return axes.sizes


def _lengths(operator: Operator, tensors: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> dict[str, int]:
    """How many dimensions the groups have whose number an attribute gives."""
    lengths: dict[str, int] = {}
    for name, axis in operator.axes.items():
        if axis.begins_at is not None:
            model = str(operator.attributes[axis.begins_at].axis_of)
            lengths[name] = rank_of(model, tensors, attributes) - attributes[axis.begins_at]
        elif axis.ends_at is not None:
            lengths[name] = attributes[axis.ends_at]
        elif axis.group and axis.equals is not None and attributes.get(axis.equals) is not None:
            lengths[name] = len(attributes[axis.equals])
    return lengths


def rank_of(name: str, tensors: Mapping[str, Tensor], attributes: Mapping[str, Any]) -> int:
    """The rank of an input, or of the shape that an input's values are."""
    tensor = tensors.get(name)
    return len(attributes[name] if tensor is None else tensor.shape)


class _Axes:
    """Sizes as they become known, input by input."""

    def __init__(self, operator: Operator, attributes: Mapping[str, Any], lengths: dict[str, int]) -> None:
        self._axes = operator.axes
        self._attributes = attributes
        self._lengths = lengths
        self._owner: dict[str, str] = {}
        self.sizes: dict[str, Any] = {}

    def can_take(self, each: Input) -> bool:
        """Whether the others leave open how many dimensions one group of an input has, at most."""
        return [self._count(token) for token in each.sizes].count(None) <= 1

    def take(self, each: Input, shape: tuple[int, ...]) -> None:
        """Match one input: to its usual shape, or to another that the contract takes."""
        reasons: list[str] = []
        came = f"input {each.name} {'has shape' if each.gives is None else 'is'} {shape}"
        for expected in (each.sizes, *each.also):
            reason = self._try(came, expected, shape)
            if reason is None:
                return
            reasons.append(reason)
        also = [self._describe(expected) for expected in each.also]
        suffix = f"; also taken: {' or '.join(also)}" if also else ""
        raise ShapeError(f"{came}: {reasons[0]}{suffix}")

    def learn(self, name: str, expected: Shape, shape: tuple[int, ...]) -> None:
        """Take from an output's shape the axes that an attribute would give, and whatever follows from these."""
        formulas = [self._axes[axis_of(token)].equals for token in expected if axis_of(token) not in self.sizes]
        if not any(each in self._attributes for each in formulas):
            return
        reason = self._try(f"out {name} has shape {shape}", expected, shape)
        if reason is not None:
            raise OutputError(f"out {name} has shape {shape}: {reason}")
        self.follow()

    def follow(self) -> None:
        """Find the sizes that follow from others, and refuse those that came and are not these."""
        for name, axis in self._axes.items():
            if axis.equals is None:
                continue
            expected = self._expected(axis)
            came = self.sizes.setdefault(name, expected) if expected is not None else None
            if came != expected:
                raise ShapeError(f"{self._owner[name]}: {name} is {came}; expected {expected}, which is {axis.equals}")

    def _expected(self, axis: Axis) -> Any:
        """The size that follows from others; None while they are not known, or where nothing gives it."""
        if axis.equals is None:
            return None
        follows = expression(axis.equals)
        try:
            size = follows.size({**self._attributes, **self.sizes})
            return size if axis.group or size is None else product(size)
        except ShapeError as error:
            names = (each for each in follows.names if each in self._owner)
            raise ShapeError(f"{error}{''.join(f', as {self._owner[each]}' for each in names)}") from None

    def _try(self, came: str, expected: Shape, shape: tuple[int, ...]) -> str | None:
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
            self._owner.setdefault(axis, came)
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
            size = None if group is None else self.sizes.get(group)
            if size is not None:
                return len(cast(tuple[int, ...], size)) if isinstance(size, tuple) else size
        return self._lengths.get(name)

    def _fits(self, token: Token, part: tuple[int, ...], start: int, found: dict[str, Any]) -> str | None:
        if isinstance(token, Ones):
            bad = [index for index, size in enumerate(part) if size != 1]
            return f"axis {start + bad[0]} is {part[bad[0]]}; expected 1" if bad else None
        if isinstance(token, Flat):
            expected = prod(self.sizes[token.flat])
            return (
                None if part[0] == expected else f"axis {start} is {part[0]}; expected {expected}, all of {token.flat}"
            )
        axis = self._axes[token]
        if axis.group and token not in self.sizes:
            if len(part) < axis.least or (axis.most is not None and len(part) > axis.most):
                expected = axis.least if axis.least == axis.most else f"{axis.least} to {axis.most}"
                return f"{len(part)} {token} dimensions; expected {expected}"
            if axis.broadcasts_to is not None:
                return self._broadcasts(token, axis.broadcasts_to, part, start, found)
        size: Any = part if axis.group else part[0]
        known = self.sizes.get(token, found.get(token))
        if known is None:
            expected = self._expected(axis)
            if expected is not None and expected != size:
                return f"axis {start} ({token}) is {size}; expected {expected}, which is {axis.equals}"
            found[token] = size
        elif known != size:
            return self._disagree(token, known, size, start)
        return None

    def _broadcasts(
        self, token: str, model: str, part: tuple[int, ...], start: int, found: dict[str, Any]
    ) -> str | None:
        whole = self.sizes[model]
        if len(part) > len(whole):
            return f"{len(part)} {token} dimensions; expected {len(whole)} at most, as {self._owner[model]}"
        for index, (size, full) in enumerate(zip(part, whole[len(whole) - len(part) :], strict=True)):
            if size not in (1, full):
                expected = "1" if full == 1 else f"1 or {full}"
                return f"axis {start + index} is {size}; expected {expected}, as {self._owner[model]}"
        found[token] = part
        return None

    def _disagree(self, token: str, known: Any, size: Any, start: int) -> str:
        owner = self._owner.get(token)
        place = start
        if isinstance(size, tuple):
            sizes = cast(tuple[int, ...], size)
            offset = next(index for index, (one, two) in enumerate(zip(known, sizes, strict=True)) if one != two)
            known, size, place = known[offset], sizes[offset], start + offset
        of = f"as {owner}" if owner else "as before in this shape"
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
