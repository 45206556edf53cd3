"""The source files that a kernel's machine code depends on: its own module, and all of gradkern that it imports; of a
module of another package, also what it imports of that package.

Imports are found in the text, as Python's own parser would take a tenth of a second in every process; a test holds this
against the parser. What a module imports inside a function counts; what it imports from a name put together does not.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).parents[2]  # the folder that the package lies in


@cache
def digest(*modules: str, root: Path = _ROOT) -> str:
    """The SHA-256 of the names and contents of all files that these modules depend on: the same on every machine."""
    total = hashlib.sha256()
    for name in closure(*modules, root=root):
        content = _file(name, root).read_bytes()
        total.update(f"{name} {len(content)} ".encode() + content)
    return total.hexdigest()


def closure(*modules: str, root: Path = _ROOT) -> list[str]:
    """These modules and those of gradkern that they import, directly or not. A parent package that nobody imports
    anything from is not among them.
    """
    found: set[str] = set()
    ahead = list(modules)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += _imports(name, root)
    return sorted(found)


@cache
def _imports(module: str, root: Path) -> tuple[str, ...]:
    found: list[str] = []
    ours = "|".join(dict.fromkeys(("gradkern", module.partition(".")[0])))
    line = rf"^[ \t]*(?:from[ \t]+((?:{ours})\b[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|.+)|import[ \t]+((?:{ours})\b.+))"
    for package, names, plain in re.findall(line, _file(module, root).read_text(), re.M):
        if plain:
            found += re.findall(rf"(?:{ours})\b[\w.]*", plain)
        for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", names)):
            submodule = f"{package}.{name}"
            found.append(submodule if _file(submodule, root).is_file() else package)
    return tuple(dict.fromkeys(found))


def _file(module: str, root: Path) -> Path:
    package = module.partition(".")[0]
    if not (root / package).is_dir():
        places = getattr(find_spec(package), "submodule_search_locations", None)
        root = Path(next(iter(places))).parent if places else root
    path = root.joinpath(*module.split("."))
    init = path / "__init__.py"  # an older version's folder may have left its byte code beside the module
    return init if init.is_file() else path.with_suffix(".py")
