"""The image: what its Dockerfile says, and the script that fills it, run here in a folder."""

import re
import shlex
import shutil
import sys

import pytest
from building import ROOT
from installing import BIN, clean, run

SCRIPT = ROOT / "release" / "image.sh"


@pytest.fixture(scope="module")
def steps():
    """The instructions of the Dockerfile, [word, rest] each."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]


@pytest.fixture
def context(tmp_path):
    """A folder with the files that .dockerignore lets through: all are left out but those after an exclamation mark."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    folder = tmp_path / "context"
    for name in (line[1:] for line in lines if line.startswith("!")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_last_layer_is_small_and_nobody_there_is_root(steps):
    first, last = (number for number, (word, _) in enumerate(steps) if word == "FROM")
    assert steps[first][1].endswith(" AS build")
    assert {word for word, _ in steps[:first]} <= {"ARG"}
    final = steps[last + 1 :]
    # What installs and what it downloads stay in the first stage.
    assert [rest for word, rest in final if word == "COPY"] == ["--from=build /opt/vsehub /opt/vsehub"]
    assert not [rest for word, rest in final if word in ("ADD", "RUN") and re.search(r"\b(pip|uv|apt-get)\b", rest)]
    assert [rest for word, rest in final if word == "USER"] == ["vsehub"]
    words = [word for word, _ in final]
    assert "RUN" not in words[words.index("USER") :]
    assert [rest for word, rest in final if word == "ENTRYPOINT"] == ['["vsehub"]']


def test_the_script_is_called_as_it_asks(steps):
    (called,) = [rest for word, rest in steps if word == "RUN" and "image.sh" in rest]
    command = shlex.split(called)
    assert command == ["/source/release/image.sh", "/source", "/opt/vsehub", "${DEVICE}", "${EXTRAS}"]
    assert SCRIPT.stat().st_mode & 0o111
    for arguments in ([], ["a", "b"], ["a", "b", "tpu"], ["a", "b", "cpu", "x", "y"]):
        refused = run(SCRIPT, *arguments, status=2)
        assert refused.err == "usage: image.sh SOURCE PREFIX cpu|gpu [EXTRAS]\n"


def test_devices_choose_the_builds_of_torch_and_faiss(context, tmp_path):
    """The calls of the script, recorded by stand-ins of the programs that it starts."""
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    python = fakes / "python3"
    # A new environment gets stand-ins for the programs that the script starts there; uv writes down its arguments.
    python.write_text(
        "#!/bin/sh\n"
        'for folder; do :; done\nmkdir -p "$folder/bin"\n'
        'printf "#!/bin/sh\\n" > "$folder/bin/python"\n'
        'printf "#!/bin/sh\\necho 9.9\\n" > "$folder/bin/vsehub"\n'
        'printf "#!/bin/sh\\necho \\"\\$@\\" >&2\\n" > "$folder/bin/uv"\n'
        'chmod +x "$folder"/bin/*\n'
    )
    python.chmod(0o755)
    for device, torch, extras, wanted in (
        ("cpu", None, "", ["--torch-backend cpu", "[train,cpu]"]),
        ("gpu", None, "wandb,timm", ["[train,gpu,wandb,timm]"]),
        ("gpu", "cu128", "", ["--torch-backend cu128", "[train,gpu]"]),
        ("cpu", "", "", ["[train,cpu]"]),
    ):
        environment = clean(tmp_path, PATH=f"{fakes}:/usr/bin:/bin") | ({} if torch is None else {"TORCH": torch})
        done = run(context / "release" / "image.sh", context, tmp_path / "prefix", device, extras, env=environment)
        assert done.out == "9.9\n"
        assert [word for word in wanted if word not in done.err] == []
        assert ("--torch-backend" in done.err) == ("--torch-backend" in wanted[0])


@pytest.mark.long
def test_the_script_fills_a_folder(context, tmp_path):
    """TORCH is empty: the other builds of torch come from a place of their own."""
    prefix = tmp_path / "prefix"
    environment = clean(tmp_path, TORCH="", PATH=f"{sys.base_prefix}/bin:/usr/bin:/bin")
    if (BIN / "uv").is_file():  # the packages that `make setup` has downloaded
        environment["UV_CACHE_DIR"] = run(BIN / "uv", "cache", "dir").out.strip()
    run(context / "release" / "image.sh", context, prefix, "cpu", env=environment)
    shutil.rmtree(context)
    assert not (prefix / "bin" / "pip").exists()
    (package,) = prefix.glob("lib/python*/site-packages/vsehub")
    assert not package.is_symlink()
    assert list(package.rglob("*.pyc"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(prefix / "bin" / "vsehub", "train", "--cfg", "job", cwd=elsewhere, env=environment).out
    assert list(elsewhere.iterdir()) == []
