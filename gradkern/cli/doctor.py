"""`gradkern doctor`: whether this machine is fit for gradkern, and the command that mends each problem.

A machine without a GPU is fit where the CPU provider works. What is for CUDA is then only shown; broken files of cuDNN
are a problem anywhere. At its top this module imports only the standard library: it works where packages are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

from gradkern import __version__
from gradkern.cli import DONE, FAILED, print_json
from gradkern.cli.caches import count, counted, size
from gradkern.cli.checks import Check, absent, check_cudnn, check_nvvm, fine, problem
from gradkern.cli.ops import wrapped
from gradkern.errors import GradkernError
from gradkern.system import cache_files, driver
from gradkern.system.driver import Driver
from gradkern.system.libraries import cuda_major
from gradkern.system.packages import EXTRAS, Requirement, in_checkout, installed, of_extra, pip

OLDEST = (7, 5)
"""The least compute capability that kernels are made for."""
MEASURED = ((9, 0),)
"""Compute capabilities where kernels have been run and timed."""
_UNMEASURED = "nobody has measured compute capability {}: its kernels are compiled and run in a simulator only"


def run(options: argparse.Namespace) -> int:
    """Check all there is to check and print it."""
    checks = list(_checks(options.compile))
    if options.self_test:
        checks += check_self(driver.ask())
    healthy = all(each.status != "problem" for each in checks)
    machine = {"python": platform.python_version(), "system": platform.platform()}
    if options.json:
        print_json(**machine, healthy=healthy, checks=[asdict(each) for each in checks])
    else:
        print(f"gradkern {__version__}, Python {machine['python']}, {machine['system']}")
        print("\n".join(_lines(checks)))
    return DONE if healthy else FAILED


def _checks(compiling: bool) -> Iterator[Check]:
    on_cpu = begin_check("cpu", compiling)
    answer = driver.ask()
    needed = bool(answer and answer.gpus)
    major = _major(answer)
    yield from check_driver(answer)
    yield from check_packages(answer, major)
    yield check_nvvm(major, needed)
    yield check_cudnn(major, needed)
    yield from check_cache()
    yield from check_packs([each.capability for each in answer.gpus] if answer else [])
    yield on_cpu()
    if needed:
        yield from check_margin()
        yield check_provider("cuda", compiling)


def _major(answer: Driver | None) -> int:
    """The CUDA that the installed packages are for, or else the newest that the driver runs."""
    return cuda_major(answer.version[0] if answer else max(EXTRAS))


def check_driver(answer: Driver | None) -> Iterator[Check]:
    """The driver and its GPUs."""
    if answer is None:
        yield absent("driver", "no NVIDIA driver: only the CPU provider is available")
        return
    version = ".".join(map(str, answer.version))
    if answer.error:
        yield problem("driver", f"for CUDA {version}, answers: {answer.error}", "nvidia-smi", version=version)
        return
    if not answer.gpus:
        yield absent("driver", f"for CUDA {version}, shows no GPU: only the CPU provider is available", version=version)
        return
    if answer.version[0] < min(EXTRAS):
        yield problem("driver", f"for CUDA {version}; gradkern needs CUDA {min(EXTRAS)}: install a newer driver")
    else:
        yield fine("driver", f"for CUDA {version}", version=version)
    for gpu in answer.gpus:
        capability = ".".join(map(str, gpu.capability))
        rate = f", {gpu.bandwidth / 1e9:,.0f} GB/s nominal" if gpu.bandwidth else ""
        text = f"{gpu.name}, compute capability {capability}, {gpu.memory / 2**30:.1f} GiB{rate}"
        if gpu.capability < OLDEST:
            yield problem(f"GPU {gpu.index}", f"{text}; gradkern needs {'.'.join(map(str, OLDEST))}", **asdict(gpu))
        else:
            yield fine(f"GPU {gpu.index}", text, **asdict(gpu))
            if gpu.capability not in MEASURED:
                text = f"{_UNMEASURED.format(capability)}; `gradkern doctor --self-test` compares them with the CPU's"
                yield absent(f"GPU {gpu.index}", text)


def check_packages(answer: Driver | None, major: int) -> Iterator[Check]:
    """What is installed, and whether it is what gradkern asks for; for CUDA only where there is a GPU.

    cuDNN has a check of its own.
    """
    core = of_extra("")
    cuda = [each for each in of_extra(EXTRAS[major]) if not each.name.startswith("nvidia-cudnn")]
    shown = dict.fromkeys([*(each.name for each in (*core, *cuda)), *_ALSO])
    versions = {name: version for name in shown if (version := installed(name)) is not None}
    yield fine("packages", ", ".join(f"{name} {version}" for name, version in versions.items()), versions=versions)
    if not core:
        yield problem("packages", "gradkern is neither installed nor a checkout: what it needs is not known")
    needed = [*core, *cuda] if answer and answer.gpus else core
    names = {each: each.name if each.name in versions else _HOLDS.get(each.name, each.name) for each in needed}
    missing = [each for each in needed if names[each] not in versions]
    present = [] if any(each.name == "packaging" for each in missing) else needed  # it compares versions
    if missing:
        text = f"{', '.join(each.name for each in missing)} not installed"
        yield problem("packages", text, pip("install", *(each.text for each in missing)))
    for each in present:
        name = names[each]
        if name in versions and not each.takes(versions[name]):
            yield _misfit(each, name, versions[name])
    if answer and answer.gpus and major > answer.version[0] >= min(EXTRAS):
        text = f"cuda-bindings is for CUDA {major}, but the driver runs CUDA {answer.version[0]} at most"
        yield problem("packages", text, pip("install", *(each.text for each in of_extra(EXTRAS[answer.version[0]]))))


_HOLDS = {"cuda-python": "cuda-bindings"}
"""A package that only has requirements, and the one of the same version with the code."""
_ALSO = ("llvmlite", "cuda-bindings", "nvmath-python", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "torch")
"""Packages worth showing though gradkern does not ask for them, or not by themselves."""


def _misfit(each: Requirement, name: str, version: str) -> Check:
    why = " (numba-cuda cannot be imported with it)" if name == "numpy" and installed("numba-cuda") else ""
    return problem("packages", f"{name} {version} does not fit {each.text}{why}", pip("install", each.text))


def check_cache() -> Iterator[Check]:
    """The folders of what is cached."""
    try:
        root = cache_files.root()
    except ImportError as error:
        yield problem("cache", f"no folder is known: {error}", "export GRADKERN_CACHE_DIR=FOLDER")
        return
    unwritable = cache_files.why_not_writable()
    reasons = {name: cache_files.why_not_used(name) for name in cache_files.FOLDERS}
    unused = {name: reason for name, reason in reasons.items() if reason not in (None, unwritable)}
    for name, reason in unused.items():
        folder = str(cache_files.folder(name))
        remedy = f"chmod go-w {shlex.quote(folder)}" if "may write" in reason else "export GRADKERN_CACHE_DIR=FOLDER"
        yield problem("cache", f"{folder} is not used: {reason}", remedy, folder=folder)
    if unwritable is not None:
        text = f"{root} cannot be written: {unwritable}; what is not there is compiled anew in every process"
        yield problem("cache", text, "export GRADKERN_CACHE_DIR=FOLDER", folder=str(root))
    elif not unused:
        (found, _), taken = count(), size()
        yield fine(
            "cache",
            f"{root}, {counted(found, 'kernel')}, {taken:,} bytes",
            folder=str(root),
            kernels=found,
            bytes=taken,
        )


def check_packs(gpus: Iterable[tuple[int, int]]) -> Iterator[Check]:
    """The packs that there are, and whether these GPUs, by their compute capability, have one."""
    packs: Any = import_module("gradkern.cuda.packs")
    try:
        found: list[Any] = packs.found()
    except ImportError:
        return  # there is no cache; that has a finding of its own
    for each in found:
        facts = {"path": str(each.path), "bytes": each.size}
        if each.fault is None:
            text = f"{each.path}, {counted(each.about.kernels, 'kernel')}, {each.size:,} bytes"
            yield fine("pack", text, kernels=each.about.kernels, **facts)
        else:
            if each.path.parent != packs.PACKAGED:
                remedy = f"gradkern pack build --arch {each.path.stem}"
            else:
                remedy = f"gradkern pack build --refresh {each.path.parent}" if in_checkout() else _REINSTALL
            yield problem("pack", f"{each.path} is not used: {each.fault}", remedy, **facts)
    sound = [(each.capability, each.about.ptx) for each in found if each.fault is None]
    for gpu in dict.fromkeys(gpus):
        if gpu >= OLDEST and not any(packs.serves(each, gpu, ptx) for each, ptx in sound):
            text = f"none for compute capability {'.'.join(map(str, gpu))}: what a call needs is compiled at the first"
            yield absent("pack", f"{text}; `gradkern pack build` compiles what is popular")


_REINSTALL = pip("install", "--force-reinstall", "--no-deps", "gradkern")


def check_margin() -> Iterator[Check]:
    """How many multiprocessors are left free, where a margin is set."""
    margin: Any = import_module("gradkern.cuda.margin")
    try:
        left: int | None = margin.asked()
    except GradkernError as error:
        yield problem("SM margin", str(error), f"unset {margin.VARIABLE}")
        return
    if left:
        text = f"{left} multiprocessors are left free for others' kernels: {margin.VARIABLE}"
        yield fine("SM margin", text, multiprocessors=left)


def check_provider(provider: str, compiling: bool = False) -> Check:
    """Whether a provider computes a small example. On a GPU it is computed only where its kernel needs no compilation,
    unless `compiling`.
    """
    title = f"{provider} provider"
    start = time.perf_counter()
    try:
        computed = _compute(provider, compiling)
    except Exception as error:  # whatever happens is the finding
        return problem(title, f"fails: {type(error).__name__}: {error}")
    if computed is None:
        return absent(title, "no operator has it in this version")
    if not computed:
        return absent(
            title, "not tried: no kernel is compiled yet; `gradkern doctor --compile` compiles one and runs it"
        )
    return fine(title, f"computes {computed} in {time.perf_counter() - start:.2f} s")


def begin_check(provider: str, compiling: bool) -> Callable[[], Check]:
    """Begin `check_provider` in a process of its own, beside what this one does; what waits for the finding."""
    command = [sys.executable, "-c", _BESIDE, json.dumps([sys.path, provider, compiling])]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except (OSError, TypeError):  # Python is inside another program
        return partial(check_provider, provider, compiling)
    return partial(_finding, process, f"{provider} provider")


def _finding(process: subprocess.Popen[str], title: str) -> Check:
    out, said = process.communicate()
    if process.returncode:
        last = (said.strip().splitlines() or ["it says nothing"])[-1]
        return problem(title, f"fails: its process ends with exit code {process.returncode}: {last}")
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr.write(said)
    return Check(**json.loads(out.splitlines()[-1]))


# SciPy is hidden: Numba imports it with its first function, half a second for a BLAS that no kernel calls.
_BESIDE = (
    "import json, sys; sys.path[:], provider, compiling = json.loads(sys.argv[1]); sys.modules['scipy'] = None; "
    "from dataclasses import asdict; from gradkern.cli.doctor import check_provider; "
    "print(json.dumps(asdict(check_provider(provider, compiling))))"
)


def check_self(answer: Driver | None) -> Iterator[Check]:
    """The kernels of the first GPU against the CPU provider."""
    if not (answer and answer.gpus):
        yield absent("self-test", "there is no GPU whose kernels could be compared with the CPU provider")
        return
    self_test: Any = import_module("gradkern.cli.self_test")
    yield from self_test.check_kernels()


_EXAMPLES = {"cpu": "BatchNormalizationGradFromSums", "cuda": "LayerNormalizationGrad"}
"""What is soonest compiled, and what makes no search."""


def _compute(provider: str, compiling: bool) -> str | None:
    """The operator and the kernel that were computed; "" where it would have to be compiled, None where no operator has
    the provider.
    """
    import numpy as np

    import gradkern
    from gradkern.arrays.kind import dtype_of
    from gradkern.contract.schema import shape_of

    having = [name for name, each in gradkern.operators().items() if provider in each.providers]
    if not having:
        return None
    name = _EXAMPLES.get(provider, having[0])
    operator = gradkern.operators()[name]
    example, types = (operator.benchmarks if provider == "cuda" else operator.examples)[0], operator.combinations[0]
    if provider == "cuda" and not compiling and not _is_compiled(name, example, types):
        return ""
    given = operator.inputs_of(example.axes, example.attributes)
    inputs = [np.ones(shape_of(each.shape, example.axes), dtype_of(types[each.type])) for each in given]
    attributes: dict[str, Any] = dict(example.attributes)
    prepare: Any = gradkern.prepare  # its stubs know operators by their names
    plan = prepare(name, *inputs, provider=provider, **attributes)
    outputs = [each for each in plan(*inputs) if each is not None]
    if not all(np.isfinite(each).all() for each in outputs):
        raise ArithmeticError(f"{name}: the results of finite inputs are not finite")
    return f"{name} ({plan.kernel})"


def _is_compiled(name: str, example: Any, types: Mapping[str, str]) -> bool:
    """Whether all that a call runs on the first GPU is in a pack or in the cache."""
    from gradkern.cli.sizes import Wanted, find

    device: Any = import_module("gradkern.cuda.device").get_device(0)
    with import_module("gradkern.cuda.dry_run").dry_run(device) as dry:
        Wanted(name, find(name), example, types).dry_plan("cuda")
    return not import_module("gradkern.cuda.compile_ahead").missing(dry.specs)


def _lines(checks: list[Check]) -> Iterator[str]:
    """One line for each finding, and one with the remedy."""
    width = max(len(each.name) for each in checks)
    marks = {"fine": "ok", "absent": "-", "problem": "!!"}
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for each in checks:
        mark = marks[each.status].ljust(2)
        if color and each.status != "absent":
            mark = f"\x1b[{32 if each.status == 'fine' else 31}m{mark}\x1b[0m"
        first, *more = wrapped(" " * (width + 7), each.text or "-", width + 7)
        yield f"  {mark} {each.name.ljust(width)}  {first.lstrip()}"
        yield from more
        if each.remedy:  # one line, to copy
            yield f"     {''.ljust(width)}  mend it: {each.remedy}"
    wrong = sum(each.status == "problem" for each in checks)
    yield f"{wrong} problem{'' if wrong == 1 else 's'} found" if wrong else "all is well"
