#!/usr/bin/env python3
"""Write the parts of README.md that come from elsewhere: operators from the registry, figures from tools/results.

    tools/readme.py            write them into README.md
    tools/readme.py --check    exit with 1 where README.md is not what they would make it

A part stands between <!-- begin NAME --> and <!-- end NAME -->.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "results"
PEERS = ("torch", "cudnn", "compile", "liger")  # of the benchmark on a GPU
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

import bench_rows
from bench_rows import Row

import gradkern


def main() -> int:
    """Write README.md, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something would change")
    options = parser.parse_args()
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = before
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(after):
            sys.exit(f"README.md has no part <!-- begin {name} -->")
        text = make()
        lines = f"{text}\n".replace("\\", r"\\") if text else ""
        after = pattern.sub(rf"\g<1>{lines}\g<2>", after)
    if before == after:
        return 0
    if options.check:
        print("README.md is out of date; run tools/readme.py", file=sys.stderr)
        return 1
    path.write_text(after, encoding="utf-8")
    return 0


def operators() -> str:
    """The table of operators."""
    rows = []
    for name, operator in gradkern.operators().items():
        outputs = (f"{each.name}" if each.default else f"{each.name} (on request)" for each in operator.outputs)
        in_place = (f"{target} over {source}" for source, target in sorted(operator.in_place_pairs))
        inputs = (each.name for each in operator.inputs)
        cells = [f"`{name}`", *map(", ".join, (inputs, outputs, operator.attributes, in_place, operator.data_types))]
        rows.append([*cells, ", ".join(operator.providers)])
    return _table(("operator", "inputs", "outputs", "attributes", "in place", "types of the data", "providers"), rows)


def cpu() -> str:
    """Times of the CPU provider and PyTorch's CPU kernels, measured in one run."""
    results = json.loads((RESULTS / "cpu.json").read_text())
    rows = []
    for row in results["rows"]:
        torch = row["peers"].get("torch")
        flops = row["gigaflops_per_second"]
        rate = f"{flops:.0f} GFLOP/s" if flops else f"{row['gigabytes_per_second']:.1f} GB/s"
        ratio = f"{torch / row['microseconds']:.2f}" if torch else "no such gradient"
        size = row["size"].replace("x", "×")
        rows.append(
            [f"`{row['operator']}`", size, f"{row['microseconds'] / 1e3:.2f}", f"{row['spread']:.0%}", rate, ratio]
        )
    head = ("operator", "size", "ms", "spread", "rate", "PyTorch's time / gradkern's")
    return f"{_table(head, rows)}\n\n{_origin(results['machine'])}"


def h200() -> str:
    """GB/s of the CUDA kernels, the limit and the peers, measured in one run."""
    results = json.loads((RESULTS / "h200.json").read_text())
    rows = results["rows"]
    peers = [peer for peer in PEERS if any(peer in row["peers"] for row in rows)]
    machine = results["machine"]
    names = ("torch", "triton", "liger-kernel", "numba-cuda")
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in names)
    parts = (
        _ranges(rows, peers),
        f"<details><summary>Every size</summary>\n\n{_every_size(rows, peers)}\n\n</details>",
        f"{_gpu_origin(machine, packages)}; `tools/results/h200.json` has the commands.",
    )
    return "\n\n".join(parts)


