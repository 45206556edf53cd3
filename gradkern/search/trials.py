"""The trials of one search: every candidate runs once, the fast ones again, and every result is cross-checked."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from gradkern.call import Refusal
from gradkern.errors import GradkernError, ProviderError
from gradkern.policy import Policy
from gradkern.search import history
from gradkern.search.bench import Bench
from gradkern.search.candidate import Candidate, Limits, ready
from gradkern.search.crosscheck import CrossCheck
from gradkern.search.implementation import Implementation, Task
from gradkern.search.store import Measurement

_SLOW, _DEAR, _HOPELESS = 5, 5e-4, 2
"""At this ratio of an origin's best time to the best of all, its other candidates come last; at so many seconds of a
run they are skipped; and at this ratio a candidate is run only once.
"""
_LOADING, _FIRST_LOADING = 0.1, 0.5
"""Seconds of a first run that loading of code may take; and with the origin's first run in the process, of its library
as well. A kernel of 35 microseconds took 28 milliseconds on an H200, and its variants then came last.
"""
_SHORT = 0.02  # seconds of a run that may be repeated twice
_CLOSE, _MOST_REMEASURED = 1.3, 6
_REMEASURING_SECONDS, _REMEASURING_REPEATS = 0.1, (2, 20)
_VARIED = 2  # origins whose settings are varied
_FRUITLESS, _GAIN = 40, 0.99
"""Variations end after so many in a row without a gain; and the share of the best time that counts as a gain."""
_SCREENING = 0.9  # of the budget; the rest is for remeasuring
_PATIENCE = 2  # times the budget, beyond it, to find a second origin
_COMPILING = 1.0  # seconds, after this no candidate that compiles is tried

_NO_TIME = "the search had no time left for it"

_loaded: set[str] = set()
"""Origins that have run in this process."""


@dataclass(slots=True)
class _Trial:
    candidate: Candidate
    source: Implementation
    seconds: float


Proposals = Iterator[tuple[Implementation, Candidate]]


class Trials:
    """The trials of one search, made by `run`.

    ranking, rejected   the outcome
    confirmed           two independent results agreed; else there was only one
    tried               the candidates themselves, ready to run
    """

    def __init__(
        self,
        task: Task,
        policy: Policy,
        limits: Limits,
        bench: Bench,
        report: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.ranking: list[Measurement] = []
        self.rejected: list[Measurement] = []
        self.confirmed = False
        self.tried: dict[str, _Trial] = {}
        self._task, self._policy, self._limits, self._bench = task, policy, limits, bench
        self._report, self._clock, self._start = report, clock, clock()
        self._crosscheck = CrossCheck(bench, (each.dtype.name for each in task.outputs), task.terms)
        self._seen: set[str] = set()
        self._compiling: list[tuple[Implementation, Candidate]] = []

    def run(self) -> None:
        """Raises Refusal, with the reasons, if no result can be accepted."""
        exhaustive = self._policy.search == "exhaustive"
        self._screen(self._proposals())
        if not (exhaustive and self._crosscheck.accepted):
            self._screen_compiling()
        if not self._crosscheck.accepted:
            raise Refusal(self._why_not())
        if exhaustive:
            self._remeasure(self._crosscheck.accepted)
            accepted = self._crosscheck.accepted
            best = self._ranked(accepted)[:2]
            self._screen(self._variations(), varied=True)
            self._screen_compiling()
            if self._crosscheck.accepted != accepted:
                self._remeasure((self._crosscheck.accepted - accepted) | set(best))
            if not self._crosscheck.accepted:  # the last result agrees with no other, and none is known to be right
                raise Refusal(self._why_not())
        self.confirmed = self._crosscheck.confirmed
        self.ranking = [self._measurement(name) for name in self._ranked(self._crosscheck.accepted)]
        rejections = self._crosscheck.rejections()
        self.rejected += [
            self._measurement(name, reason=why.reason, wrong=why.wrong) for name, why in rejections.items()
        ]
        history.learn(self._task.kind, self.ranking, self.rejected)

    # --- screening ---------------------------------------------------------------------------------------------------

    def _proposals(self) -> Proposals:
        """The candidates of all sources, one of each in turns. A source that fails is skipped, with its reason."""
        return _in_turns([(source, self._guarded(source, source.candidates)) for source in self._task.sources])

    def _variations(self) -> Proposals:
        """Other settings of the best of the best origins, in turns."""
        best: dict[str, _Trial] = {}
        for name in self._ranked(self._crosscheck.accepted):
            best.setdefault(self.tried[name].candidate.origin, self.tried[name])
        near = [each for each in best.values() if each.seconds <= _CLOSE * self._best()][:_VARIED]
        return _in_turns(
            [(each.source, self._guarded(each.source, each.source.variations, each.candidate)) for each in near]
        )

    def _guarded(
        self, source: Implementation, make: Callable[..., Iterator[Candidate]], *of: Candidate
    ) -> Iterator[Candidate]:
        try:
            yield from make(*of)
        except ImportError as error:
            self.rejected.append(Measurement(source.name, source.name, "", {}, reason=f"cannot be loaded: {error}"))
        except (Refusal, GradkernError) as error:
            self.rejected.append(Measurement(source.name, source.name, "", {}, reason=str(error)))

    def _screen(self, proposals: Proposals, varied: bool = False) -> None:
        """Run each. Candidates of origins known to be slow come last, or are skipped if they take long and are not
        needed.
        """
        postponed: list[tuple[Implementation, Candidate]] = []
        fruitless, best = 0, self._best()
        for source, candidate in proposals:
            if self._policy.search == "heuristic" and self._crosscheck.confirmed:
                return
            if varied and fruitless == _FRUITLESS:
                return
            if varied:
                fruitless, best = (fruitless + 1, best) if self._best() > _GAIN * best else (0, self._best())
            if candidate.name in self._seen:
                continue
            self._seen.add(candidate.name)
            if "compiles" in candidate.notes:
                self._compiling.append((source, candidate))
            elif self._out_of_time(candidate):
                self._reject(source, candidate, _NO_TIME)
            elif self._expected(candidate) > _SLOW:
                postponed.append((source, candidate))
            else:
                self._try(source, candidate, varied)
        for source, candidate in sorted(postponed, key=lambda each: self._expected(each[1])):
            expected = self._expected(candidate)
            # the first of a source is tried anyway, as an independent result
            known = self._crosscheck.confirmed and any(each.source is source for each in self.tried.values())
            if known and expected > _SLOW and expected * self._best() > _DEAR:
                self._reject(source, candidate, "skipped: a variant of the same engine was far slower than the best")
            elif self._out_of_time(candidate):
                self._reject(source, candidate, _NO_TIME)
            else:
                self._try(source, candidate, varied)

    def _screen_compiling(self) -> None:
        """Run candidates that compile when they are prepared, half a second or more each: few of them, and only if such
        candidates have gained before, or nothing is known about them.
        """
        began = self._clock()
        for source, candidate in self._compiling:
            confirmed = self._crosscheck.confirmed
            if self._policy.search == "heuristic" and confirmed:
                return
            if confirmed and not history.worth_compiling(self._task.kind, candidate.origin):
                self._reject(source, candidate, "skipped: it compiles, as slower variants of the same engine do")
            elif self._out_of_time(candidate) or (confirmed and self._clock() - began > _COMPILING):
                self._reject(source, candidate, _NO_TIME)
            else:
                self._try(source, candidate, varied=False)
        self._compiling = []

    def _try(self, source: Implementation, candidate: Candidate, varied: bool) -> None:
        """Run it once, and again if it may be among the best; then cross-check its outputs."""
        self._report(f"{len(self.tried) + 1} tried, {candidate.name}")
        best = self._best()
        try:
            self._prepare(candidate)
            loading = _LOADING if candidate.origin in _loaded else _FIRST_LOADING
            seconds = self._bench.run(candidate)
            _loaded.add(candidate.origin)
            if seconds < _HOPELESS * best + loading:
                seconds = min(self._bench.times(candidate, 2 if seconds < _SHORT else 1))
            if varied and seconds > best:
                self._reject(source, candidate, f"it is no faster than what it varies: {seconds * 1e6:.1f} us")
                return
            self.tried[candidate.name] = _Trial(candidate, source, seconds)
            self._cross_check(candidate)
        except (Refusal, GradkernError) as error:
            if not self._bench.alive():
                raise ProviderError(
                    f"{self._task.title}: the search ended with a fault of {candidate.name}, after which this process"
                    f" cannot use the device: {error}; in a new process pin another kernel, or set the policy's search"
                    " to 'default'"
                ) from error
            self.tried.pop(candidate.name, None)
            self._reject(source, candidate, str(error))

    def _prepare(self, candidate: Candidate) -> None:
        """Prepare it. Compilation that is cached on disk takes no time from the others."""
        began = self._clock()
        ready(candidate, self._policy, self._limits.workspace)
        if "compiles_once" in candidate.notes and "compiles" not in candidate.notes:
            self._start += self._clock() - began

    def _cross_check(self, candidate: Candidate) -> None:
        """Compare its outputs with other results. The time of a float64 reference does not count."""
        self._crosscheck.add(candidate)
        began = self._clock()
        _ = self._crosscheck.accepted
        self._start += self._clock() - began

    def _best(self) -> float:
        """The best time of the accepted candidates; of all that were tried while none is accepted."""
        names = self._crosscheck.accepted or self.tried
        return min((self._seconds(name) for name in names), default=inf)

    def _out_of_time(self, candidate: Candidate) -> bool:
        """Whether no time is left for it. Without a second origin there is more time, for other origins."""
        left = self._start + _SCREENING * self._limits.seconds - self._clock()
        if self._crosscheck.confirmed or left > 0:
            return left <= 0
        known = {each.candidate.origin for each in self.tried.values()}
        return candidate.origin in known or left < -_PATIENCE * self._limits.seconds

    def _expected(self, candidate: Candidate) -> float:
        """The ratio to the best time that is expected of a candidate: that of its origin's fastest, here or in earlier
        searches.
        """
        here = [each.seconds for each in self.tried.values() if each.candidate.origin == candidate.origin]
        if here:
            return min(here) / self._best()
        return history.expected(self._task.kind, candidate.origin)

    # --- remeasuring -------------------------------------------------------------------------------------------------

    def _remeasure(self, names: Iterable[str]) -> None:
        """Time the fastest of these again, interleaved, so that a slowdown of the device affects all of them."""
        ranked = self._ranked(names)
        close = [name for name in ranked if self._seconds(name) <= _CLOSE * self._seconds(ranked[0])][:_MOST_REMEASURED]
        if len(close) < 2:
            return
        least, most = _REMEASURING_REPEATS
        rounds = int(_REMEASURING_SECONDS / max(sum(self._seconds(name) for name in close), 1e-6))
        times: dict[str, list[float]] = {name: [] for name in close}
        for _ in range(max(least, min(most, rounds))):
            for name in close:
                times[name] += self._bench.times(self.tried[name].candidate, 1)
        for name in close:
            self.tried[name].seconds = statistics.median(times[name])

    # --- the outcome -------------------------------------------------------------------------------------------------

    def _ranked(self, names: Iterable[str]) -> list[str]:
        """By time in a search for the fastest; else in the order of trials.

        A candidate that compiles must be faster by a margin to be ranked before others.
        """
        chosen = set(names)
        tried = [name for name in self.tried if name in chosen]
        return sorted(tried, key=self._worth) if self._policy.search == "exhaustive" else tried

    def _worth(self, name: str) -> float:
        compiles = "compiles" in self.tried[name].candidate.notes
        return self._seconds(name) / (history.GAIN if compiles else 1.0)

    def _seconds(self, name: str) -> float:
        return self.tried[name].seconds

    def _measurement(self, name: str, **found: object) -> Measurement:
        trial = self.tried[name]
        measured = Measurement.of(trial.candidate, trial.source.name, trial.seconds)
        return replace(measured, **found)  # type: ignore[arg-type]

    def _reject(self, source: Implementation, candidate: Candidate, reason: str) -> None:
        self.rejected.append(Measurement(candidate.name, source.name, candidate.origin, {}, reason=reason))

    def _why_not(self) -> str:
        reasons = {each.name: each.reason for each in self.rejected}
        reasons |= {name: rejection.reason for name, rejection in self._crosscheck.rejections().items()}
        if self.tried:
            reasons = {"no majority of results agrees": self._crosscheck.groups(), **reasons}
        return joined_reasons(reasons)


def joined_reasons(reasons: Mapping[str, str]) -> str:
    """Why the candidates with these names are not available; a shared reason is listed once."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    texts = [f"{each[0]}{f' and {len(each) - 1} more' if each[1:] else ''}: {why}" for why, each in names.items()]
    return "; ".join(texts) or "there is no candidate"


def _in_turns(running: list[tuple[Implementation, Iterator[Candidate]]]) -> Proposals:
    """One of each, then the next of each."""
    while running:
        going: list[tuple[Implementation, Iterator[Candidate]]] = []
        for source, candidates in running:
            candidate = next(candidates, None)
            if candidate is not None:
                going.append((source, candidates))
                yield source, candidate
        running = going
