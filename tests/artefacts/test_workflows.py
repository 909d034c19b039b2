"""The workflows name what is there, cover each Python of pyproject.toml, and keep no secret."""

import re

import yaml
from building import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}


def test_workflows_name_what_is_there_and_keep_no_secret():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in FILES:
        text = path.read_text()
        named = re.findall(r"\bmake ([a-z][a-z -]*[a-z])", text)
        assert {word for words in named for word in words.split()} <= targets
        assert all((ROOT / file).is_file() for file in re.findall(r"\bpython ([\w./-]+\.py)", text))
        assert "secrets." not in text
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        uses = re.findall(r"uses: (.*)", text)
        assert [name for name in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name)] == []
    steps = {entry["run"] for entry in WORKFLOWS["test"]["jobs"]["make"]["strategy"]["matrix"]["include"]}
    assert set(re.findall(r"^make [a-z-]+", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)) <= steps | {"make setup"}


def test_only_the_publishing_steps_may_identify_themselves():
    jobs = {name: job for workflow in WORKFLOWS.values() for name, job in workflow["jobs"].items()}
    steps = {name: job["steps"] for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    # Nothing of the repository runs where the identity is.
    assert [(name, step["uses"].partition("@")[0]) for name, of_workflow in steps.items() for step in of_workflow] == [
        ("publish", "actions/download-artifact"),
        ("publish", "pypa/gh-action-pypi-publish"),
        ("publish-docs", "actions/download-artifact"),
        ("publish-docs", "actions/upload-pages-artifact"),
        ("publish-docs", "actions/deploy-pages"),
    ]
