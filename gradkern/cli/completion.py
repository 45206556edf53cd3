"""`gradkern completion`: the script that lets a shell complete commands, options, and operators' names, by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from gradkern.cli import DONE, parser
from gradkern.contract import registry
from gradkern.errors import GradkernError
from gradkern.system.packages import pip


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise GradkernError(
            f"gradkern completion: shtab is not installed: {pip('install', 'gradkern[completion]')}"
        ) from error
    whole = parser()
    operators = registry.operators()
    providers = dict.fromkeys(each for operator in operators.values() for each in operator.providers)
    types = dict.fromkeys(each for operator in operators.values() for each in operator.data_types)
    known = {"OP": [*operators], "P": [*providers], "T": [*types]}
    for action in _actions(whole):
        if action.metavar == "FILE":
            action.complete = shtab.FILE
        elif action.metavar in known:
            action.choices = known[action.metavar]
    print(shtab.complete(whole, options.shell))
    return DONE


def _actions(parser: Any) -> Iterator[Any]:
    """Every argument of the command and of those below it."""
    for action in parser._actions:  # argparse has no public way to them, and shtab takes this one
        yield action
        if action.nargs == argparse.PARSER:
            for each in dict.fromkeys(action.choices.values()):
                yield from _actions(each)
