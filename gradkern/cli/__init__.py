"""The `gradkern` command: its command line, and its exit codes. Each command is a module of this package."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from gradkern import __version__
from gradkern.errors import GradkernError, RegistryError, nearest
from gradkern.system.json_text import loads

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
        added = _subcommand(commands, name, text, CODES.format(one))
        added.set_defaults(module=module)
        return added

    _ops(command("ops", "ops", "list the operators, or show some in full", "nothing matches"))
    doctor = command("doctor", "doctor", "check that this machine is fit for gradkern", "a problem was found")
    _json(doctor)
    _add(doctor, "--self-test", "compare every operator on the GPU with the CPU; it takes a minute")
    _add(doctor, "--compile", "compile a kernel to try the GPU with, where none is compiled yet")
    _explain(command("explain", "explain", "show how a call would be computed", "the call is refused"))
    text = "show, check, remove or carry over the compiled kernels and results of searches kept on disk"
    _cache(command("cache", "caches", text, "an entry is damaged, or something failed"))
    text = "build, install and show packs, files of kernels compiled ahead of time"
    _pack(command("pack", "packs", text, "a pack is not used, or something failed"))
    _warmup(command("warmup", "warmup", "compile and search kernels ahead of time", "something failed"))
    _run(command("run", "graphs", "compute an ONNX model, such as a training graph of ONNX Runtime", "it is refused"))
    completion = command("completion", "completion", "print a shell's completion script", "shtab is not installed")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help='bash: eval "$(gradkern completion bash)"')
    return parser


def print_json(**facts: Any) -> None:
    """What a command found, as a program reads it."""
    print(json.dumps({"schema": JSON_SCHEMA, "gradkern": __version__, **facts}, indent=2))


def _subcommand(commands: Any, name: str, text: str, epilog: str | None) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=epilog)


def _add(parser: Any, name: str, text: str, metavar: str | None = None, **settings: Any) -> None:
    """An argument, or an option, with a value of a kind; without one, a flag."""
    if metavar is None:
        parser.add_argument(name, action="store_true", help=text)
    else:
        parser.add_argument(name, metavar=metavar, help=text, **settings)


def _json(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--json", f"print JSON (schema {JSON_SCHEMA})")


def _ops(parser: argparse.ArgumentParser) -> None:
    _add(parser, "name", "operators to show in full; without any, all are listed", "OP", nargs="*")
    _json(parser)
    _add(parser, "--provider", "only operators that this provider computes", "P")
    _add(parser, "--types", "only operators that take data of this type, such as bfloat16", "T")


def _explain(parser: argparse.ArgumentParser) -> None:
    _add(parser, "operator", "the operator's name", "OP")
    size = parser.add_mutually_exclusive_group()
    text = """sizes of the axes that `gradkern ops OP` names: '{"rows": [4096], "columns": [1024]}'"""
    _add(size, "--axes", text, "JSON", type=_mapping)
    text = "a size of the registry: examples, then benchmarks, from 1 (the default)"
    _add(size, "--example", text, "N", type=int)
    text = (
        "type of the data, or types of the variables that `gradkern ops OP` names: G=bfloat16,V=float32 (%(default)s)"
    )
    _add(parser, "--types", text, "T", default="float32")
    _add(parser, "--attributes", "attributes of the call", "JSON", type=_mapping, default={})
    _add(parser, "--outputs", "outputs to compute; by default those the contract says", "A,B")
    _add(parser, "--strides", "of inputs that are not in C order, in bytes", "JSON", type=_mapping, default={})
    _add(parser, "--policy", """how to choose: '{"allow_tf32": false}'""", "JSON", type=_mapping, default={})
    _add(parser, "--provider", "cpu or cuda; by default the best that can run here", "P")
    _json(parser)


def _actions(
    parser: argparse.ArgumentParser, about: Mapping[str, str]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of each action of a command, by what the action does."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text in about.items():
        yield name, _subcommand(actions, name, text, parser.epilog)


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
            _add(action, "--repair", "remove the damaged ones")
        if name == "clear":
            _add(action, "--dry-run", "say what would be removed, and remove nothing")
            _add(action, "--yes", "do not ask")
        if name in ("export", "import"):
            _add(action, "file", "the results of searches", "FILE")


def _pack(parser: argparse.ArgumentParser) -> None:
    about = {
        "build": "compile the kernels of popular calls for an architecture; it takes minutes, and no GPU",
        "install": "copy a pack into the cache; what does not fit this version is refused",
        "info": "show the packs of the package and of the cache, and why one is not used",
    }
    for name, action in _actions(parser, about):
        if name == "build":
            _add(action, "output", "the pack, or a folder for it; by default it is installed", "FILE", nargs="?")
            text = "architectures, with commas between: sm_90, or compute_90 for PTX, which newer GPUs take; by default"
            _add(action, "--arch", f"{text} the GPU's", "A")
            _add(action, "--jobs", "compile so many at once; by default one a core", "N", type=_positive)
            text = "calls as of `gradkern warmup --calls`, in place of the popular ones"
            _add(action, "--calls", text, "FILE")
            text = "build only if the pack that is there is out of date, and keep those of its kernels that are not"
            _add(action, "--refresh", text)
        if name == "install":
            _add(action, "file", "the pack, made by `gradkern pack build`", "FILE")
        if name == "info":
            _json(action)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def _warmup(parser: argparse.ArgumentParser) -> None:
    _add(parser, "operators", "operators to warm; by default all", "OP", nargs="*")
    sizes = parser.add_mutually_exclusive_group()
    _add(sizes, "--examples", "the registry's small sizes (the default)")
    _add(sizes, "--benchmarks", "the registry's large sizes")
    text = """a file of calls, or - for standard input, one a line; op and axes must be there:
        {"op": ..., "axes": {...}, "types": ..., "attributes": {...}, "inputs": [...], "outputs": [...],
        "strides": {...}, "alignment": {...}, "policy": {...}}; gradkern.recorded() gives the calls of a run in this
        form"""
    _add(sizes, "--calls", text, "FILE")
    text = "data types of the registry's sizes, with commas between, or all (%(default)s)"
    _add(parser, "--types", text, "T", default="float32")
    _add(parser, "--provider", "by default every provider that can run here", "P")


def _run(parser: argparse.ArgumentParser) -> None:
    _add(parser, "model", "the model, an .onnx file", "FILE")
    text = "an .npz file with the inputs by name; the arrays of a sequence are NAME.0, NAME.1 and so on"
    _add(parser, "--inputs", text, "FILE", required=True)
    text = "the .npz file to write: the outputs, and the inputs that the graph updates in place"
    _add(parser, "--outputs", text, "FILE", required=True)
    _add(parser, "--provider", "cpu, or cuda, with PyTorch (%(default)s)", "P", default="cpu")
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
