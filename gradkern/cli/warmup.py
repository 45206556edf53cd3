"""`gradkern warmup`: make plans ahead of time, so that kernels and searches are in the cache when they are needed."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from gradkern.cli import DONE, FAILED
from gradkern.cli.caches import count, counted
from gradkern.cli.ops import require_known
from gradkern.cli.sizes import Wanted, combinations, find, usable, wanted_of
from gradkern.contract import registry
from gradkern.dispatch.planner import compile_ahead
from gradkern.errors import ArgumentError, GradkernError
from gradkern.system import cache_files, notice, providers
from gradkern.system.json_text import loads
from gradkern.system.progress import bar
from gradkern.system.providers import unavailable


def run(options: argparse.Namespace) -> int:
    """Plan every call that the command line means, each on every provider it means."""
    reason = cache_files.why_not_writable()
    if reason is not None:
        print(
            f"nothing can be kept in {cache_files.root()}: {reason}; GRADKERN_CACHE_DIR names another folder",
            file=sys.stderr,
        )
        return FAILED
    _check(options)
    wanted = list(_named(options) if options.calls else _registered(options))
    work = [(each, provider) for each in wanted for provider in _providers(each, options.provider)]
    if options.calls and not wanted:
        print(f"nothing to warm: {options.calls} has no calls of these operators", file=sys.stderr)
        return FAILED
    if not work:
        print("nothing to warm: no operator takes these types on a provider that can run here", file=sys.stderr)
        return FAILED
    before, start, failed = count(), time.perf_counter(), 0
    compile_ahead((on, providers.PROVIDERS[on].first_device, partial(each.dry_plan, on)) for each, on in work)
    terminal = notice.on_terminal()  # within the bar nothing else is drawn
    for each, provider in bar("planning", work, lambda each: each[0].name):
        label = f"{each.name} {each.size}"
        began = time.perf_counter()
        try:
            kernel = each.searched_plan(provider).kernel
        except Exception as error:  # one call that fails, in whatever way, must not stop the others
            failed += 1
            text = error if isinstance(error, GradkernError) else repr(error)
            print(f"failed: {label} on {provider}: {text}", file=sys.stderr)
        else:
            if not terminal:
                print(f"{label} on {provider}: {kernel}, {time.perf_counter() - began:.2f} s", flush=True)
    seconds = time.perf_counter() - start
    new, searched = (now - then for now, then in zip(count(), before, strict=True))
    made = f"{counted(new, 'kernel')} and {counted(searched, 'search')} new in {cache_files.root()}"
    print(f"{len(work) - failed} plans in {seconds:.1f} s, {made}")
    if failed:
        print(f"{failed} failed", file=sys.stderr)
    return FAILED if failed else DONE


def _check(options: argparse.Namespace) -> None:
    """Raise a GradkernError for a name that no operator knows."""
    chosen = [find(name) for name in options.operators] or [*registry.operators().values()]
    require_known("provider", options.provider, (each for operator in chosen for each in operator.providers))
    for each in options.types.split(",") if options.types != "all" else ():
        variable, _, given = each.strip().rpartition("=")
        rows = (row for operator in chosen for row in operator.combinations)
        require_known("type", given, (row[key] for row in rows for key in ([variable] if variable in row else row)))


def _registered(options: argparse.Namespace) -> Iterator[Wanted]:
    """The registry's own sizes of the operators, in the types, that are named."""
    for name in options.operators or registry.operators():
        operator = find(name)
        examples = operator.benchmarks if options.benchmarks else operator.examples
        for types in _types(operator, options.types):
            yield from (Wanted(name, operator, example, types) for example in examples)


def _types(operator: Any, text: str) -> Iterable[Any]:
    if text == "all":
        return operator.combinations
    return [row for each in text.split(",") for row in combinations(operator, each)[:1]]


def _named(options: argparse.Namespace) -> Iterator[Wanted]:
    """The calls of a file of JSON lines; of some operators, if any are named."""
    return (each for each in calls_of(options.calls) if not options.operators or each.name in options.operators)


def calls_of(source: str) -> Iterator[Wanted]:
    """The calls of a file of JSON lines, or of standard input for -. Raises ArgumentError, with the line's number."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{source}: {getattr(error, 'strerror', None) or error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield wanted_of(loads(line))
            except (GradkernError, ValueError) as error:
                kind = "it is not JSON: " if isinstance(error, JSONDecodeError) else ""
                raise ArgumentError(f"{source}:{number}: {kind}{error}") from error


def _providers(wanted: Wanted, provider: str | None) -> list[str]:
    """The given provider, where the operator has it; without one, all that can run here."""
    if provider is not None:
        return [usable(wanted.name, wanted.operator, provider)] if provider in wanted.operator.providers else []
    return [each for each in wanted.operator.providers if unavailable(each) is None]
