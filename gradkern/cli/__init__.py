"""The `gradkern` command: its command line, and its exit codes. Each command is a module of this package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from gradkern import __version__
from gradkern.errors import GradkernError, RegistryError, nearest
from gradkern.system.json_text import loads

__all__ = ["DONE", "FAILED", "JSON_SCHEMA", "main", "parser"]

JSON_SCHEMA = 3
DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 3, 130
CODES = "exit codes: 0 done, 1 {}, 2 the command line is wrong, 3 registry.yaml is refused, 130 interrupted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own. Returns the exit code."""
    try:
        options = parser().parse_args(arguments)
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
            return _failed("gradkern: standard output is closed", FAILED)
        code = import_module(f"gradkern.cli.{options.module}").run(options)
        sys.stdout.flush()
        return code
    except RegistryError as error:
        return _failed(error, REFUSED)
    except GradkernError as error:
        return _failed(error, FAILED)
    except BrokenPipeError:  # the reader of our pipe has left
        _drop_output()
        return DONE
    except OSError as error:  # commands take care of their files: what has no name is the output
        if error.filename is None:
            _drop_output()
            return _failed(f"gradkern: the output cannot be written: {error.strerror or error}", FAILED)
        return _failed(f"gradkern: {error}", FAILED)
    except KeyboardInterrupt:
        return _failed("gradkern: interrupted", INTERRUPTED)


def _failed(reason: object, code: int) -> int:
    print(reason, file=sys.stderr)
    return code


