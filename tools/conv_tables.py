"""What tools/conv_bench.py measured, as tables for the results pages."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

from markdown_table import table
from result_tables import gpu_origin, measured

__all__ = ["conv"]

Row = dict[str, Any]


def conv() -> str:
    """ConvGrad and PyTorch's convolutions, measured in one run."""
    results = measured("conv.json")
    rows = results["rows"]
    if not rows:
        return ""
    machine = results["machine"]
    single = [row for row in rows if row["outputs"] in ("dX", "dW")]
    cudnn = machine["versions"]["cudnn"]
    versions = {**machine["versions"], "cuDNN": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"}
    packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "cuDNN", "gradkern"))
    command = "tools/conv_bench.py --json tools/results/conv.json --plot tools/results/conv.png"
    parts = (
        f"`ConvGrad` and PyTorch with `cudnn.benchmark`, cold L2. {_overall(rows)}",
        *_networks(single),
        "PyTorch's time over gradkern's, in the geometric mean over all layers and (at the least). Arrays of 16 bits "
        "are channels-last, except in 1-D and where it says NCHW; dense is what is not depthwise:",
        _means(rows),
        *(_searches(single) if single else ()),
        f"{gpu_origin(machine, packages)}; `{command}` measures it anew.",
        "![PyTorch's time over gradkern's for every layer, type and gradient](conv.png)",
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


def _searches(single: list[Row]) -> Iterator[str]:
    seconds = [row["plan_seconds"] for row in single]
    yield (
        f"The plan of one gradient took {statistics.median(seconds):.1f} s in the median and {max(seconds):.1f} s at "
        "most, with its search, and its kernels' compilation, where none was kept on disk."
    )


def _networks(rows: list[Row]) -> Iterator[str]:
    """In the two types that most train in; of ResNet-50, whose layers differ most, also each kernel by itself."""
    lines: list[list[str]] = []
    for network in dict.fromkeys(row["network"] for row in rows):
        for setting in ("bfloat16", "bfloat16-nchw", "tf32"):
            here = [row for row in rows if (row["network"], row["setting"]) == (network, setting)]
            kernels = dict.fromkeys(map(_kernel, here))
            groups = [here] if here else []
            if network == "ResNet-50":
                groups += [[row for row in here if _kernel(row) == kernel] for kernel in kernels]
            lines += map(_sums, groups)
    measured = ("torch µs", "gradkern µs", "torch / gradkern", "won")
    head = ("network", "kernels", "layers", "type", *(f"{name}: {each}" for name in ("dX", "dW") for each in measured))
    if lines:
        yield (
            "Sums over the different convolutions of a network, and in how many of them which candidate won: an engine "
            "of cuDNN, by its number, for NCHW also one for channels-last arrays, on copies, products by cuBLAS (GEMM) "
            "or the depthwise kernel:"
        )
        yield table(head, lines)


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
    lines: list[list[str]] = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        here = [row for row in rows if row["setting"] == setting]
        cells: list[str] = [f"{_TYPES.get(setting, setting)}{', NCHW' if setting.endswith('-nchw') else ''}"]
        for kind, outputs in wanted:
            ratios = [
                row["torch_over_gradkern"]
                for row in here
                if row["outputs"] == outputs and (kind == "depthwise") == ("depthwise" in row["layer"])
            ]
            cells.append(f"{statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f})" if ratios else "")
        lines.append(cells)
    return table(("type", *(f"{kind} {outputs}" for kind, outputs in wanted)), lines)


_TYPES = {"tf32": "float32 in TF32", "bfloat16-nchw": "bfloat16"}


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
    inside = name.removeprefix("channels_last_")
    copies = "" if inside == name else " on copies"
    engine = re.match(r"cudnn_.*?eng(\d+)", inside)
    if engine:
        return f"cuDNN {engine[1]}{copies}"
    if inside == "few_channels":
        return f"few channels{copies}"
    return "GEMM" if name.startswith("gemm") else name.split("_")[0]
