"""Docstrings as the site shows them: lines of a name and its meaning are the rows of a table, examples are code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ITEM = re.compile(r"([A-Za-z_][\w, ]*?)(?:  +|: )(\S.*)$")


class Definitions(griffe.Extension):
    """What mkdocstrings reads docstrings by."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(_shown, obj.docstring.value.split("\n\n")))


def _shown(paragraph: str) -> str:
    """A paragraph of such lines, with lines that go on indented, as a table; any other as it is."""
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    rows: list[tuple[str, str]] = []
    for line in paragraph.strip("\n").splitlines():
        item = _ITEM.match(line)
        if item and "  " in line and not line.startswith(" "):
            rows.append((item[1], item[2]))
        elif rows and line.startswith("  "):
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {line.strip()}"
        else:
            return paragraph
    if not rows:
        return paragraph
    escaped = (f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    return "\n".join(["| name | meaning |", "| --- | --- |", *escaped])
