#!/usr/bin/env python3
"""Execute the notebooks of tools/examples, and write what they print into them.

tools/notebooks.py [NAME ...]     # by default all
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent / "examples"


def main() -> int:
    """Execute those that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem in (parser.parse_args().names or [path.stem]):
            book = executed(path)
            path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")
    return 0


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook, executed, without what differs from run to run. Raises CellExecutionError."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    book.metadata = {"kernelspec": book.metadata["kernelspec"]}
    for cell in book.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            shown = (each for each in cell.outputs if each.get("data", {"text/plain": "-"})["text/plain"])
            cell.outputs = [each for each in shown if each.get("name") != "stderr"]
    return book


if __name__ == "__main__":
    sys.exit(main())
