"""`gradkern run`: an ONNX model computed on arrays from a file, and what computed each node, how fast."""

from __future__ import annotations

import argparse
import io
import zipfile
import zlib
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradkern.cli import DONE, print_json
from gradkern.cli.ops import require_known
from gradkern.errors import ArgumentError, GradkernError
from gradkern.system.cache_files import write_named
from gradkern.system.packages import pip
from gradkern.system.progress import drawn
from gradkern.system.providers import unavailable

if TYPE_CHECKING:
    from gradkern.onnx import Session


def run(options: argparse.Namespace) -> int:
    """Check the model, compute it, and write the outputs and the inputs that it updates."""
    try:
        from gradkern import onnx
    except ImportError as error:
        raise GradkernError(
            f"gradkern run: {error.name} is not installed: {pip('install', 'gradkern[onnx]')}"
        ) from error
    require_known("provider", options.provider, ("cpu", "cuda"))
    if options.provider == "cuda" and (reason := unavailable("cuda")):
        raise GradkernError(f"gradkern run: {reason}")
    target = Path(options.outputs)
    if target.is_dir() or not target.parent.is_dir():
        what = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise ArgumentError(f"{target} cannot be written: {what}")
    for what, name in (("model", options.model), ("inputs", options.inputs)):
        if target.exists() and Path(name).exists() and target.samefile(name):
            raise ArgumentError(f"{target} is the file of the {what}; name another for the outputs")
    session = onnx.load(options.model)
    inputs = _grouped(session, _read(Path(options.inputs)), options.provider == "cuda")
    with drawn("computing", len(session.report())) as draw:
        done = count()
        outputs = session.run(inputs, synchronize=True, progress=lambda name: draw(name, next(done)))
    from gradkern.onnx.arrays import to_host

    updated = {name: inputs[name] for name in session.updated if name in inputs}
    results = {name: to_host(value) for name, value in _flat({**updated, **outputs}).items()}
    try:
        write_named(target, _packed(results))
    except OSError as error:
        raise GradkernError(f"{target} cannot be written: {error.strerror or error}") from error
    report = session.report()
    if options.json:
        shapes = {name: [str(value.dtype), *value.shape] for name, value in results.items()}
        print_json(outputs=shapes, nodes=report)
    else:
        print(report)
    return DONE


def _read(path: Path) -> dict[str, np.ndarray]:
    if path.is_file() and not zipfile.is_zipfile(path):
        raise ArgumentError(f"{path} is no .npz file of arrays")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return {name: each.view("bfloat16") if each.dtype.str == "|V2" else each for name, each in arrays.items()}
    except (ValueError, AttributeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ArgumentError(f"{path} is no .npz file of arrays: {error}") from error


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An .npz file. numpy.savez takes no array of the name `file`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return file.getvalue()


def _grouped(session: Session, arrays: Mapping[str, np.ndarray], on_gpu: bool) -> dict[str, Any]:
    """The inputs by name. NAME.0, NAME.1 and so on are the arrays of the sequence NAME."""
    inputs: dict[str, Any] = {}
    sequences: dict[str, dict[int, Any]] = {}
    for name, array in arrays.items():
        value = _moved(array) if on_gpu else array
        sequence, _, number = name.rpartition(".")
        if name in session.inputs or sequence not in session.inputs or not number.isdecimal():
            inputs[name] = value
        else:
            sequences.setdefault(sequence, {})[int(number)] = value
    for name, several in sequences.items():
        missing = next((at for at in range(len(several)) if f"{name}.{at}" not in arrays), None)
        if missing is not None:
            raise ArgumentError(f"array {name}.{missing} of the sequence {name} is missing")
    return inputs | {name: [several[at] for at in sorted(several)] for name, several in sequences.items()}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            flat |= {f"{name}.{at}": each for at, each in enumerate(cast(list[Any], value))}
        else:
            flat[name] = value
    return flat


def _moved(array: np.ndarray) -> Any:
    try:
        import torch
    except ImportError as error:
        raise GradkernError(f"gradkern run: on a GPU it needs PyTorch: {pip('install', 'torch')}") from error
    from gradkern.onnx.arrays import to_device

    return to_device(array, torch.device("cuda", torch.cuda.current_device()))