def _ranges(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """A row for each operator, type and set of outputs: the least and the most over all sizes."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault((f"`{row['operator']}`", bench_rows.type_of(row), _outputs(row)), []).append(row)
    cells = []
    for what, each in kinds.items():
        ratios = [[_ratio(row, peer) for row in each if peer in row["peers"]] for peer in peers]
        shares = [row["share_of_limit"] for row in each]
        cells.append([*what, str(len(each)), _range(shares), *map(_range, ratios)])
    return _table(("operator", "type", "outputs", "sizes", "of the limit", *_over_gradkern(peers)), cells)


def _every_size(rows: Sequence[Row], peers: Sequence[str]) -> str:
    cells = []
    for row in rows:
        times = [f"{_ratio(row, peer):.2f}" if peer in row["peers"] else "-" for peer in peers]
        what = [f"`{row['operator']}`", bench_rows.size_of(row), bench_rows.type_of(row), _outputs(row)]
        rate = [f"{row['microseconds']:.1f}", f"{row['gigabytes_per_second']:.0f}", f"{row['share_of_limit']:.3f}"]
        cells.append([*what, *rate, *times])
    return _table(("operator", "size", "type", "outputs", "µs", "GB/s", "of the limit", *_over_gradkern(peers)), cells)


def _outputs(row: Row) -> str:
    every = [each.name for each in gradkern.operators()[row["operator"]].outputs]
    return "all" if row["outputs"] == every else ", ".join(row["outputs"])


def _over_gradkern(peers: Sequence[str]) -> list[str]:
    return [f"{peer} / gradkern" for peer in peers]


def _ratio(row: Row, peer: str) -> float:
    return row["peers"][peer] / row["microseconds"]


def _range(numbers: Sequence[float]) -> str:
    if not numbers:
        return "-"
    least, most = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return least if least == most else f"{least} to {most}"


def conv() -> str:
    """ConvGrad and PyTorch's convolutions, measured in one run; nothing before there was one."""
    path = RESULTS / "conv.json"
    if not path.exists():
        return ""
    results = json.loads(path.read_text())
    rows, machine = results["rows"], results["machine"]
    single = [row for row in rows if row["outputs"] in ("dX", "dW")]
    searches = [row["plan_seconds"] for row in single]
    cudnn = machine["versions"]["cudnn"]
    versions = {**machine["versions"], "cuDNN": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"}
    packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "cuDNN", "gradkern"))
    command = "tools/conv_bench.py --json tools/results/conv.json --plot tools/results/conv.png"
    parts = (
        f"`ConvGrad` and PyTorch with `cudnn.benchmark`, cold L2. {_overall(rows)}",
        "Sums over the different convolutions of a network, and in how many of them which candidate won: an engine of "
        "cuDNN, by its number, products by cuBLAS (GEMM) or the depthwise kernel:",
        _networks(single),
        "PyTorch's time over gradkern's, in the geometric mean over all layers and (at the least). Arrays of 16 bits "
        "are channels-last, except in 1-D; dense is what is not depthwise:",
        _means(rows),
        f"The plan of one gradient took {statistics.median(searches):.1f} s in the median and {max(searches):.1f} s at "
        "most, with its search, and its kernels' compilation, where none was kept on disk.",
        f"{_gpu_origin(machine, packages)}; `{command}` measures it anew.",
        "![PyTorch's time over gradkern's for every layer, type and gradient](tools/results/conv.png)",
    )
    return "\n\n".join(parts)


def _overall(rows: list[Row]) -> str:
    ratios = [row["torch_over_gradkern"] for row in rows]
    worst = min(rows, key=lambda row: row["torch_over_gradkern"])
    where = f"{worst['network']} `{worst['layer']}`, {_type(worst)}, {worst['outputs']}"
    slower = sum(ratio < 0.98 for ratio in ratios)
    return (
        f"Over {len(rows)} measurements PyTorch takes {statistics.geometric_mean(ratios):.2f} times as long as "
        f"gradkern in the geometric mean and {min(ratios):.2f} times at the least ({where}); in {slower} of them it "
        "takes less than 0.98 times."
    )


def _networks(rows: list[Row]) -> str:
    """In the two types that most train in; of ResNet-50, whose layers differ most, also each kernel by itself."""
    lines = []
    for network in dict.fromkeys(row["network"] for row in rows):
        for setting in ("bfloat16", "tf32"):
            here = [row for row in rows if (row["network"], row["setting"]) == (network, setting)]
            kernels = dict.fromkeys(map(_kernel, here))
            groups = [here] if here else []
            if network == "ResNet-50":
                groups += [[row for row in here if _kernel(row) == kernel] for kernel in kernels]
            lines += map(_sums, groups)
    measured = ("torch µs", "gradkern µs", "torch / gradkern", "won")
    head = ("network", "kernels", "layers", "type", *(f"{name}: {each}" for name in ("dX", "dW") for each in measured))
    return _table(head, lines)


