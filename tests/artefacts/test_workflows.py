"""The workflows: they parse, name what is there, cover each Python of pyproject.toml, and need no kept secret."""

import re
import tomllib

import pytest
import yaml
from building import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_these():
    assert set(WORKFLOWS) == {"nightly", "release", "test"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_steps_name_what_is_there(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set([job["needs"]] if "needs" in job else []) <= set(workflow["jobs"])
        assert job["runs-on"] == "ubuntu-latest"
        included = job.get("strategy", {}).get("matrix", {}).get("include", [])
        words = [word for one in included for word in one["target"].split()]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            command = step.get("run", "")
            words += [word for part in re.findall(r"\bmake ([a-z -]+)", command) for word in part.split()]
            for file in re.findall(r"\bpython ([\w./-]+\.py)", command):
                assert (ROOT / file).is_file()
        assert set(words) <= TARGETS


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_to_a_version(name):
    used = [step["uses"] for step in steps(WORKFLOWS[name]) if "uses" in step]
    assert used
    pinned = r"actions/[\w-]+@v\d+|pypa/gh-action-pypi-publish@release/v1"
    assert [one for one in used if not re.fullmatch(pinned, one)] == []


def test_every_python_and_the_lowest_versions_are_tested():
    tested = [tuple(one.values()) for one in WORKFLOWS["test"]["jobs"]["make"]["strategy"]["matrix"]["include"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in project["classifiers"]]
    assert {python for target, python in tested if target == "test"} == {match[1] for match in named if match}
    lowest = project["requires-python"].removeprefix(">=")
    assert {("test-lowest", lowest), ("test-dist", lowest), ("test-long", lowest)} <= set(tested)


def test_a_release_is_checked_built_tested_and_then_published():
    release = WORKFLOWS["release"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    commands = [step["run"] for step in release["jobs"]["build"]["steps"] if "run" in step]
    assert "python release/check.py" in commands[0]
    assert commands[1] == "make test-dist"
    assert release["jobs"]["publish"]["needs"] == "build"
    assert release["jobs"]["attach"]["needs"] == "publish"


def test_only_the_publishing_step_may_identify_itself_and_nothing_is_kept():
    assert "secrets." not in "".join(path.read_text() for path in FILES)
    jobs = {name: job for workflow in WORKFLOWS.values() for name, job in workflow["jobs"].items()}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "release"
    # Nothing of the repository runs where the identity is.
    assert [step.get("uses", "").partition("@")[0] for step in publish["steps"]] == [
        *("actions/download-artifact", "pypa/gh-action-pypi-publish"),
    ]
    assert "password" not in publish["steps"][-1].get("with", {})