def _drop_output() -> None:
    """What is still buffered must not fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Refuses what it does not know itself, with its own usage: argparse leaves that to the parser of all commands."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found, strange = super().parse_known_args(args, namespace)
        if strange:
            options = [each for action in self._actions for each in action.option_strings]
            hint = nearest(strange[0], options) if strange[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(strange)}{hint}")
        return found, strange


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="gradkern",
        description="Neural-network gradients on NVIDIA GPUs and CPUs.",
        epilog=CODES.format("nothing matches, or something is wrong or has failed"),
    )
    parser.add_argument("--version", action="version", version=f"gradkern {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, module: str, text: str, one: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.epilog = CODES.format(one)
        added.set_defaults(module=module)
        return added

    _ops(command("ops", "ops", "list the operators, or show some in full", "nothing matches"))
    doctor = command("doctor", "doctor", "check that this machine is fit for gradkern", "a problem was found")
    _json(doctor)
    doctor.add_argument(
        "--self-test", action="store_true", help="compare every operator on the GPU with the CPU; it takes a minute"
    )
    doctor.add_argument(
        "--compile", action="store_true", help="compile a kernel to try the GPU with, where none is compiled yet"
    )
    _explain(command("explain", "explain", "show how a call would be computed", "the call is refused"))
    _cache(
        command(
            "cache",
            "caches",
            "show, check, remove or carry over the compiled kernels and results of searches kept on disk",
            "an entry is damaged, or something failed",
        )
    )
    _pack(
        command(
            "pack",
            "packs",
            "build, install and show packs, files of kernels compiled ahead of time",
            "a pack is not used, or something failed",
        )
    )
    _warmup(command("warmup", "warmup", "compile and search kernels ahead of time", "something failed"))
    _run(command("run", "graphs", "compute an ONNX model, such as a training graph of ONNX Runtime", "it is refused"))
    completion = command("completion", "completion", "print a shell's completion script", "shtab is not installed")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='bash: eval "$(gradkern completion bash)"')
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON (schema {JSON_SCHEMA})")


def _ops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="OP", help="operators to show in full; without any, all are listed")
    _json(parser)
    parser.add_argument("--provider", metavar="P", help="only operators that this provider computes")
    parser.add_argument("--types", metavar="T", help="only operators that take data of this type, such as bfloat16")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operator", metavar="OP", help="the operator's name")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--axes",
        type=_mapping,
        metavar="JSON",
        help="""sizes of the axes that `gradkern ops OP` names: '{"rows": [4096], "columns": [1024]}'""",
    )
    size.add_argument(
        "--example",
        type=int,
        metavar="N",
        help="a size of the registry: examples, then benchmarks, from 1 (the default)",
    )
    parser.add_argument(
        "--types",
        default="float32",
        metavar="T",
        help="type of the data, or types of the variables that `gradkern ops OP` names: G=bfloat16,V=float32"
        " (%(default)s)",
    )
    parser.add_argument("--attributes", type=_mapping, default={}, metavar="JSON", help="attributes of the call")
    parser.add_argument("--outputs", metavar="A,B", help="outputs to compute; by default those the contract says")
    parser.add_argument(
        "--strides", type=_mapping, default={}, metavar="JSON", help="of inputs that are not in C order, in bytes"
    )
    parser.add_argument(
        "--policy", type=_mapping, default={}, metavar="JSON", help="""how to choose: '{"allow_tf32": false}'"""
    )
    parser.add_argument("--provider", metavar="P", help="cpu or cuda; by default the best that can run here")
    _json(parser)


def _actions(
    parser: argparse.ArgumentParser, about: Mapping[str, str]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of each action of a command, by what the action does."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text in about.items():
        yield (
            name,
            actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=parser.epilog),
        )


def _cache(parser: argparse.ArgumentParser) -> None:
    about = {
        "info": "say where kernels and searches are, how many, and how large",
        "verify": "read everything and check it",
        "clear": "remove all kernels, results of searches and installed packs, after asking on a terminal",
        "export": "write the results of all searches to a file, for machines with the same GPU and libraries",
        "import": "add the results of searches in such a file to this machine's own, which stay",
    }
    for name, action in _actions(parser, about):
        _json(action)
        if name == "verify":
            action.add_argument("--repair", action="store_true", help="remove the damaged ones")
        if name == "clear":
            action.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
            action.add_argument("--yes", action="store_true", help="do not ask")
        if name in ("export", "import"):
            action.add_argument("file", metavar="FILE", help="the results of searches")


def _pack(parser: argparse.ArgumentParser) -> None:
    about = {
        "build": "compile the kernels of popular calls for an architecture; it takes minutes, and no GPU",
        "install": "copy a pack into the cache; what does not fit this version is refused",
        "info": "show the packs of the package and of the cache, and why one is not used",
    }
    for name, action in _actions(parser, about):
        if name == "build":
            action.add_argument(
                "output", nargs="?", metavar="FILE", help="the pack, or a folder for it; by default it is installed"
            )
            action.add_argument(
                "--arch",
                metavar="A",
                help="architectures, with commas between: sm_90, or compute_90 for PTX, which newer GPUs take; by"
                " default the GPU's",
            )
            action.add_argument(
                "--jobs", type=_positive, metavar="N", help="compile so many at once; by default one a core"
            )
            action.add_argument(
                "--calls", metavar="FILE", help="calls as of `gradkern warmup --calls`, in place of the popular ones"
            )
            action.add_argument(
                "--refresh",
                action="store_true",
                help="build only if the pack that is there is out of date, and keep those of its kernels that are not",
            )
        if name == "install":
            action.add_argument("file", metavar="FILE", help="the pack, made by `gradkern pack build`")
        if name == "info":
            _json(action)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def _warmup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operators", nargs="*", metavar="OP", help="operators to warm; by default all")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--examples", action="store_true", help="the registry's small sizes (the default)")
    sizes.add_argument("--benchmarks", action="store_true", help="the registry's large sizes")
    sizes.add_argument(
        "--calls",
        metavar="FILE",
        help="""a file of calls, or - for standard input, one a line; op and axes must be there:
        {"op": ..., "axes": {...}, "types": ..., "attributes": {...}, "inputs": [...], "outputs": [...],
        "strides": {...}, "alignment": {...}, "policy": {...}}; gradkern.recorded() gives the calls of a run in this
        form""",
    )
    parser.add_argument(
        "--types",
        default="float32",
        metavar="T",
        help="data types of the registry's sizes, with commas between, or all (%(default)s)",
    )
    parser.add_argument("--provider", metavar="P", help="by default every provider that can run here")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="the model, an .onnx file")
    parser.add_argument(
        "--inputs",
        required=True,
        metavar="FILE",
        help="an .npz file with the inputs by name; the arrays of a sequence are NAME.0, NAME.1 and so on",
    )
    parser.add_argument(
        "--outputs",
        required=True,
        metavar="FILE",
        help="the .npz file to write: the outputs, and the inputs that the graph updates in place",
    )
    parser.add_argument("--provider", default="cpu", metavar="P", help="cpu, or cuda, with PyTorch (%(default)s)")
    _json(parser)


def _mapping(text: str) -> dict[str, Any]:
    shown = repr(text if len(text) < 200 else f"{text[:200]}...")
    try:
        value = loads(text)
    except ValueError as error:
        text = f'{shown} is not JSON: {error}; expected an object, such as {{"name": value}}'
        raise argparse.ArgumentTypeError(text) from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{shown} is not a JSON object")
    return cast(dict[str, Any], value)
