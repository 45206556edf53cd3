"""In a notebook what takes long is shown in the cell's output, which is empty again at the end."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gradkern.system import notice

pytestmark = pytest.mark.thorough

CELL = """
import time
from gradkern.system import notice
from gradkern.system.progress import bar, progress

for number in bar("tuning", range(2), "layer {}".format):
    with notice.notice("nothing else draws beside a bar"):
        time.sleep(0.6)
with notice.notice("compiling"):
    time.sleep(0.6)
with progress("searching ConvGrad") as show:
    show("gemm")
"""


class Recorded(NotebookClient):
    """Keeps what is displayed, also where it is overwritten."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.nb.metadata.setdefault("shown", []).append(msg["content"]["data"])
        return super().process_message(msg, cell, cell_index)


def test_progress_is_shown_in_the_cell_and_taken_away() -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    Recorded(book, timeout=120, kernel_name="python3").execute()
    shown = [each["text/plain"] for each in book.metadata["shown"]]
    assert shown[0] == "tuning layer 0: 0 of 2"
    assert shown[1].startswith("tuning layer 1: 1 of 2, ")
    assert shown[2:] == ["", "compiling", "", "searching ConvGrad", "searching ConvGrad: gemm", ""]
    assert '<progress value="1" max="2">' in book.metadata["shown"][1]["text/html"]
    assert {each["data"]["text/plain"] for each in book.cells[0].outputs} == {""}


def test_outside_of_a_notebook_there_is_no_output() -> None:
    assert notice.in_notebook() is None