def _sums(rows: list[Row]) -> list[str]:
    """A line of the table: rows of one network and type."""
    kernels, layers = dict.fromkeys(map(_kernel, rows)), {row["layer"] for row in rows}
    cells = [rows[0]["network"], ", ".join(kernels), str(len(layers)), _type(rows[0])]
    for output in ("dX", "dW"):
        here = [row for row in rows if row["outputs"] == output]
        if not here:
            cells += [""] * 4
            continue
        torch, ours = (sum(row[key] for row in here) for key in ("torch_microseconds", "microseconds"))
        winners = Counter(map(_winner, here)).most_common()
        shown = [f"{name} ({count})" for name, count in winners[:3]]
        shown += [f"others ({sum(count for _, count in winners[3:])})"] * (len(winners) > 3)
        cells += [f"{torch:.0f}", f"{ours:.0f}", f"{torch / ours:.2f}", ", ".join(shown)]
    return cells


def _means(rows: list[Row]) -> str:
    wanted = [(kind, outputs) for kind in ("dense", "depthwise") for outputs in ("dX", "dW", "dX,dW,dB")]
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        here = [row for row in rows if row["setting"] == setting]
        cells = [_TYPES.get(setting, setting)]
        for kind, outputs in wanted:
            ratios = [
                row["torch_over_gradkern"]
                for row in here
                if row["outputs"] == outputs and (kind == "depthwise") == ("depthwise" in row["layer"])
            ]
            cells.append(f"{statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else "")
        lines.append(cells)
    return _table(("type", *(f"{kind} {outputs}" for kind, outputs in wanted)), lines)


_TYPES = {"tf32": "float32 in TF32"}


def _type(row: Row) -> str:
    """The type and, as tools/conv_bench.py sets it, the order in memory."""
    setting = row["setting"]
    rank = row["layer"].split()[0].count("x")  # "64x56x56 -> 64, 3x3"
    last = rank > 1 and setting in ("float16", "bfloat16")
    return f"{_TYPES.get(setting, setting)}, {'channels-last' if last else ('NCL', 'NCHW', 'NCDHW')[rank - 1]}"


def _kernel(row: Row) -> str:
    """Its size, and its groups."""
    return re.sub(r"/\d+| dilated \d+", "", row["layer"].split(", ")[1]).replace("x", "×")


def _winner(row: Row) -> str:
    """Where the candidate that computes the only output comes from."""
    name = row["kernel"].partition(": ")[2]
    engine = re.match(r"cudnn_.*?eng(\d+)", name)
    if engine:
        return f"cuDNN {engine[1]}"
    return "GEMM" if name.startswith("gemm") else name.split("_")[0]


def digits() -> str:
    """What the demo reached, and where its time went."""
    run = json.loads((RESULTS / "digits.json").read_text())
    rows = [
        [f"`{each['operator']}`", str(each["calls"]), f"{each['total_ms'] / 1e3:.2f}", f"{each['mean_us']:.0f}"]
        for each in run["operators"]
    ]
    epochs, seconds = run["config"]["epochs"], run["seconds"]
    reached = f"{run['accuracy']:.2%} of the held-out digits right after {epochs} epochs, in {seconds:.0f} s:"
    return f"{reached}\n\n{_table(('operator', 'calls', 'seconds', 'microseconds a call'), rows)}"


def _origin(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"Measured {machine['date']} on {machine['processor']}, {machine['cores']} cores, "
        f"Python {machine['python']}, {packages}, with `tools/{machine['commands'][0]}`."
    )


def _gpu_origin(machine: dict[str, Any], packages: str) -> str:
    gpu = f"{machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}"
    return f"Measured {machine['date']} on one {gpu}, {packages}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or '-' for cell in line)} |" for line in lines)


PARTS: dict[str, Callable[[], str]] = {"operators": operators, "h200": h200, "conv": conv, "cpu": cpu, "digits": digits}

if __name__ == "__main__":
    sys.exit(main())
