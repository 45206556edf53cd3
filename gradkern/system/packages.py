"""The packages that are installed, and whether they are what pyproject.toml asks for."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

EXTRAS = {12: "cu12", 13: "cu13"}
"""The extra for each major version of CUDA."""
_NAME = re.compile(r"[^\w.-].*")  # what follows a requirement's name
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that gradkern needs, from pyproject.toml; `extra` is "" for one that it always needs."""

    text: str
    extra: str = ""

    @property
    def name(self) -> str:
        return _NAME.sub("", self.text).lower().replace("_", "-")

    def takes(self, version: str) -> bool:
        """Whether a version is in the required range; a pre-release counts as the release it leads to."""
        from packaging.requirements import Requirement as Parsed  # here: `gradkern doctor` tells where it is missing
        from packaging.version import Version

        return Parsed(self.text).specifier.contains(Version(version).base_version)


def in_checkout() -> bool:
    """Whether this gradkern is a checkout's, and not an installed copy."""
    return _PROJECT.exists()


def requirements() -> tuple[Requirement, ...]:
    """What gradkern needs: from pyproject.toml in a checkout, else from the installed package."""
    if in_checkout():
        import tomllib

        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"].items()
        every = [Requirement(text) for text in project["dependencies"]]
        return (*every, *(Requirement(text, extra) for extra, texts in extras for text in texts))
    return tuple(_of_metadata(text) for text in metadata.requires("gradkern") or ())


def _of_metadata(text: str) -> Requirement:
    text, _, marker = text.partition(";")
    extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)
    return Requirement(text.strip(), extra.group(1) if extra else "")


def of_extra(extra: str) -> list[Requirement]:
    """What one extra needs, or with "" what is always needed; an extra that it names is resolved."""
    found: list[Requirement] = []
    for each in requirements():
        if each.extra == extra:
            inner = re.match(r"gradkern\[([\w-]+)\]", each.text)
            found += of_extra(inner.group(1)) if inner else [each]
    return found


def installed(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pip(command: str, *words: str) -> str:
    """A command line of pip."""
    return " ".join(["pip", command, *(shlex.quote(each) for each in words)])


def libraries(name: str, stem: str = r"\w+") -> list[metadata.PackagePath]:
    """The shared libraries in an installed package, smallest first; of one name: libSTEM.so.9, STEM64_9.dll."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return []
    pattern = re.compile(rf"lib{stem}\.so(\.\d+)*|{stem}64_\w+\.dll")
    return sorted(
        (each for each in files if pattern.fullmatch(each.name)), key=lambda each: (each.size or 0, each.name)
    )


def damaged(name: str) -> list[str]:
    """The shared libraries of an installed package that are missing, or not what the package put there.

    All are compared by size, the smallest also by the hash in the package's RECORD: to read them all takes seconds.
    """
    found: list[str] = []
    for index, each in enumerate(libraries(name)):
        path = Path(str(each.locate()))
        same = path.exists() and each.size in (None, path.stat().st_size)
        if not same or (index == 0 and each.hash is not None and _digest(path, each.hash.mode) != each.hash.value):
            found.append(each.name)
    return sorted(found)


def _digest(path: Path, mode: str) -> str:
    with path.open("rb") as file:
        return base64.urlsafe_b64encode(hashlib.file_digest(file, mode).digest()).rstrip(b"=").decode()
