"""From a task and a policy to one prepared candidate: stored, pinned, or found by a search now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from itertools import chain
from time import monotonic
from typing import Any, TypeVar

from gradkern.call import Refusal
from gradkern.cuda.compile_ahead import compile_ahead
from gradkern.cuda.device import Device, OutOfMemoryError, activate, check, driver, identity
from gradkern.cuda.dry_run import DryRunDevice
from gradkern.errors import GradkernError
from gradkern.policy import Policy, searching
from gradkern.search import history, store
from gradkern.search.bench import Bench, CudaBench
from gradkern.search.candidate import Candidate, Limits, ready
from gradkern.search.dry_run import Untried, ask_for_candidates, specs_of
from gradkern.search.implementation import Implementation, Task
from gradkern.search.store import Measurement, SearchResult
from gradkern.search.trials import Trials, joined_reasons
from gradkern.system import cache_files
from gradkern.system.notice import warn
from gradkern.system.progress import progress
from gradkern.version import __version__

_SHARE_OF_DEVICE, _SHARE_OF_FREE = 1 / 8, 1 / 2
_OTHERS_SEARCH = 60.0  # seconds to wait for another process with the same search

Item = TypeVar("Item")
OpenBench = Callable[[Task, Device], Bench]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen candidate, prepared; and the search's result, if a search chose it.

    provisional  no search has chosen it, and the policy defers the search
    policy       of a choice without a search: the first candidate that could be prepared
    """

    task: Task
    candidate: Candidate
    result: SearchResult | None = None
    provisional: bool = False
    policy: Policy | None = None

    def smaller(self) -> Choice:
        """The next of the ranking, or of all candidates, with a smaller workspace. Raises Refusal if there is none."""
        limit = self.candidate.workspace - 1
        if self.policy is not None and limit >= 0:
            return replace(self, candidate=_first_ready(self.task, self.policy, limit))
        ranking = self.result.ranking if self.result else ()
        return replace(self, candidate=_rebuilt(self.task, [each for each in ranking if each.workspace <= limit]))


def choose(
    task: Task,
    policy: Policy,
    device: Device,
    pin: str | None = None,
    seconds: float = 3.0,
    open_bench: OpenBench = CudaBench,
) -> Choice:
    """The winner for a task. Raises Refusal, with every reason, if no candidate is left.

    pin      the name of a candidate to use without a search
    seconds  time limit of a search
    """
    if isinstance(device, DryRunDevice):
        return Choice(task, _dry_run(task, policy, device, pin))
    limit = workspace_limit(policy, device)
    if pin is not None:
        return Choice(task, _pinned(task, policy, device, pin, limit))
    if policy.search == "default":
        return Choice(task, _first_ready(task, policy, limit), policy=policy)
    asked = conditions(task, policy, device)
    key = store.key_of(asked)
    choice = _stored_choice(task, key, limit)
    if choice is not None:
        return choice
    if policy.search == "background":
        return Choice(task, _first_ready(task, policy, limit), provisional=True, policy=policy)
    with cache_files.locked("search", key, _OTHERS_SEARCH):
        choice = _stored_choice(task, key, limit)  # another process may have searched meanwhile
        return choice or _search(task, policy, device, asked, Limits(limit, seconds), open_bench)


def stored(task: Task, policy: Policy, device: Device) -> SearchResult | None:
    """The result of an earlier search; None if there was none."""
    return store.load(store.key_of(conditions(task, policy, device)))


def candidate_names(task: Task) -> list[str]:
    """Of all candidates that a search would try first; nothing is run."""
    return list(dict.fromkeys(candidate.name for candidate in _all(task, {})))


def conditions(task: Task, policy: Policy, device: Device) -> dict[str, Any]:
    """Everything that the result of a search depends on."""
    name, driver = identity(device.index)
    return {
        "task": task.key,
        "search": searching(policy).search,  # the policy once the search is finished
        "allow_tf32": policy.allow_tf32,
        "deterministic": policy.deterministic,
        "workspace_limit": policy.workspace_limit,
        "device": name,
        "driver": driver,
        "gradkern": __version__,
        "sources": {source.name: _version(source) for source in task.sources},
        **({"sm_margin": device.margin} if device.margin else {}),
    }


def workspace_limit(policy: Policy, device: Device) -> int:
    """The policy's; by default an eighth of the device's memory, and no more than half of what is free now."""
    if policy.workspace_limit is not None:
        return policy.workspace_limit
    with activate(device):
        free, total = check(driver.cuMemGetInfo(), "asking for free memory")
    return int(min(_SHARE_OF_DEVICE * total, _SHARE_OF_FREE * free))


def _version(source: Implementation) -> str:
    try:
        return source.version()
    except (ImportError, PackageNotFoundError, GradkernError, Refusal) as error:
        return f"not there: {type(error).__name__}"


