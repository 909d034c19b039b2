"""What completes a line, from the configuration alone and in real shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vsehub.cli.completion import completed
from vsehub.cli.main import COMMANDS


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with files, and `vsehub` on the path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos").mkdir()
    for name in ("captions.npy", "captions of train.npy", ".hidden"):
        (tmp_path / name).touch()
    program = tmp_path / "bin" / "vsehub"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vsehub "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("vsehub tr", ["train"]),
        ("vsehub completion z", ["zsh"]),
        ("vsehub completion zsh x", []),
        ("vsehub nothing x", []),
        ("vsehub train loss=h", ["loss=hal", "loss=hard_neg_nce"]),
        ("vsehub train loss=sum loss.", ["loss.margin="]),
        ("vsehub train data=karpathy data.json=cap", ["data.json=captions of train.npy", "data.json=captions.npy"]),
        ("vsehub train experiment=aaai2020/table3_coco_1k_vsepp_resnet_152_f", None),
        ("vsehub rerank over", ["overwrite="]),
        ("vsehub rerank overwrite=", ["overwrite=true", "overwrite=false"]),
        ("vsehub rerank queries='my ", ["queries=my photos/"]),
        ("vsehub rerank queries=.h", ["queries=.hidden"]),
        ("vsehub rerank queries=absent/x", []),
        ("vsehub train --cfg j", ["job"]),
        ("vsehub train --m", ["--multirun"]),
        ("vsehub wandb-dashboard overw", ["overwrite="]),
        ("vsehub train 'unclosed \"", []),
    ],
)
def test_what_completes_a_line(here, line, found):
    wanted = completed(line, list(COMMANDS))
    assert wanted == found if found is not None else isinstance(wanted, list)


def test_every_command_is_completed(here):
    assert set(COMMANDS) <= set(completed("vsehub ", list(COMMANDS)))
    for command in COMMANDS:
        found = completed(f"vsehub {command} ", list(COMMANDS))
        assert found, command
    train = completed("vsehub train ", list(COMMANDS))
    assert {"loss=", "loss.", "trainer.", "seed="} <= set(train)
    assert not [one for one in train if one.startswith("hydra")]
    whole = completed("vsehub train data=karpathy data.", list(COMMANDS))
    assert "data.json=" in whole


def test_nothing_heavy_is_imported(here):
    code = (
        "import sys; sys.argv = ['vsehub', 'completion', '--line', 'vsehub train loss=h']\n"
        "from vsehub.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'hydra', 'omegaconf', 'numpy', 'pytorch_lightning'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["loss=hal", "loss=hard_neg_nce", "[]"]


BASH = """
source <(vsehub completion bash)
COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_vsehub
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("vsehub dia", ["diagnose"]),
        ("vsehub train loss=h", ["hal", "hard_neg_nce"]),  # readline replaces what follows the equals sign
        ("vsehub train loss=sum loss.m", ["loss.margin="]),
        ("vsehub rerank queries=cap", ["captions of train.npy", "captions.npy"]),
    ],
)
def test_in_bash(here, line, found):
    said = subprocess.run(["bash", "--norc", "-c", BASH, "bash", line], capture_output=True, text=True, check=True)
    assert (said.stdout.splitlines(), said.stderr) == (found, "")
    registered = "source <(vsehub completion bash); complete -p vsehub"
    said = subprocess.run(["bash", "--norc", "-c", registered], capture_output=True, text=True, check=True)
    assert said.stdout == "complete -F _vsehub vsehub\n"


ZSH = """
compdef() { print "registered $@" }
compadd() { print -r -- "$@" }
source <(vsehub completion zsh)
LBUFFER="$1"
_vsehub
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_in_zsh(here):
    """With zsh's own functions replaced by ones that print what they are given."""
    for line, found in (
        ("vsehub train loss=h", "-Q -- loss=hal loss=hard_neg_nce"),
        ("vsehub train loss=sum loss.", "-Q -S  -- loss.margin="),
    ):
        said = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", line], capture_output=True, text=True, timeout=60)
        assert (said.stdout.splitlines(), said.stderr) == (["registered _vsehub vsehub", found], "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_in_fish(here):
    code = "vsehub completion fish | source; complete -C 'vsehub train loss=h'"
    said = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True)
    assert [one.split("\t")[0] for one in said.stdout.splitlines()] == ["loss=hal", "loss=hard_neg_nce"]


def test_shells_that_are_not_known(run_here):
    assert "no shell is named; choose one of bash, zsh, fish" in run_here("completion", status=2)
    assert "'powershell' is not a shell that is known" in run_here("completion", "powershell", status=2)
    assert "source <(vsehub completion bash)" in run_here("train", "-sc", "install=bash", status=2)
    assert "source <(vsehub completion bash)" in run_here("train", "-sc", "query=bash", status=2)


def test_the_readme_says_it():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert "source <(vsehub completion bash)" in text
