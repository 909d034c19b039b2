"""Models pushed to and loaded from a stand-in of the Hugging Face hub by huggingface_hub's own client."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'vsehub[hub]'")

STAND_IN = Path(__file__).with_name("hub_stand_in.py")
TOKEN = "hf_goodtokengood"

SCRIPT = """
import json, sys
import torch
import vsehub
from vsehub.checks import InputError

checkpoint, token = sys.argv[1:]
model, said = vsehub.load(checkpoint), {}


def refused(name, call):
    try:
        said[name] = f"came: {call()}"
    except InputError as error:
        said[name] = str(error)


first = model.push_to_hub("me/scenes", token=token)
refused("again", lambda: model.push_to_hub("me/scenes", token=token))
refused("bad token", lambda: model.push_to_hub("me/other", token="hf_badtokenbadtoken"))
second = model.push_to_hub("me/scenes", token=token, overwrite=True)
hidden = model.push_to_hub("me/hidden", token=token, private=True)
refused("private", lambda: vsehub.load("hf://me/hidden"))
refused("absent", lambda: vsehub.load("hf://me/absent"))
refused("revision", lambda: vsehub.load("hf://me/scenes@v9"))
for address in ("hf://me/a/b", "hf://../..", "hf://me/scenes@../x"):
    refused(address, lambda: vsehub.load(address))
for address in (first, second, "hf://me/scenes"):
    loaded = vsehub.load(address)
    assert torch.equal(loaded.encode_texts(["a red circle"]), model.encode_texts(["a red circle"]))
    assert loaded.sha256 == model.sha256
said["first"], said["second"] = first, second
print("SAID" + json.dumps(said))
"""


@pytest.fixture(scope="module")
def run(vsehub, tmp_path_factory):
    """The folder of a run of the tiny scenes."""
    folder = tmp_path_factory.mktemp("pushed")
    vsehub("train", "hydra.run.dir=run", cwd=folder, small=True)
    return folder / "run"


@pytest.fixture
def hub(tmp_path):
    """The environment of a hub that is empty."""
    process = subprocess.Popen([sys.executable, STAND_IN], stdout=subprocess.PIPE, text=True)
    port = process.stdout.readline().strip()
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(tmp_path / "hf"), "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    yield kept | own | {"HF_HUB_DISABLE_TELEMETRY": "1"}
    process.kill()
    process.wait()


def script(text, *arguments, environment):
    command = [sys.executable, "-c", text, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done.stdout


def test_pushed_models_come_back_and_refusals_are_one_line(run, hub):
    checkpoint = run / "checkpoints" / "best.safetensors"
    said = json.loads(script(SCRIPT, checkpoint, TOKEN, environment=hub).rpartition("SAID")[2])
    assert said["first"].startswith("hf://me/scenes@")
    assert said["first"] != said["second"]
    for name, words in {
        "again": "overwrite=True",
        "bad token": "me/other: ",
        "private": "hf://me/hidden: RepositoryNotFoundError",
        "absent": "hf://me/absent: RepositoryNotFoundError",
        "revision": "hf://me/scenes@v9: RevisionNotFoundError",
        "hf://me/a/b": "hf://me/a/b",
        "hf://../..": "'hf://../..'",
        "hf://me/scenes@../x": "'hf://me/scenes@../x'",
    }.items():
        assert words in said[name], name
        assert "\n" not in said[name]
        assert "hf_bad" not in said[name]


CARD = """
import sys, urllib.request, os
import vsehub
vsehub.load(sys.argv[1]).push_to_hub("me/scenes", token=sys.argv[2])
print(urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/me/scenes/resolve/main/README.md").read().decode())
"""


@pytest.mark.long
def test_the_card_says_what_was_measured_and_no_path(run, hub):
    card = script(CARD, run / "checkpoints" / "best.safetensors", TOKEN, environment=hub)
    record = json.loads((run / "run.json").read_text())
    assert card.startswith('---\nlibrary_name: "vsehub"')
    assert f"| seed | {record['seed']} |" in card
    assert f"| rsum | {record['metrics']['test/rsum']:.2f} |" in card
    assert str(run) not in card
    assert "/tmp" not in card
    copy = run.parent / "alone.safetensors"
    copy.write_bytes((run / "checkpoints" / "best.safetensors").read_bytes())
    assert "rsum" not in script(CARD.replace("scenes", "alone"), copy, TOKEN, environment=hub)


@pytest.mark.long
def test_commands_take_the_address_and_a_hub_that_is_away(run, hub, tmp_path, vsehub):
    checkpoint = run / "checkpoints" / "best.safetensors"
    script(
        'import sys, vsehub\nvsehub.load(sys.argv[1]).push_to_hub("me/scenes", token=sys.argv[2])',
        checkpoint,
        TOKEN,
        environment=hub,
    )
    own = {name: hub[name] for name in ("HF_ENDPOINT", "HF_HOME")}
    ask = "search", "checkpoint=hf://me/scenes", "a red circle", "k=3"
    found = vsehub(*ask, cwd=tmp_path, console=True, **own).out
    local = vsehub("search", f"checkpoint={checkpoint}", "a red circle", "k=3", cwd=tmp_path).out
    listed = [[line for line in out.splitlines() if "scene-" in line] for out in (found, local)]
    assert listed[0] == listed[1]
    away = own | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    vsehub(*ask, cwd=tmp_path, console=True, **away)
    said = vsehub("search", "checkpoint=hf://me/other", "a", cwd=tmp_path, console=True, status=2, **away).err
    assert "hf://me/other: LocalEntryNotFoundError" in said
