"""The race: every candidate runs once, the fast ones are timed again, and again; each result is heard by a jury."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic

from gradkern.errors import GradkernError
from gradkern.policies import Policy
from gradkern.search.bench import Bench
from gradkern.search.candidate import Candidate, Unfit
from gradkern.search.findings import Row
from gradkern.search.task import Source, Task
from gradkern.search.trust import Jury

__all__ = ["Limits", "Race", "ready", "several"]

SLOW, _HOPELESS = 20, 2
"""How many times slower than the best the best of an origin is where the others of that origin are put last; and how
many times slower a candidate is where its first run is its last.
"""
_LOADING = 0.01  # seconds of a first run that may be due to the loading of code
_CLOSE, _FINALISTS = 1.3, 6
_FINAL_SECONDS, _FINAL_REPEATS = 0.1, (2, 20)
_VARIED = 2  # origins whose settings are varied
_PATIENCE = 3  # times the budget, to find a second origin

_slowness: dict[tuple[str, str], float] = {}
"""By (kind of task, origin): how many times slower than the winner the best of an origin was, where that was least."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What candidates may need, and how long the race may take, in seconds."""

    workspace: int
    seconds: float = 3.0


def ready(candidate: Candidate, policy: Policy, workspace: int) -> Candidate:
    """The candidate, prepared. Raises Unfit where the policy does not admit it, or it needs more memory than this."""
    if "reduced_precision" in candidate.notes:
        raise Unfit("it adds up in less than float32")
    if "tf32" in candidate.notes and not policy.allow_tf32:
        raise Unfit("it multiplies in TF32, which the policy does not allow")
    if "nondeterministic" in candidate.notes and policy.deterministic:
        raise Unfit("its bits may differ from run to run, and the policy is deterministic")
    candidate.prepare()
    if candidate.workspace > workspace:
        raise Unfit(f"it needs a workspace of {candidate.workspace:,} bytes; {workspace:,} are allowed")
    return candidate


@dataclass(slots=True)
class _Runner:
    candidate: Candidate
    source: Source
    seconds: float


