"""A table of operators: functions by domain and name, with what their signatures do not say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Entry:
    """How an operator is computed: function(xp, *inputs, **attributes), where xp is the arrays' Array API namespace.

    host     places of inputs that are read on the host
    writes   places of inputs that are updated in place, as ONNX Runtime does with them
    result   the type of the first output: that of the input at this place, or the name of a type
    """

    function: Callable[..., Any]
    host: frozenset[int] = frozenset()
    writes: tuple[int, ...] = ()
    result: int | str = 0

    def compute(self, xp: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs."""
        found = self.function(xp, *inputs, **attributes)
        outputs = found if isinstance(found, tuple) else (found,)
        like = inputs[self.result] if isinstance(self.result, int) else None
        if isinstance(like, np.ndarray) and like.dtype.kind == "V":  # to NumPy, bfloat16 times a number is float32
            return tuple(each.astype(like.dtype) if each.dtype.kind == "f" else each for each in outputs)
        return outputs

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of attributes that it takes: those of its parameters that only names can give."""
        return frozenset(each.name for each in self._parameters if each.kind is inspect.Parameter.KEYWORD_ONLY)

    def accepts(self, count: int) -> bool:
        """Whether it takes that many inputs."""
        least, most = self._counts
        return least <= count and (most is None or count <= most)

    @cached_property
    def _counts(self) -> tuple[int, int | None]:
        """Of inputs, the least and the most; None for any number."""
        positional = [each for each in self._parameters[1:] if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        required = [each for each in positional if each.default is inspect.Parameter.empty]  # one at least of *inputs
        any_number = positional[-1].kind is inspect.Parameter.VAR_POSITIONAL
        return len(required), None if any_number else len(positional)

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())


class Table(dict[tuple[str, str], Entry]):
    """Entries by domain and operator."""

    def operator(
        self,
        *,
        domain: str = "com.microsoft",
        host: Collection[int] = (),
        writes: Collection[int] = (),
        result: int | str = 0,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Add the function under its own name."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self[domain, function.__name__] = Entry(function, frozenset(host), tuple(writes), result)
            return function

        return add
