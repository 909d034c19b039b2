"""Sphinx configuration.

The source folder is the repository itself, so that a relative link means the same on a page as in the file.
"""

import importlib
import os
import pkgutil
import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

import vsehub

sys.path.insert(0, str(Path(__file__).parent))
from settings import page as settings_page

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "api"

project = "vsehub"
release = version = vsehub.__version__
html_title = f"vsehub {release}"
html_theme = "furo"
html_show_copyright = False
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

root_doc = "README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "docs/api/*.rst",
    "notebooks/*.ipynb",
    "experiments/README.md",
    "experiments/*/README.md",
    "experiments/results/*/README.md",
    "tools/torture/README.md",
]
exclude_patterns = [".*", "build", "runs"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
# The tables that the studies write begin at the level they have on a page.
suppress_warnings = ["myst.header"]
nb_execution_mode = os.environ.get("NOTEBOOKS", "force")  # off: for a quick look at the pages
nb_execution_timeout = 600  # seconds a cell
nb_execution_raise_on_error = True

# In a docstring `name` is code, as in Markdown.
default_role = "code"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

CONTENTS = """

```{toctree}
:hidden:
:glob:
:caption: Guide

docs/train
docs/data
docs/losses
docs/correct
docs/text
docs/criteria
docs/serve
docs/reproduce
docs/findings
docs/extend
docs/protocols
docs/api/settings
docs/glossary
docs/troubleshooting
docs/*
CONTRIBUTING
tools/torture/README
CHANGELOG
```

```{toctree}
:hidden:
:glob:
:caption: Notebooks

notebooks/*
```

```{toctree}
:hidden:
:glob:
:caption: Python API

docs/api/vsehub*
```

```{toctree}
:hidden:
:glob:
:caption: Studies

experiments/README
experiments/*/*
experiments/results/*/*
```
"""


def exporting_modules() -> list[str]:
    """`vsehub` and the modules directly below it that define a non-empty `__all__`."""
    names = ["vsehub", *(f"vsehub.{module.name}" for module in pkgutil.iter_modules(vsehub.__path__))]
    return [name for name in names if getattr(importlib.import_module(name), "__all__", ())]


def write_api_pages(app: Sphinx) -> None:
    """Write the page of settings and one for each exporting module; remove those of modules that export nothing now."""
    API.mkdir(exist_ok=True)
    pages = {
        API / f"{name}.rst": f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n" for name in exporting_modules()
    }
    pages[API / "settings.md"] = settings_page()
    for page in set(API.iterdir()) - set(pages):
        page.unlink()
    for page, text in pages.items():
        page.write_text(text)


def escape_marks(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let | and * stand for themselves in a docstring's prose, which writes |x| for a norm and a * b for a product."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split("(`[^`]*`)", line)
            lines[number] = "".join(
                part if part.startswith("`") else re.sub(r"([|*])", r"\\\1", part) for part in parts
            )


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of contents to the front page; in the file itself it would show as code."""
    if name == root_doc:
        source[0] += CONTENTS


def copy_front_page(app: Sphinx, error: Exception | None) -> None:
    """Make index.html from the front page, which is the README's."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_api_pages)
    # Before napoleon, which writes marks of its own.
    app.connect("autodoc-process-docstring", escape_marks, priority=400)
    app.connect("source-read", add_contents)
    app.connect("build-finished", copy_front_page)
