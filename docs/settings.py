"""The table of all settings, written from the yaml files of conf/ and their comments: python docs/settings.py"""

import re
from collections.abc import Iterator
from pathlib import Path

CONF = Path(__file__).parents[1] / "conf"
LINE = re.compile(r"^( *)([\w.]+):(?: +([^#]*?))?(?: *# (.*))?$")
BLOCK = re.compile(r"^  - (\w+): default\b")


def page() -> str:
    """The page in Markdown: a table for each command, and one for each group of settings."""
    parts = [
        "# Settings",
        "As `vsehub COMMAND --help` lists them. A group's settings begin with its name: `loss.gamma`.",
    ]
    for path in sorted(CONF.glob("*.yaml")):
        parts += [f"## {path.stem.replace('_', '-')}", table(path)]
    for folder in sorted(path for path in CONF.iterdir() if path.is_dir()):
        files = [path for path in sorted(folder.glob("*.yaml")) if "@package _global_" not in path.read_text()]
        if files and folder.name != "hydra":
            parts += [f"## Group {folder.name}", *(part for path in files for part in choice(path))]
    return "\n\n".join(parts) + "\n"


def choice(path: Path) -> list[str]:
    """The heading, the description and the table of one choice of a group."""
    comments = re.match(r"(?:#.*\n)*", path.read_text())[0]
    described = re.sub(r"^# ?", "", comments, flags=re.MULTILINE).strip()
    base = re.search(r"^defaults:\n((?:  - \w+\n)+)", path.read_text(), re.MULTILINE)
    bases = re.findall(r"- (?!_self_)(\w+)", base[1]) if base else []
    based = f"Beside the settings of {', '.join(bases)}." if bases else ""
    return [part for part in (f"### {path.parent.name}={path.stem}", described, based, table(path)) if part]


def table(path: Path) -> str:
    """The settings of a yaml file with their defaults and comments; empty without any."""
    rows = [f"| `{key}` | {code(default)} | {escaped(comment)} |" for key, default, comment in settings(path)]
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows]) if rows else ""


def settings(path: Path) -> Iterator[tuple[str, str, str]]:
    """Key, default and comment of each setting; Hydra's own keys are left out."""
    parents: list[str] = []
    for line in path.read_text().partition("\nhydra:\n")[0].splitlines():
        if (block := BLOCK.match(line)) and (below := path.with_name(block[1]) / "default.yaml").is_file():
            yield from ((f"{block[1]}.{key}", default, comment) for key, default, comment in settings(below))
        if not (match := LINE.match(line)):
            continue
        indent, name, default, comment = match.groups(default="")
        parents[len(indent) // 2 :] = [name]
        if parents[0] != "defaults" and not name.startswith("_") and (default or comment):
            yield ".".join(parents), default, comment


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(page())
