"""The build hook that makes what a package index shows: the README with links that lead to the repository, and URLs.

GRADKERN_REPOSITORY, or GITHUB_REPOSITORY in a workflow, names the repository: https://github.com/OWNER/NAME. Without
either, as in an install from a checkout, links stay as they are and there are no URLs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^]\[]*(?:\[[^]]*\][^]\[]*)*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


class MetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = repository_url()
        if repository:
            text = with_absolute_links(text, repository, f"v{metadata['version']}")
            metadata["urls"] = urls(repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def repository_url() -> str | None:
    """The repository's address, where the environment names it."""
    named = os.environ.get("GRADKERN_REPOSITORY")
    if named:
        return named.rstrip("/").removesuffix(".git")
    of_workflow = os.environ.get("GITHUB_REPOSITORY")
    return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{of_workflow}" if of_workflow else None


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """The text with every link to a file of the checkout as a link to that file at the tag."""

    def absolute(link: re.Match[str]) -> str:
        image, shown, target = link.groups()
        return f"{image}[{shown}]({repository}/{'raw' if image else 'blob'}/{tag}/{target})"

    return _LINK.sub(absolute, text)


def urls(repository: str) -> dict[str, str]:
    """What the index shows beside the page."""
    pages = {"Documentation": "tree/main/tools/docs", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
    return {"Repository": repository, **{name: f"{repository}/{page}" for name, page in pages.items()}}
