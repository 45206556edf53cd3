"""Engines, cuDNN's ways to compute a graph, and their configurations: an engine with the values of its knobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from gradkern.cudnn.api import BehaviorNote, HeuristicMode, NumericalNote
from gradkern.cudnn.descriptor import Descriptor
from gradkern.cudnn.library import CudnnError

_MOST_NOTES, _MOST_KNOBS = 32, 32  # more than there are kinds of notes, and than an engine has knobs


@dataclass(frozen=True, slots=True)
class Config:
    """An engine's number and the knobs that are set, as (type, value) in order; cuDNN chooses the others."""

    engine: int
    knobs: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """As NVIDIA's cudnn-frontend writes it: eng28_k2=4_k14=3."""
        return f"eng{self.engine}" + "".join(f"_k{type_}={value}" for type_, value in self.knobs)

    @classmethod
    def named(cls, name: str) -> Config | None:
        """The configuration of this name; None where it is none."""
        if re.fullmatch(r"eng\d+(_k\d+=\d+)*", name) is None:
            return None
        engine, *numbers = map(int, re.findall(r"\d+", name))
        return cls(engine, tuple(zip(numbers[::2], numbers[1::2], strict=True)))


def suggestions(graph: Descriptor, device: Descriptor, mode: HeuristicMode) -> list[Config]:
    """What cuDNN's heuristics expect to be fastest, in this order."""
    found = Descriptor("heuristics", operation_graph=graph, mode=int(mode), device=device)
    return [_read(each) for each in found.descriptors("results", "engine_config")]


def defaults(graph: Descriptor) -> list[Config]:
    """Every engine there is for such a graph, with no knob set; many will refuse it."""
    return [Config(index) for index in range(graph.number("engine_count"))]


def make(graph: Descriptor, device: Descriptor, config: Config) -> Descriptor:
    """A configuration as cuDNN has it. Raises CudnnError where it does not fit the graph or the device."""
    choices = tuple(Descriptor("knob_choice", type=type_, value=value) for type_, value in config.knobs)
    chosen = {"knob_choices": choices} if choices else {}
    return Descriptor("engine_config", engine=_engine(graph, device, config.engine), **chosen)


def notes(made: Descriptor) -> tuple[frozenset[NumericalNote], frozenset[BehaviorNote]]:
    """What cuDNN says about the engine of a configuration that `make` returned; notes that `api` lacks are left out."""
    engine = made.parts[0]
    numerical = engine.numbers("numerical_notes", _MOST_NOTES)
    behavior = engine.numbers("behavior_notes", _MOST_NOTES)
    return (
        frozenset(NumericalNote(each) for each in numerical if each in set(NumericalNote)),
        frozenset(BehaviorNote(each) for each in behavior if each in set(BehaviorNote)),
    )


def knobs(graph: Descriptor, device: Descriptor, engine: int) -> dict[int, range]:
    """The types of an engine's knobs, and the values that each may have; not every one of them works."""
    infos = _engine(graph, device, engine).descriptors("knob_infos", "knob_info")
    return {
        each.number("type"): range(each.number("minimum"), each.number("maximum") + 1, max(each.number("stride"), 1))
        for each in infos
    }


def variations(graph: Descriptor, device: Descriptor, config: Config) -> Iterator[Config]:
    """The engine's other configurations that fit: those one knob away first, then those two away.

    Few of the values that knobs say they have fit together; to try one takes some 30 microseconds.
    """
    chosen = dict(config.knobs)
    values = {
        type_: [value for value in _sampled(every) if value != chosen.get(type_)]
        for type_, every in knobs(graph, device, config.engine).items()
    }
    for changed in (*combinations(values, 1), *combinations(values, 2)):
        for change in product(*(values[type_] for type_ in changed)):
            knobs_of = {**chosen, **dict(zip(changed, change, strict=True))}
            other = Config(config.engine, tuple(sorted(knobs_of.items())))
            try:
                make(graph, device, other)
            except CudnnError:
                continue
            yield other


def _sampled(values: range) -> list[int]:
    """All of a few values; of many (a number of parts, up to 2048), the powers of two."""
    return list(values) if len(values) <= 64 else [1 << each for each in range(16) if 1 << each in values]


def _engine(graph: Descriptor, device: Descriptor, index: int) -> Descriptor:
    return Descriptor("engine", operation_graph=graph, index=index, device=device)


def _read(config: Descriptor) -> Config:
    (engine,) = config.descriptors("engine", "engine", most=1)
    choices = config.descriptors("knob_choices", "knob_choice", _MOST_KNOBS)
    return Config(
        engine.number("index"), tuple(sorted((each.number("type"), each.number("value")) for each in choices))
    )
