"""Write conda/recipe.yaml from pyproject.toml: the package, and one more package for each extra.

    python release/conda.py

conda has no extras: `vsehub-cpu` installs vsehub and what `vsehub[cpu]` adds, and so on. Packages that conda-forge does
not have are left out; pip installs them into the same environment.
"""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "conda" / "recipe.yaml"
# Names that conda-forge spells in another way.
NAMES = {
    "huggingface-hub": "huggingface_hub",
    "matplotlib": "matplotlib-base",
    "open_clip_torch": "open-clip-torch",
    "pgvector": "pgvector-python",
    "ray": "ray-core",
    "torch": "pytorch",
}
PIP_ONLY = ("milvus-lite", "wandb-workspaces")
OF_DEVELOPERS = ("dev", "docs", "notebooks")
HEADER = "# Rendered from pyproject.toml by `python release/conda.py`; change that file and render again.\n"


def requirement(text: str) -> str | None:
    """A requirement of pyproject.toml in conda's words; None for a package that only pip has.

    Raises ValueError for a marker: the packages are the same for every platform and Python.
    """
    match = re.fullmatch(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w-]+)\])?(?P<bounds>[<>=!~][\w.,<>=!~*]*)?", text)
    if match is None:
        raise ValueError(f"{text!r} cannot be said in conda's words; expected a name and bounds of its version")
    if match["name"] == "vsehub":
        return pinned(package_of(match["extras"]))
    if match["name"] in PIP_ONLY:
        return None
    return " ".join(filter(None, (NAMES.get(match["name"], match["name"]), match["bounds"])))


def package_of(extra: str) -> str:
    """The name of an extra's package."""
    return f"vsehub-{extra.replace('_', '-')}"


def pinned(package: str) -> str:
    """The requirement of another package of this recipe, of the same build."""
    return f'${{{{ pin_subpackage("{package}", exact=True) }}}}'


def requirements(texts: list[str]) -> list[str]:
    """Those of several requirements that conda has."""
    return [said for text in texts if (said := requirement(text)) is not None]


def rendered(pyproject: dict) -> dict:
    """The recipe, in the form of schema version 1."""
    project = pyproject["project"]
    python = f"python {project['requires-python']}"
    package = {
        "package": {"name": "vsehub"},
        "build": {
            "noarch": "python",
            "script": "${{ PYTHON }} -m pip install . -vv --no-deps --no-build-isolation",
            "python": {"entry_points": [f"{name} = {entry}" for name, entry in project["scripts"].items()]},
        },
        "requirements": {
            "host": [python, "pip", *requirements(pyproject["build-system"]["requires"])],
            "run": [python, *requirements(project["dependencies"])],
        },
        "tests": [{"python": {"imports": ["vsehub"], "pip_check": True}}, {"script": ["vsehub --help"]}],
    }
    extras = [
        {
            "package": {"name": package_of(extra)},
            "build": {"noarch": "generic"},
            "requirements": {"run": [pinned("vsehub"), *requirements(texts)]},
            "tests": [{"script": ["vsehub --help"]}],
        }
        for extra, texts in project["optional-dependencies"].items()
        if extra not in OF_DEVELOPERS
    ]
    return {
        "schema_version": 1,
        "context": {"version": project["version"]},
        "recipe": {"name": "vsehub", "version": "${{ version }}"},
        "source": {"path": ".."},
        "build": {"number": 0},
        "outputs": [package, *extras],
        "about": {
            "summary": project["description"],
            "license": project["license"],
            "license_file": project["license-files"][0],
        },
    }


def text_of(pyproject: dict) -> str:
    """The recipe as a file."""
    return HEADER + yaml.safe_dump(rendered(pyproject), sort_keys=False, allow_unicode=True, width=120)


if __name__ == "__main__":
    RECIPE.write_text(text_of(tomllib.loads((ROOT / "pyproject.toml").read_text())))
