"""`gradkern explain`: how a call would be computed: provider, kernel, memory, launches, the least time it can take."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradkern import __version__, driver
from gradkern.cli import DONE, JSON_SCHEMA
from gradkern.cli.sizes import Wanted, example_of, find, named, types_of, usable
from gradkern.contract import Example, Operator
from gradkern.errors import ArgumentError
from gradkern.prepared import Prepared

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Plan the call, which compiles its kernels, and show the plan; nothing is allocated or computed."""
    name, operator = options.operator, find(options.operator)
    if options.axes is not None:
        example = example_of(name, operator, options.axes, options.attributes)
        given = {}
    else:
        example, given = (
            _registered(name, operator, 1 if options.example is None else options.example),
            options.attributes,
        )
    outputs = options.outputs.split(",") if options.outputs else None
    wanted = Wanted(name, operator, example, types_of(name, operator, options.dtype), outputs, given)
    facts = explained(wanted, wanted.plan(usable(name, operator, options.provider)))
    print(json.dumps(facts, indent=2) if options.json else _text(facts))
    return DONE


def _registered(name: str, operator: Operator, number: int) -> Example:
    every = (*operator.examples, *operator.benchmarks)
    if not 1 <= number <= len(every):
        raise ArgumentError(
            f"{name}: no example {number}; it has {len(every)}, 1 to {len(operator.examples)} small ones for tests"
        )
    return every[number - 1]


def explained(wanted: Wanted, plan: Prepared) -> dict[str, Any]:
    """All that is known of a plan, as JSON has it."""
    bandwidth = _bandwidth() if plan.provider == "cuda" else None
    call = plan.call
    return {
        "schema": JSON_SCHEMA,
        "gradkern": __version__,
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
        "launches": [_launch(each) for each in getattr(plan._plan, "launches", ())],
        "bandwidth": bandwidth,
        "bound_microseconds": plan.bytes / bandwidth * 1e6 if bandwidth else None,
    }


def _launch(launch: Any) -> dict[str, Any]:
    kernel = launch.kernel
    return {
        "blocks": launch.grid,
        "threads": launch.threads,
        "cluster": launch.cluster,
        "registers": kernel.registers,
        "spilled": kernel.spilled,
        "shared_bytes": kernel.shared_bytes,
    }


def _bandwidth() -> float | None:
    """Bytes a second of the first GPU's memory, nominal."""
    found = driver.ask()
    return found.gpus[0].bandwidth or None if found and found.gpus else None


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
        ("must move", f"{facts['bytes']:,} bytes: every input read once, every output written once"),
    ]
    for number, each in enumerate(facts["launches"], start=1):
        shape = f"{each['blocks']} blocks of {each['threads']} threads"
        if each["cluster"] > 1:
            shape += f", in clusters of {each['cluster']}"
        registers = f"{each['registers']} registers a thread, {each['spilled']} bytes spilled"
        rows.append((f"launch {number}", f"{shape}, {each['shared_bytes']:,} bytes of shared memory, {registers}"))
    if facts["bandwidth"]:
        rate = f"{facts['bandwidth'] / 1e9:,.0f} GB/s, the memory's nominal rate (clock x bus width)"
        rows.append(("bound", f"{facts['bound_microseconds']:,.1f} microseconds at {rate}"))
    width = max(len(title) for title, _ in rows)
    return "\n".join([facts["operator"], *(f"  {title.ljust(width)}  {text}" for title, text in rows)])