def _stored_choice(task: Task, key: str, limit: int) -> Choice | None:
    result = store.load(key)
    if result is None:
        return None
    try:
        return Choice(task, _rebuilt(task, [each for each in result.ranking if each.workspace <= limit]), result)
    except Refusal:
        return None  # the winner does not run any more: search again


def _rebuilt(task: Task, ranking: list[Measurement]) -> Candidate:
    """The first of these that can be rebuilt."""
    reasons: dict[str, str] = {}
    for each in ranking:
        try:
            candidate = task.source(each.source).build(each.recipe)
            candidate.prepare()
            return candidate
        except (Refusal, GradkernError, ImportError, StopIteration) as error:
            reasons[each.name] = str(error)
    raise Refusal(joined_reasons(reasons))


def _dry_run(task: Task, policy: Policy, device: DryRunDevice, pin: str | None) -> Candidate:
    """Request the kernels of the winner of an earlier search, or of all candidates that a search would try."""
    result = stored(task, policy, device) if device.there and policy.search != "default" and pin is None else None
    if result is None:
        return ask_for_candidates(task, device, search=policy.search not in ("default", "background"), pin=pin)
    winner = result.ranking[0]
    source = task.source(winner.source)
    if source.compiles:
        with contextlib.suppress(Refusal, GradkernError, ImportError):
            source.build(winner.recipe).prepare()
    return Untried()


def _search(
    task: Task, policy: Policy, device: Device, asked: Mapping[str, Any], limits: Limits, open_bench: OpenBench
) -> Choice:
    start = monotonic()
    if policy.search == "exhaustive":
        with progress(f"searching {task.title}") as report:
            compile_ahead(specs_of(task, device), partial(_reported, report))
    try:
        bench = open_bench(task, device)
    except OutOfMemoryError as error:
        warn(f"gradkern: {task.title} is not searched: {error}", stacklevel=2)
        return Choice(task, _first_ready(task, policy, limits.workspace), policy=policy)
    history.recall(task.kind, asked)
    try:
        with progress(f"searching {task.title}") as report:
            trials = Trials(task, policy, limits, bench, report)
            trials.run()
    finally:
        bench.close()
    spent = monotonic() - start
    result = SearchResult(task.title, asked, tuple(trials.ranking), tuple(trials.rejected), trials.confirmed, spent)
    store.save(result)
    _warn(task, result)
    return Choice(task, trials.tried[trials.ranking[0].name].candidate, result)


def _reported(report: Callable[[str], None], items: Iterable[Item], total: int) -> Iterator[Item]:
    for number, item in enumerate(items, start=1):
        report(f"{number} of {total} kernels compiled")
        yield item


_warned: set[tuple[str, str]] = set()


def _warn(task: Task, result: SearchResult) -> None:
    """Warn of candidates with wrong results: once for a search, and each origin once for a kind of task."""
    fresh = [each for each in result.wrong if (task.kind, each.origin) not in _warned]
    _warned.update((task.kind, each.origin) for each in fresh)
    if fresh:
        wrong = joined_reasons({each.name: each.reason for each in fresh})
        warn(f"gradkern: {task.title}: not used, as it is wrong: {wrong}", stacklevel=3)


def _first_ready(task: Task, policy: Policy, limit: int) -> Candidate:
    """The first candidate that can be prepared, in the order of the sources; nothing is run."""
    reasons: dict[str, str] = {}
    for candidate in _all(task, reasons):
        try:
            return ready(candidate, policy, limit)
        except (Refusal, GradkernError) as error:
            reasons[candidate.name] = str(error)
    raise Refusal(joined_reasons(reasons))


def _pinned(task: Task, policy: Policy, device: Device, name: str, limit: int) -> Candidate:
    """The candidate with this name: from the sources, or a variation of one of theirs that an earlier search ranked or
    that can be rebuilt from its name.
    """
    names: list[str] = []
    reasons: dict[str, str] = {}
    result = stored(task, policy, device)
    ranking = result.ranking if result else ()
    known = (task.source(each.source).build(each.recipe) for each in ranking if each.name == name)
    by_name = _of_each_source(task, reasons, lambda source: (source.named(name),))
    for candidate in chain(known, by_name, _all(task, reasons)):
        if candidate.name == name:
            try:
                return ready(candidate, policy, limit)
            except (Refusal, GradkernError) as error:
                raise Refusal(f"kernel {name!r} was asked for: {error}") from error
        names.append(candidate.name)
    names = list(dict.fromkeys([*(each.name for each in ranking), *names]))
    raise Refusal(f"has no kernel {name!r}; it has {', '.join(names) or joined_reasons(reasons)}")


def _all(task: Task, reasons: dict[str, str]) -> Iterator[Candidate]:
    return _of_each_source(task, reasons, lambda source: source.candidates())


def _of_each_source(
    task: Task, reasons: dict[str, str], ask: Callable[[Implementation], Iterable[Candidate | None]]
) -> Iterator[Candidate]:
    for source in task.sources:
        try:
            yield from filter(None, ask(source))
        except (Refusal, GradkernError, ImportError) as error:
            reasons[source.name] = str(error)
