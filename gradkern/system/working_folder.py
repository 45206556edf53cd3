"""Compilation where the process's working folder is no more, as that of a job whose scratch folder was removed."""

from __future__ import annotations

from typing import Any


def do_without(place: Any) -> None:
    """Let a class of Numba's (ir.Loc), the places in sources that its errors name, do without a working folder.

    Numba names each file as seen from that folder, in errors too that it raises and catches itself in every
    compilation. Without one it names the file as it is.
    """
    seen_from_folder = place._get_path

    def path(self: Any) -> str:
        try:
            return seen_from_folder(self)
        except FileNotFoundError:  # of os.getcwd
            return self.filename

    place._get_path = path
