"""Metadata that depends on where the repository lies: addresses, and README with links that work on a package index.

`VSEHUB_REPOSITORY` is the address of the repository on its forge (https://github.com/OWNER/NAME), which the release
workflow sets. Without it the package names no repository, and links to files of the repository become plain text. A
wheel that is built from an sdist repeats the sdist's metadata, whatever the variable says.
"""

import email
import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "VSEHUB_REPOSITORY"
# A link or a picture whose target is a path: no scheme, and no place on the same page.
_RELATIVE = re.compile(r"(?P<picture>!?)\[(?P<label>[^\]]*)\]\((?!\w+:|[#/])(?P<path>[^()\s]+)\)")


class Metadata(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict) -> None:
        """Add both to what pyproject.toml says. Raises ValueError if `VSEHUB_REPOSITORY` is not a web address."""
        root = Path(self.root)
        if (root / "PKG-INFO").is_file():
            sdist = email.message_from_string((root / "PKG-INFO").read_text(encoding="utf-8"))
            text = sdist.get_payload()
            urls = dict(line.split(", ", 1) for line in sdist.get_all("Project-URL", []))
        else:
            repository = os.environ.get(VARIABLE, "").rstrip("/")
            if repository and not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", repository):
                raise ValueError(f"{VARIABLE} is {repository!r}; expected an address such as https://HOST/OWNER/NAME")
            version = metadata["version"]
            text = linked((root / "README.md").read_text(encoding="utf-8"), repository, version)
            urls = self.config["urls"] | addresses(repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls


def addresses(repository: str, version: str) -> dict[str, str]:
    """The addresses of the repository's pages, at the tag of a version; none without a repository."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/tree/v{version}/docs",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def linked(text: str, repository: str, version: str) -> str:
    """Markdown whose relative links lead to the repository at the tag of a version.

    Without a repository a link becomes its label, and a picture is left out.
    """

    def replace(match: re.Match[str]) -> str:
        picture, label, path = match["picture"], match["label"], match["path"]
        if not repository:
            return "" if picture else label
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return _RELATIVE.sub(replace, text)
