"""The conda recipe says what pyproject.toml says."""

import tomllib

import pytest
import yaml
from building import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from release.conda import OF_DEVELOPERS, PIP_ONLY, RECIPE, requirement, text_of

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_recipe_is_rendered_from_pyproject():
    assert RECIPE.read_text() == text_of(PYPROJECT), "run `python release/conda.py`"


def test_every_requirement_is_there_with_its_bounds():
    """Read from the file, in the order of pyproject.toml, by another reader of requirements."""
    recipe = yaml.safe_load(RECIPE.read_text())
    assert recipe["schema_version"] == 1
    assert recipe["context"]["version"] == PYPROJECT["project"]["version"]
    outputs = {one["package"]["name"]: one for one in recipe["outputs"]}
    main = outputs.pop("vsehub")
    assert main["build"]["noarch"] == "python"
    assert main["requirements"]["run"][0] == f"python {PYPROJECT['project']['requires-python']}"
    bounds_agree(PYPROJECT["project"]["dependencies"], main["requirements"]["run"][1:])
    extras = {name: texts for name, texts in PYPROJECT["project"]["optional-dependencies"].items()}
    assert set(outputs) == {f"vsehub-{name.replace('_', '-')}" for name in extras if name not in OF_DEVELOPERS}
    for name in extras:
        if name not in OF_DEVELOPERS:
            own, *run = outputs[f"vsehub-{name.replace('_', '-')}"]["requirements"]["run"]
            assert own == '${{ pin_subpackage("vsehub", exact=True) }}'
            bounds_agree(extras[name], run)


def bounds_agree(texts, run):
    wanted = [one for one in map(Requirement, texts) if one.name not in PIP_ONLY]
    assert len(wanted) == len(run)
    for one, said in zip(wanted, run, strict=True):
        if one.name != "vsehub":
            _, _, bounds = said.partition(" ")
            assert SpecifierSet(bounds) == one.specifier


def test_how_a_requirement_is_said():
    assert requirement("torch>=2.11") == "pytorch >=2.11"
    assert requirement("psycopg[binary]>=3.3,<4") == "psycopg >=3.3,<4"
    assert requirement("numpy") == "numpy"
    assert requirement("milvus-lite>=3.2,<4") is None
    assert requirement("vsehub[open_clip]") == '${{ pin_subpackage("vsehub-open-clip", exact=True) }}'
    with pytest.raises(ValueError, match="cannot be said in conda's words"):
        requirement("pgserver>=0.1.4; python_version < '3.13'")