@dataclass(slots=True)
class Race:
    """One race. `run` holds it; then `ranking` and `others` are its outcome, `runners` the candidates as they are."""

    task: Task
    policy: Policy
    limits: Limits
    bench: Bench
    tell: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = monotonic
    ranking: list[Row] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)
    runners: dict[str, _Runner] = field(default_factory=dict)
    confirmed: bool = False
    _seen: set[str] = field(default_factory=set)
    _start: float = 0.0
    _best: float = float("inf")

    def run(self) -> None:
        """Raises Unfit, with the reasons, where no result can be believed."""
        self._start = self.clock()
        jury = Jury(self.bench, (each.dtype.name for each in self.task.outputs), self.task.terms)
        self._screen(_in_turns(self.task.sources, self._refuse), jury)
        if not jury.believed:
            raise Unfit(self._why_not(jury))
        believed = jury.believed
        if self.policy.search == "exhaustive":
            self._final(believed)
            first = self._ranked(jury.believed)
            self._screen(self._variations(first), jury)
            new = jury.believed - believed
            if new:
                self._final(new | set(first[:2]))
        self.confirmed = jury.agreed
        wrong = jury.wrong()
        names = self._ranked(jury.believed - wrong.keys())
        self.ranking = [self._row(name) for name in names]
        for name, runner in self.runners.items():
            if name in wrong:
                self.others.append(self._row(name, reason=wrong[name], struck=True))
            elif name not in jury.believed:
                self.others.append(self._row(name, reason=f"far slower than the best: {runner.seconds * 1e6:.0f} us"))
        self._learn()

    # --- screening ---------------------------------------------------------------------------------------------------

    def _screen(self, entrants: Iterable[tuple[Source, Candidate]], jury: Jury) -> None:
        """Run each; those of origins that are known to be slow after the others, while there is time."""
        late = []
        for source, candidate in entrants:
            if candidate.name in self._seen:
                continue
            self._seen.add(candidate.name)
            if self.policy.search == "heuristic" and jury.agreed:
                return
            if self._out_of_time(jury, candidate):
                self._refuse(source, candidate, "the search had no time left for it")
            elif self._expected(candidate) > SLOW:
                late.append((source, candidate))
            else:
                self._try(source, candidate, jury)
        for source, candidate in sorted(late, key=lambda each: self._expected(each[1])):
            left = self._start + self.limits.seconds - self.clock()
            if self._expected(candidate) * self._best > left / 4 and jury.agreed:
                self._refuse(source, candidate, "its like took far longer than the best")
            else:
                self._try(source, candidate, jury)

    def _try(self, source: Source, candidate: Candidate, jury: Jury) -> None:
        self.tell(f"{len(self.runners) + 1} tried, {candidate.name}")
        try:
            seconds = self.bench.run(ready(candidate, self.policy, self.limits.workspace))
            right = jury.hear(candidate)
            if right and seconds < _HOPELESS * self._best + _LOADING:
                seconds = min(self.bench.times(candidate, 2 if seconds < 2 * _LOADING else 1))
        except (Unfit, GradkernError) as error:
            self._refuse(source, candidate, str(error))
            return
        self.runners[candidate.name] = _Runner(candidate, source, seconds)
        if right:
            self._best = min(self._best, seconds)

    def _out_of_time(self, jury: Jury, candidate: Candidate) -> bool:
        spent = self.clock() - self._start
        if jury.agreed:
            return spent > self.limits.seconds
        known = {each.candidate.origin for each in self.runners.values()}
        return spent > self.limits.seconds and (candidate.origin in known or spent > _PATIENCE * self.limits.seconds)

    def _expected(self, candidate: Candidate) -> float:
        """How many times slower than the best a candidate may be: as the fastest of its origin, here or before."""
        here = [each.seconds for each in self.runners.values() if each.candidate.origin == candidate.origin]
        if here:
            return min(here) / self._best
        return _slowness.get((self.task.kind, candidate.origin), 1.0)

    # --- finals ------------------------------------------------------------------------------------------------------

    def _final(self, names: Iterable[str]) -> None:
        """Time the fastest of these again, in turns, so that what slows the device slows all of them."""
        ranked = self._ranked(names)
        close = [name for name in ranked if self._seconds(name) <= _CLOSE * self._seconds(ranked[0])][:_FINALISTS]
        if len(close) < 2:
            return
        least, most = _FINAL_REPEATS
        rounds = int(_FINAL_SECONDS / max(sum(self._seconds(name) for name in close), 1e-6))
        times: dict[str, list[float]] = {name: [] for name in close}
        for _ in range(max(least, min(most, rounds))):
            for name in close:
                times[name] += self.bench.times(self.runners[name].candidate, 1)
        for name in close:
            self.runners[name].seconds = statistics.median(times[name])
        self._best = min(self._best, *(self._seconds(name) for name in close))

    def _variations(self, ranked: list[str]) -> Iterator[tuple[Source, Candidate]]:
        """Other settings of the best of the best origins, taken in turns."""
        best: dict[str, _Runner] = {}
        for name in ranked:
            best.setdefault(self.runners[name].candidate.origin, self.runners[name])
        for runner in list(best.values())[:_VARIED]:
            if runner.seconds > _CLOSE * self._best:
                return
            try:
                for candidate in runner.source.variations(runner.candidate):
                    yield runner.source, candidate
            except (Unfit, GradkernError, ImportError):
                continue

    # --- the outcome -------------------------------------------------------------------------------------------------

    def _ranked(self, names: Iterable[str]) -> list[str]:
        """In a search for the fastest by time, else in the order in which they were tried."""
        chosen = set(names)
        tried = [name for name in self.runners if name in chosen]
        return sorted(tried, key=self._seconds) if self.policy.search == "exhaustive" else tried

    def _seconds(self, name: str) -> float:
        return self.runners[name].seconds

    def _row(self, name: str, **found: object) -> Row:
        runner = self.runners[name]
        row = Row.of(runner.candidate, runner.source.name, workspace=runner.candidate.workspace, seconds=runner.seconds)
        return replace(row, **found)  # type: ignore[arg-type]

    def _refuse(self, source: Source, candidate: Candidate | None, reason: str) -> None:
        if candidate is None:
            self.others.append(Row(source.name, source.name, "", {}, reason=reason))
        else:
            self.others.append(Row.of(candidate, source.name, reason=reason))

    def _why_not(self, jury: Jury) -> str:
        reasons = {row.name: row.reason for row in self.others} | jury.wrong()
        if self.runners:
            reasons = {"no majority of results agrees": jury.camps(), **reasons}
        return several(reasons)

    def _learn(self) -> None:
        fastest: dict[str, float] = {}
        for runner in self.runners.values():
            origin = runner.candidate.origin
            fastest[origin] = min(runner.seconds, fastest.get(origin, float("inf")))
        for origin, seconds in fastest.items():
            key = self.task.kind, origin
            _slowness[key] = min(seconds / self._best, _slowness.get(key, float("inf")))


def several(reasons: Mapping[str, str]) -> str:
    """Why each of the candidates of these names cannot be had; a reason that many share is told once."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    texts = [f"{each[0]}{f' and {len(each) - 1} more' if each[1:] else ''}: {why}" for why, each in names.items()]
    return "; ".join(texts) or "there is no candidate"


def _in_turns(
    sources: Iterable[Source], refuse: Callable[[Source, None, str], None]
) -> Iterator[tuple[Source, Candidate]]:
    """One of each source, then the next of each. A source that fails is left out, with its reason."""
    running = [(source, _guarded(source, refuse)) for source in sources]
    while running:
        going = []
        for source, candidates in running:
            candidate = next(candidates, None)
            if candidate is not None:
                going.append((source, candidates))
                yield source, candidate
        running = going


def _guarded(source: Source, refuse: Callable[[Source, None, str], None]) -> Iterator[Candidate]:
    try:
        yield from source.candidates()
    except ImportError as error:
        refuse(source, None, f"cannot be loaded: {error}")
    except (Unfit, GradkernError) as error:
        refuse(source, None, str(error))
