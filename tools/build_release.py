#!/usr/bin/env python3
"""Make a release: `tools/release prepare 0.3.0` names a version, `tools/release` builds its packages into dist/.

The wheel has a pack of compiled kernels for each of sm_80, sm_90, sm_100 and sm_120; no GPU is needed. A pack of all
popular calls would take some 40 minutes of a core, so a release has the kernels of the most common ones: norms, GELU,
activations, softmax and losses, in float32 and bfloat16, of the widths in `WIDTHS`. That is 740 to 1,240 kernels and
about 10 minutes of a core for an architecture, 10 minutes of four cores and 26 MB in all. Convolutions are left out:
their kernels depend on the filter, and most calls run on cuDNN. What a pack lacks is compiled when it is first needed,
or with `gradkern pack build`.

A release is refused where the changelog does not have the version, the page of the package index has a link that leads
nowhere, `twine check` finds a fault, or the wheel is larger than `LARGEST`.
"""

from __future__ import annotations

import argparse
import datetime
import email
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from build_metadata import repository_url
from packaging.version import Version

from gradkern import __version__
from gradkern.cli.catalogue import calls

ARCHITECTURES = "sm_80,sm_90,sm_100,sm_120"
WIDTHS = frozenset({64, 128, 384, 512, 768, 1024, 1280, 1536, 2048, 3072, 4096, 5120, 8192})
"""Columns of norms and GELU: heads, and hidden sizes of common transformers."""
LARGEST = 60_000_000
"""Bytes of a wheel; a package index takes 100 MB."""
_LEFT_OUT = ("Conv", "ConvGrad", "DmlBatchNormalizationGrad", "InvertibleLayerNormalizationGrad", "SoftmaxGrad")
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def common_calls() -> Iterator[dict[str, Any]]:
    """The popular calls whose kernels a release has."""
    for call in calls():
        types, columns = call["types"], call["axes"].get("columns", 64)
        columns = columns[-1] if isinstance(columns, list) else columns
        of_width = columns in WIDTHS or "oftmax" in call["op"] or "Entropy" in call["op"]
        if (
            of_width
            and call["op"] not in _LEFT_OUT
            and "float16" not in (types if isinstance(types, str) else types.values())
        ):
            yield call


def build(options: argparse.Namespace) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    repository = repository_url()
    if repository is None:
        sys.exit("tools/release: set GRADKERN_REPOSITORY to the repository's address, to which the page's links lead")
    if f"## {__version__} - " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        sys.exit(f"tools/release: CHANGELOG.md has no section for {__version__}; `tools/release prepare` makes one")
    if options.tag not in (None, f"v{__version__}"):
        sys.exit(f"tools/release: the tag is {options.tag}, but this is version {__version__}: expected v{__version__}")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gradkern-release-") as folder:
        listed = Path(options.calls or Path(folder) / "calls.jsonl").resolve()
        if not options.calls:
            listed.write_text("".join(f"{json.dumps(call)}\n" for call in common_calls()), encoding="utf-8")
        packs = {"GRADKERN_WHEEL_PACKS": options.arch, "GRADKERN_WHEEL_CALLS": str(listed)}
        command = [sys.executable, "-m", "build", "--outdir", str(options.output.resolve()), str(ROOT)]
        command += ["--no-isolation"] if options.no_isolation else []
        environment = {**os.environ, **packs, "GRADKERN_REPOSITORY": repository}
        if subprocess.run(command, env=environment, check=False).returncode:
            sys.exit("tools/release: the packages could not be built")
    made = options.output / f"gradkern-{__version__}"
    return Path(f"{made}.tar.gz"), Path(f"{made}-py3-none-any.whl")


def faults(source: Path, wheel: Path, architectures: str) -> Iterator[str]:
    """What keeps these packages from being published."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (name,) = (each for each in inside if each.endswith(".dist-info/METADATA"))
        page: Any = email.message_from_bytes(archive.read(name)).get_payload()
    for each in architectures.split(","):
        if f"gradkern/packs/{each}.pack" not in inside:
            yield f"{wheel.name} has no pack for {each}"
    for link in _LINK.findall(page):
        yield f"the page has a link to {link}, which no page of the index is"
    if wheel.stat().st_size > LARGEST:
        yield f"{wheel.name} has {wheel.stat().st_size / 1e6:.1f} MB; at most {LARGEST / 1e6:.0f} are published"
    check = [sys.executable, "-m", "twine", "check", "--strict", str(source), str(wheel)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"twine check: {done.stdout}{done.stderr}"


def prepare(version: str) -> None:
    """Name the next version: in the package, in CITATION.cff and in the changelog, whose head it takes."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"tools/release: {version!r} is no version; expected one as 0.3.0")
    if Version(version) <= Version(__version__):
        sys.exit(f"tools/release: {version} is no later version than {__version__}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head, begin, rest = changelog.partition("## Unreleased\n")
    if not begin or f"## {version} - " in changelog:
        sys.exit(f"tools/release: CHANGELOG.md has no section Unreleased, or has {version} already")
    here, following, older = rest.partition("\n## ")
    here = re.sub(r"### \w+\n\s*(?=### |\Z)", "", here).rstrip() + "\n"  # without headings of nothing
    if not here.strip():
        sys.exit("tools/release: CHANGELOG.md has nothing under Unreleased")
    empty = "".join(f"\n### {each}\n" for each in ("Added", "Changed", "Fixed"))
    new = f"{head}{begin}{empty}\n## {version} - {today}\n{here}{following}{older}"
    (ROOT / "CHANGELOG.md").write_text(new, encoding="utf-8")
    for path, pattern, new in (
        ("gradkern/version.py", r'(?m)^__version__ = ".*"', f'__version__ = "{version}"'),
        (".github/CITATION.cff", r"(?m)^version: .*", f"version: {version}"),
        (".github/CITATION.cff", r"(?m)^date-released: .*", f"date-released: {today}"),
    ):
        text = (ROOT / path).read_text(encoding="utf-8")
        (ROOT / path).write_text(re.sub(pattern, new, text), encoding="utf-8")
    print(f"version {version}: commit it, and push it with the tag v{version}; the workflow `release` publishes it")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="of the packages (dist)")
    parser.add_argument("--arch", default=ARCHITECTURES, help="architectures of the packs (%(default)s)")
    parser.add_argument("--calls", metavar="FILE", help="calls of the packs, as of `gradkern warmup --calls`")
    parser.add_argument("--tag", help="the tag that is released; refused unless it is the version's")
    parser.add_argument("--no-isolation", action="store_true", help="build with the packages of this environment")
    commands = parser.add_subparsers(dest="command", metavar="prepare VERSION")
    commands.add_parser("prepare", help="name the next version").add_argument("version")
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.version)
        return 0
    packages = build(options)
    found = [*faults(*packages, options.arch)]
    for each in found:
        print(f"tools/release: {each}", file=sys.stderr)
    for each in packages if not found else ():
        print(f"{each}: {each.stat().st_size / 1e6:.1f} MB")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
