"""`gradkern explain`: how a call would be computed: provider, kernel, memory, launches, the least time it can take."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from gradkern.call import Searching
from gradkern.cli import DONE, print_json
from gradkern.cli.ops import wrapped
from gradkern.cli.sizes import Wanted, arrays_of, example_of, find, named, types_of, usable
from gradkern.contract.schema import Example, Operator
from gradkern.dispatch.planner import module_of
from gradkern.dispatch.prepared import Prepared
from gradkern.errors import ArgumentError
from gradkern.policy import effective
from gradkern.system import providers

_SHOWN = 10  # of a ranking; JSON has all


def run(options: argparse.Namespace) -> int:
    """Plan the call and show the plan. Its kernels are compiled; nothing is computed and nothing searched."""
    name, operator = options.operator, find(options.operator)
    if options.axes is not None:
        example = example_of(name, operator, options.axes, options.attributes)
        given: dict[str, Any] = {}
    else:
        example, given = (
            _registered(name, operator, 1 if options.example is None else options.example),
            options.attributes,
        )
    outputs = None if options.outputs is None else options.outputs.split(",")
    types = types_of(name, operator, options.types)
    arrays = arrays_of(name, operator, example, types, {"strides": options.strides, "policy": options.policy})
    wanted = Wanted(name, operator, example, types, outputs, given, **arrays)
    facts = explained(wanted, *_planned(wanted, usable(name, operator, options.provider)))
    print_json(**facts) if options.json else print(_text(facts))
    return DONE


Searches = Mapping[str, tuple[Any, list[str]]]


def _planned(wanted: Wanted, provider: str) -> tuple[Prepared, Searches]:
    """The plan, and by output what a search for it has found or would try. A plan that needs a search that nobody has
    made yet gives way to that of the policy's default.
    """
    modules = (module_of(wanted.operator.family, each) for each in wanted.operator.providers[provider])
    module = next((each for each in modules if isinstance(each, Searching)), None)
    if module is None:
        return wanted.plan(provider), {}
    plan = wanted.plan(provider, search="default")
    found = module.searches(replace(plan.call, policy=effective(wanted.policy)))
    return wanted.plan(provider) if all(result for result, _ in found.values()) else plan, found


def _registered(name: str, operator: Operator, number: int) -> Example:
    every = (*operator.examples, *operator.benchmarks)
    if not 1 <= number <= len(every):
        raise ArgumentError(
            f"{name}: no example {number}; it has {len(every)}, 1 to {len(operator.examples)} small ones for tests"
        )
    return every[number - 1]


def explained(wanted: Wanted, plan: Prepared, searches: Searches = MappingProxyType({})) -> dict[str, Any]:
    """All that is known of a plan, as JSON has it."""
    bandwidth = providers.PROVIDERS[plan.provider].bandwidth()
    call = plan.call
    return {
        "operator": plan.operator,
        "axes": dict(wanted.example.axes),
        "attributes": dict(call.attributes),
        "types": dict(wanted.types),
        "outputs": list(call.outputs),
        "provider": plan.provider,
        "device": call.device,
        "kernel": plan.kernel,
        "scratch": plan.scratch,
        "bytes": plan.bytes,
        "searches": {name: _search(*found) for name, found in searches.items()},
        "launches": [_launch(each) for each in plan.launches],
        "bandwidth": bandwidth,
        "bound_microseconds": plan.bytes / bandwidth * 1e6 if bandwidth else None,
    }


def _search(result: Any, candidates: list[str]) -> dict[str, Any]:
    if result is None:
        return {"kept": False, "candidates": candidates}
    found = asdict(result)
    return {"kept": True, **{key: found[key] for key in ("seconds", "confirmed", "ranking", "rejected")}}


def _launch(launch: Any) -> dict[str, Any]:
    kernel = launch.kernel
    return {
        "name": kernel.name,
        "blocks": launch.grid,
        "threads": launch.threads,
        "cluster": launch.cluster,
        "registers": kernel.registers,
        "spilled": kernel.spilled,
        "shared_bytes": kernel.shared_bytes,
    }


def _text(facts: dict[str, Any]) -> str:
    example = Example(axes=facts["axes"])
    attributes = [f"{name}={json.dumps(value)}" for name, value in facts["attributes"].items() if value is not None]
    rows = [
        ("sizes", named(example)),
        ("types", ", ".join(f"{key}={value}" for key, value in facts["types"].items())),
        ("attributes", ", ".join(attributes) or "none"),
        ("outputs", ", ".join(facts["outputs"])),
        ("provider", f"{facts['provider']} on {facts['device']}"),
        ("kernel", facts["kernel"]),
        ("scratch", f"{facts['scratch']:,} bytes"),
        ("traffic", f"{facts['bytes']:,} bytes at least: every input read once, every output written once"),
    ]
    for number, each in enumerate(facts["launches"], start=1):
        shape = f"{each['blocks']} blocks of {each['threads']} threads"
        if each["cluster"] > 1:
            shape += f", in clusters of {each['cluster']}"
        registers = f"{each['registers']} registers a thread, {each['spilled']} bytes spilled"
        rows.append((f"launch {number}", each["name"]))
        rows.append(("", f"{shape}, {each['shared_bytes']:,} bytes of shared memory, {registers}"))
    if facts["bandwidth"]:
        rate = f"{facts['bandwidth'] / 1e9:,.0f} GB/s, the memory's nominal rate (clock x bus width)"
        rows.append(("bound", f"{facts['bound_microseconds']:,.1f} microseconds at {rate}"))
    for name, search in facts["searches"].items():
        rows += _ranking(name, search)
    width = max(len(title) for title, _ in rows)
    lines = (wrapped(f"  {title.ljust(width)}  ", text or "-", width + 4) for title, text in rows)
    return "\n".join([facts["operator"], *(line for each in lines for line in each)])


def _ranking(name: str, search: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines about one search: the fastest, and why the others are not among them."""
    if not search["kept"]:
        many = f"{len(search['candidates'])} candidates: {', '.join(search['candidates'])}"
        yield f"search {name}", f"none is kept; gradkern.tune() or gradkern warmup makes it. {many}"
        return
    ranking, rejected = search["ranking"], search["rejected"]
    how = "confirmed by independent results" if search["confirmed"] else "not confirmed: there was one result only"
    yield f"search {name}", f"{search['seconds']:.1f} s, {len(ranking)} ranked, {len(rejected)} not; {how}"
    for place, row in enumerate(ranking[:_SHOWN], start=1):
        notes = f", {', '.join(row['notes'])}" if row["notes"] else ""
        yield f"{place}.", f"{row['seconds'] * 1e6:9.1f} us  {row['name']}, workspace {row['workspace']:,} bytes{notes}"
    for row in rejected:
        if row["wrong"]:
            yield "wrong", f"{row['name']}: {row['reason']}"
