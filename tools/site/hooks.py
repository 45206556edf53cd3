"""What the site shows besides tools/docs: the README as its first page, the measurements, a page for each operator made
from its contract and its family's docstring, one for each example and notebook, an API reference, how to contribute and
the changelog.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import gradkern
from gradkern.cli.ops import sections
from gradkern.contract.schema import Operator

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "tools" / "results").glob("*.md"))
EXAMPLES = sorted(each for each in (ROOT / "tools" / "examples").iterdir() if each.suffix in (".py", ".ipynb"))
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    **{f"tools/results/{each.name}": f"results/{each.name}" for each in RESULTS},
    **{f"tools/docs/{each.name}": each.name for each in (ROOT / "tools" / "docs").glob("*.md")},
    **{f"tools/examples/{each.name}": f"examples/{each.stem}.md" for each in EXAMPLES},
}
"""Where a page of the checkout is on the site."""
STYLE = """
.md-grid { max-width: 80rem }  /* tables of ten columns */
.md-typeset td code { word-break: normal }
.md-typeset div[style*="overflow-x"] { overflow-x: visible !important }  /* tables scroll by themselves here */
"""
PACKAGES = ("gradkern", "gradkern.torch", "gradkern.jax", "gradkern.onnx")
OWN_MEMBERS = {
    "Acceleration": ("    options: {members: [undo]}",),
    "Operator": ("    options: {members: false}",),
    "Prepared": ("    options: {members: [__call__]}",),
}
"""Of classes with members that other modules of the package use: those that users do."""
SPELLED = {
    "cupy": "CuPy",
    "face": "Face",
    "jax": "JAX",
    "numpy": "NumPy",
    "onnx": "ONNX",
    "pytorch": "PyTorch",
    "timm": "timm",
    "torch": "torch",
    "trainer": "Trainer",
    "unet": "UNet",
}
"""In titles of examples, words that are not written as file names are."""
_LINK = re.compile(r"(!?)\[([^]\[]*(?:\[[^]]*\][^]\[]*)*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    for source, uri in MOVED.items():
        if not source.startswith(("tools/docs/", "tools/examples/")):
            files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for plot in (ROOT / "tools" / "results").glob("*.png"):
        files.append(File.generated(config, f"results/{plot.name}", abs_src_path=str(plot)))
    for name, operator in gradkern.operators().items():
        files.append(File.generated(config, f"operators/{name}.md", content=operator_page(name, operator)))
    for path in EXAMPLES:
        page = notebook_page(path) if path.suffix == ".ipynb" else example_page(path)
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page))
    for package in PACKAGES:
        files.append(File.generated(config, f"api/{package}.md", content="\n".join(reference(package))))
    files.append(File.generated(config, "wide.css", content=STYLE))
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if title == "Operators":
                pages += [f"operators/{name}.md" for name in gradkern.operators()]
            elif title == "Examples":
                pages += [f"examples/{each.stem}.md" for each in sorted(EXAMPLES, key=lambda each: each.suffix)]
            elif title == "Measurements":
                pages += ["results/README.md", *(f"results/{each.name}" for each in RESULTS if each.stem != "README")]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between pages as the site has them; of a link to another file of the checkout, its text."""
    here = {uri: source for source, uri in MOVED.items()}.get(page.file.src_uri)
    if here is None:
        return markdown

    def moved(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        if "://" in target or image:
            return link[0]
        there = (ROOT / here).parent.joinpath(target).resolve()
        uri = MOVED.get(there.relative_to(ROOT).as_posix())
        up = "../" * page.file.src_uri.count("/")
        return f"[{text}]({up}{uri}{anchor or ''})" if uri else text

    return _LINK.sub(moved, markdown)


def operator_page(name: str, operator: Operator) -> str:
    """The contract of an operator, and what the docstring of its family says."""
    family = import_module(f"gradkern.ops.{operator.family}").__doc__ or ""
    lines = [f"# {name}", "", operator.doc, "", f"Domain `{operator.domain}`, since version {operator.since_version}."]
    for title, rows in sections(operator).items():
        if rows:
            width = max(sum(map(bool, row)) for row in rows)
            heads = {1: ("",), 2: ("name", ""), 3: ("name", "may be", "")}[width]
            lines += ["", f"## {title.capitalize()}", "", f"| {' | '.join(heads)} |", "| --- " * width + "|"]
            lines += [
                "| " + " | ".join([f"`{first}`", *map(_cell, filter(None, more))]) + " |" for first, *more in rows
            ]
    lines += ["", "## Mathematics and sources", "", "```text", family.strip(), "```"]
    return "\n".join(lines) + "\n"


def example_page(path: Path) -> str:
    """An example, whose docstring is a title and how to run it."""
    text = path.read_text(encoding="utf-8")
    title, _, rest = (ast.get_docstring(ast.parse(text)) or path.stem).partition("\n")
    code = text[text.index('"""', 3) + 3 :].strip()
    words = [SPELLED.get(word, word) for word in path.stem.split("_")]
    name = " ".join(words if words[0] in SPELLED.values() else [words[0].capitalize(), *words[1:]])
    return f"# {name}\n\n{title}\n\n```text\n{rest.strip()}\n```\n\n```python\n{code}\n```\n"


def notebook_page(path: Path) -> str:
    """An executed notebook: its text, its code, and what that printed."""
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            html, text = ("".join(data.get(kind, "")).strip() for kind in ("text/html", "text/plain"))
            parts.append(f"<div>{html}</div>" if html else f"```text\n{text}\n```" if text else "")
    return "\n\n".join(filter(None, parts)) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def reference(package: str) -> Iterator[str]:
    """The public names of a package as their docstrings describe them: functions, classes, errors."""
    yield from (f"# {package}", "")
    files = sorted((ROOT / package.replace(".", "/")).glob("__init__.py*"))  # where there is a stub, it has the names
    tree = ast.parse("".join(each.read_text(encoding="utf-8") for each in files))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    where = {(name.asname or name.name): f"{each.module}.{name.name}" for each in imports for name in each.names}
    listed = {ast.unparse(each.targets[0]): each.value for each in tree.body if isinstance(each, ast.Assign)}
    later: dict[str, str] = ast.literal_eval(listed["_LATER"]) if "_LATER" in listed else {}
    where |= {name: f"{package}.{module}.{name}" for name, module in later.items()}
    public: list[str] = [each.name for node in imports for each in node.names if each.asname == each.name]
    public = ast.literal_eval(listed["__all__"]) if isinstance(listed["__all__"], ast.List) else public
    names = sorted(public, key=lambda name: (name.endswith("Error"), name[0].isupper(), name.lower()))
    for name in names:
        if name in where:
            yield from (f"::: {where[name]}", *OWN_MEMBERS.get(name, ()), "")
