"""Files from elsewhere are data: what a hostile one asks for is refused, and nothing of it runs (docs/security.md)."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_files import changed
from looped import looped
from safetensors.numpy import save_file
from tiny_towers import tiny_hf, tiny_open_clip

import vsehub
from vsehub.checks import InputError
from vsehub.cli.nodes import components, literal
from vsehub.components import Components
from vsehub.data import SplitDraw, Table, open_vectors
from vsehub.data.text.vocabulary import dump_words, load_words
from vsehub.encoders import ImageTower, TextTower
from vsehub.models.checkpoint import write_checkpoint
from vsehub.serving.estimator import FORMAT, CorrectedSearch
from vsehub.training.checkpoint import CheckpointFiles, load_state

# Names that lead to code by way of modules and attributes, each with arguments that would leave a trace.
ATTACKS = [
    {"_target_": "vsehub.data.vectors.embeddings.np.testing.runstring", "astr": "open('trace', 'w')", "dict": {}},
    {"_target_": "torch.optim.optimizer.torch.utils.collect_env.run", "command": "touch trace"},
    {"_target_": "torch.optim.optimizer.torch.load", "f": "payload", "weights_only": False},
    {"_target_": "vsehub.io.files.write_text", "path": "trace", "text": "x"},
    {"_target_": "os.system", "command": "touch trace"},
    {"_target_": "builtins.eval", "source": "open('trace', 'w')"},
    {"_target_": "hydra.utils.instantiate", "config": {"_target_": "os.system", "command": "touch trace"}},
    {"_target_": "vsehub.similarities.Cosine", "_args_": ["touch trace"]},
    {"_target_": ["os.system"], "command": "touch trace"},
    {"_target_": "vsehub.losses.HAL", "gamma": {"_target_": "os.system", "command": "touch trace"}},
    {"_target_": "vsehub.criteria.Chain", "steps": [{"_target_": "os.system", "command": "touch trace"}]},
    "os.system",
    None,
]


class Payload:
    def __reduce__(self):
        return Path.touch, (Path("trace"),)


@pytest.fixture
def hostile(trained, tmp_path, monkeypatch):
    """A function that puts a node into the description of a copy of a checkpoint, and returns the copy's path."""
    monkeypatch.chdir(tmp_path)
    torch.save(Payload(), tmp_path / "payload")

    def make(part, node):
        best = trained / "checkpoints" / "best.safetensors"
        return changed(
            best, tmp_path / "hostile.safetensors", lambda description, _: description["config"].update({part: node})
        )

    return make


@pytest.mark.parametrize("node", ATTACKS, ids=[str(node)[:60] for node in ATTACKS])
def test_a_checkpoint_chooses_no_code(hostile, tmp_path, node):
    for part in ("similarity", "image_encoder", "text_encoder"):
        with pytest.raises(InputError, match="checkpoint"):
            vsehub.load(hostile(part, node))
    with pytest.raises(InputError):
        vsehub.load(hostile("data", node)).split("test")
    assert not (tmp_path / "trace").exists()


def test_a_teacher_chooses_no_code(run_here, small, hostile, tmp_path):
    """Although the classes that the command line itself names are the user's own."""
    said = run_here("train", *small, f"teacher={hostile('similarity', ATTACKS[4])}", status=2)
    assert "os.system is not a class" in said
    assert not (tmp_path / "trace").exists()


def test_a_pickle_is_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"vsehub": Payload(), "state_dict": {}}, tmp_path / "hostile.safetensors")
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        vsehub.load("hostile.safetensors")
    torch.save({"vsehub": {"version": 1}, "more": Payload()}, tmp_path / "last.ckpt")
    with pytest.raises(InputError, match="cannot be read"):
        load_state(tmp_path / "last.ckpt")
    assert not (tmp_path / "trace").exists()


@pytest.fixture
def theirs(trained, tmp_path):
    """A function that makes a run from elsewhere, which can go on, with changes in its record; its folder."""
    run = shutil.copytree(trained, tmp_path / "run")
    whole = json.loads((run / "run.json").read_text()) | {"status": "stopped"}
    (tmp_path / "elsewhere").mkdir()
    last = run / "checkpoints" / "last.ckpt"
    state = torch.load(last, weights_only=True)
    for callback in state["callbacks"].values():
        callback |= {name: str(last.parent) for name in callback if name == "dirpath"}
    torch.save(state, last)

    def make(**changes):
        config = whole["config"] | {"run_folder": str(run)} | changes
        (run / "run.json").write_text(json.dumps(whole | {"config": config}))
        return run

    make.config = whole["config"]
    return make


@looped("part", ["loss", "logger", "trainer", "data", "callbacks"])
def test_a_record_chooses_no_code(run_here, theirs, tmp_path, part):
    attack = {"own": ATTACKS[4]} if part == "callbacks" else theirs.config[part] | ATTACKS[4]
    said = run_here("train", f"resume={theirs(**{part: attack})}", status=2)
    assert f"os.system is not a class that a yaml file of {part} names; refused" in said
    assert not (tmp_path / "trace").exists()


def test_a_file_names_no_address(run_here, hostile, theirs):
    pairs = {"images": "http://127.0.0.1:9/i.npy", "texts": "t.npy", "pairs": "pairs.csv"}
    pairs |= {"_target_": "vsehub.data.Pairs"}
    path = hostile("data", pairs)
    with pytest.raises(InputError, match=r"data\.images is http://127.0.0.1:9/i.npy, an address that a file brings"):
        vsehub.load(path).split("test")
    with pytest.raises(InputError, match=r"no such file or folder: mine.npy|pairs.csv"):
        vsehub.load(path, data={"images": "mine.npy"}).split("test")
    said = run_here("train", f"resume={theirs(data=pairs)}", status=2)
    assert "data.images is http://127.0.0.1:9/i.npy, an address that a file brings" in said
    listed = [theirs.config["logger"] | {"name": {"settings": [{"base_url": "simplecache::http://127.0.0.1:9"}]}}]
    assert "an address that a file brings" in run_here("train", f"resume={theirs(logger=listed)}", status=2)


def test_a_record_writes_nowhere_else(run_here, theirs, tmp_path):
    elsewhere = str(tmp_path / "elsewhere")
    logger = theirs.config["logger"] | {"save_dir": elsewhere}
    run_here("train", f"resume={theirs(logger=logger)}", "trainer.max_epochs=5")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_record_trusts_no_class_and_names_no_folder(run_here, theirs, tmp_path):
    logger = theirs.config["logger"]
    for changes, message in (
        ({"logger": logger | {"name": "../elsewhere/x"}}, "names a path out of the run"),
        ({"logger": logger | {"version": "/tmp/x"}}, "names a path out of the run"),
        ({"trust": ["os.system"], "loss": ATTACKS[4]}, "loss: os.system is not a class that a yaml file of loss names"),
    ):
        said = run_here("train", f"resume={theirs(**changes)}", "trainer.max_epochs=5", status=2)
        assert re.search(message, said)
    assert not (tmp_path / "trace").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_links_in_a_run_folder_lead_nowhere(run_here, theirs, tmp_path):
    run = theirs()
    best = f"checkpoint={run}/checkpoints/best.safetensors"
    for name, command in (
        ("evaluations", ["evaluate", best, "criterion=csls"]),
        ("checkpoints/best.encoded", ["search", best, "a red circle"]),
        ("train.log", ["train", f"resume={run}", "trainer.max_epochs=5"]),
    ):
        place, aside = run / name, tmp_path / "aside"
        if place.exists():
            place.rename(aside)
        place.symlink_to(tmp_path / "elsewhere")
        assert f"{name} leads out of " in run_here(*command, status=2)
        place.unlink()
        if aside.exists():
            aside.rename(place)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_state_removes_no_file_elsewhere(tmp_path):
    (tmp_path / "run").mkdir()
    for path in (tmp_path / "mine.txt", tmp_path / "run" / "old.ckpt"):
        path.write_text("x")
    files = CheckpointFiles(tmp_path / "run")
    files.remove_checkpoint(tmp_path / "mine.txt")
    files.remove_checkpoint(tmp_path / "run" / ".." / "mine.txt")
    files.remove_checkpoint(tmp_path / "run" / "old.ckpt")
    assert (tmp_path / "mine.txt").exists()
    assert not (tmp_path / "run" / "old.ckpt").exists()


MINE = """
from torch import Tensor, nn
from vsehub.types import Similarity


class Mine(Similarity):
    inner_product = True

    def __init__(self, power: float = 1.0):
        super().__init__()
        self.power = power

    def vectors(self, encoding: Tensor) -> Tensor:
        return nn.functional.normalize(encoding, dim=1) * self.power

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        return self.vectors(images) @ self.vectors(texts).T
"""


@pytest.fixture
def own_class(tmp_path, monkeypatch):
    """A similarity of somebody's own: a module on the path, and the yaml that names it."""
    (tmp_path / "mypackage.py").write_text(MINE)
    (tmp_path / "mydir" / "similarity").mkdir(parents=True)
    (tmp_path / "mydir" / "similarity" / "mine.yaml").write_text("_target_: mypackage.Mine\npower: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_classes_from_elsewhere_by_their_yaml_or_by_trust(own_class, run_here, features):
    run_here(
        "train", "--config-dir", "mydir", "similarity=mine", *features, "trainer.max_epochs=1", "hydra.run.dir=run"
    )
    best = "checkpoint=run/checkpoints/best.safetensors"
    said = run_here("evaluate", best, "criterion=csls", status=2)
    assert "similarity: mypackage.Mine is not a class that a yaml file of similarity names" in said
    assert "give the folder of its yaml with --config-dir, or trust=mypackage.Mine" in said
    by_yaml = run_here("evaluate", "--config-dir", "mydir", best, "criterion=csls")
    by_trust = run_here("evaluate", "trust=mypackage.Mine", best, "criterion=csls", "overwrite=true")
    tables = [said[said.index("test: ") :].splitlines()[:-1] for said in (by_yaml, by_trust)]
    assert tables[0] == tables[1]
    assert "rsum" in run_here("evaluate", best, "trust=[other.Thing,mypackage.Mine]", "criterion=is")


def test_building_checks_settings():
    known, node = components(), {"_target_": "vsehub.losses.HAL", "gamma": 3.0}
    assert known.build("loss", node).gamma == 3.0
    for group, change, message in (
        ("loss", {"gama": 1}, "loss: HAL .*'gama'"),
        ("loss", {"gamma": "x"}, "loss.gamma is 'x'"),
        ("loss", {"gamma": True}, "loss.gamma is True"),
        ("loss", {"variant": 3}, "loss.variant is 3"),
        ("loss", {"neighbors_k": 2.5}, "loss.neighbors_k is 2.5"),
        ("loss", {"gamma": "???"}, "loss.gamma is not set"),
        ("loss", {"gamma": -1}, "loss.gamma is -1"),
        ("loss", {"gamma": {"_target_": "os.system", "command": "touch trace"}}, "os.system is not a class"),
        ("loss", {"_target_": None}, "expected a component"),
        ("similarity", {}, "is not a class that a yaml file of similarity names"),  # a class of another group
    ):
        with pytest.raises(InputError, match=message):
            known.build(group, node | change)


def test_a_broken_yaml_and_a_class_that_is_not_there(tmp_path):
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "a.yaml").write_text("_target_: nowhere.at.All\n")
    with pytest.raises(InputError, match=r"loss: nowhere\.at\.All cannot be imported"):
        Components([tmp_path]).build("loss", {"_target_": "nowhere.at.All"})
    (tmp_path / "loss" / "b.yaml").write_text("a: [1\n")
    with pytest.raises(InputError, match=r"b\.yaml is not a yaml file"):
        Components([tmp_path]).build("loss", {"_target_": "nowhere.at.All"})


@pytest.fixture(scope="module")
def reached():
    """What this process does that a stranger's file must not bring about: programs, connections, the bait opened."""
    events = []
    programs = ("socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")

    def record_event(event, args):
        if event in programs or (event == "open" and "payload" in str(args[0])):
            events.append((event, args[0]))

    sys.addaudithook(record_event)
    return events


def a_search(folder):
    for criterion in (ATTACKS[4], {"_target_": "vsehub.criteria.Chain", "steps": [ATTACKS[4]]}):
        settings = json.dumps({"criterion": criterion, "k": 1, "normalize": False})
        items = {"items": np.eye(3, dtype=np.float32)}
        save_file(items, folder / "search.safetensors", {"format": FORMAT, "settings": settings})
        yield lambda: CorrectedSearch.load(folder / "search.safetensors")


def a_table(folder):
    for picture in ("../payload", f"{folder.parent}/payload", "http://127.0.0.1:9/a.png", "a.png"):
        (folder / "table.csv").write_text(f"image,caption\n{picture},a dog\n")
        (folder / "a.png").unlink(missing_ok=True)
        (folder / "a.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(touch trace) run\n")
        yield lambda: Table(str(folder / "table.csv"), str(folder), draw=SplitDraw(0, 0)).load("train").images[:1]


def vectors(folder):
    objects = np.array([Payload()], dtype=object)
    np.save(folder / "q.npy", objects, allow_pickle=True)
    np.savez(folder / "q.npz", objects)
    torch.save(Payload(), folder / "q.pt")
    for name in ("q.npy", "q.npz", "q.pt"):
        yield lambda name=name: open_vectors(folder / name)


def a_record(folder):
    for text in ("${oc.env:HOME}", "${oc.select:trust}"):
        yield lambda text=text: literal({"loss": {"name": [text]}})


@pytest.mark.parametrize("attack", [a_search, a_table, vectors, a_record])
def test_a_file_from_a_stranger_is_data(tmp_path, monkeypatch, attack, reached):
    """It is refused; it runs nothing, opens nothing that it names, and sends nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.save(Payload(), tmp_path / "payload")
    (tmp_path / "theirs").mkdir()
    for read in attack(tmp_path / "theirs"):
        reached.clear()
        with pytest.raises((InputError, FileNotFoundError)):
            read()
        assert not reached
    assert not (tmp_path / "trace").exists()


def test_a_result_from_a_stranger_is_data(run_here, tmp_path, reached):
    np.save(tmp_path / "q.npy", np.eye(12, dtype=np.float32))
    run_here("rerank", "queries=q.npy", "items=q.npy", "criterion=csls", "k=3", "out=theirs")
    path = tmp_path / "theirs" / "result.json"
    whole = json.loads(path.read_text())
    for name, value in (("criterion", "../loss/hal"), ("criterion", "os.system"), ("parameters", {"k": ATTACKS[4]})):
        path.write_text(
            json.dumps(whole | {"rankings": [*whole["rankings"][:-1], whole["rankings"][-1] | {name: value}]})
        )
        run_here("index", "theirs", status=2)
    for address in ("http://127.0.0.1:9/q.npy", "simplecache::http://127.0.0.1:9/q.npy"):
        path.write_text(json.dumps(whole | {"inputs": whole["inputs"] | {"items": address}}))
        reached.clear()
        run_here("index", "theirs", status=2)
        assert not reached
    assert not (tmp_path / "trace").exists()


@pytest.fixture(scope="module")
def joint(tmp_path_factory):
    """Checkpoints of a joint model of transformers and of open_clip, whose folders are gone."""
    folder = tmp_path_factory.mktemp("joint")
    made = {}
    for library, make in (("hf", tiny_hf), ("open_clip", tiny_open_clip)):
        place = make(folder / library)
        words = load_words(TextTower.subwords_of({"library": library, "model": place}))
        node = {"library": library, "model": place}
        parts = {"image_encoder": ImageTower(**node), "text_encoder": TextTower(**node)}
        config = {
            name: {"_target_": f"vsehub.encoders.{type(part).__name__}", **node, **part.rebuilt}
            for name, part in parts.items()
        }
        config |= {"similarity": {"_target_": "vsehub.similarities.Cosine"}, "loader": {"max_words": None}}
        config["data"] = {"_target_": "vsehub.data.Scenes"}
        weights = {f"{name}.{key}": weight for name, part in parts.items() for key, weight in part.state_dict().items()}
        shapes = {"image_shape": [3, 32, 32], "text_shape": None}
        description = {"config": config, "vocabulary": dump_words(words), **shapes}
        write_checkpoint(folder / f"{library}.safetensors", weights, description)
        made[library] = folder / f"{library}.safetensors"
        shutil.rmtree(place)
        assert vsehub.load(made[library]).model
    return made


def architecture(**settings):
    return lambda node: node["config"]["architecture"].update(settings)


def inside(side, **settings):
    return lambda node: node["config"]["architecture"][side].update(settings)


WRAPPER = {"model_type": "timm_wrapper", "architecture": "resnet18", "model_args": {"checkpoint_path": "payload"}}
JOINT_ATTACKS = {
    "a wrapper that opens a file": ("hf", inside("vision_config", **WRAPPER)),
    "a wrapper as the whole": ("hf", architecture(**WRAPPER)),
    "an architecture of the hub": ("hf", architecture(model_type="timm_wrapper", architecture="hf-hub:evil/model")),
    "a backbone of the hub": ("hf", inside("vision_config", model_type="timm_backbone", backbone="hf-hub:evil/model")),
    "a backbone of the hub as the whole": (
        "hf",
        architecture(model_type="timm_backbone", use_pretrained_backbone=True),
    ),
    "remote code": ("hf", architecture(auto_map={"AutoModel": "evil--payload.Model"}, trust_remote_code=True)),
    "a kernel": ("hf", architecture(attn_implementation="evil/kernel")),
    "a model of timm's from the hub": ("open_clip", inside("vision_cfg", timm_model_name="hf-hub:evil/model")),
    "pretrained weights": ("open_clip", inside("vision_cfg", timm_model_name="resnet18", timm_model_pretrained=True)),
    "a text encoder in a folder": ("open_clip", inside("text_cfg", hf_model_name="payload")),
    "a text encoder of the hub": ("open_clip", inside("text_cfg", hf_config={"model_type": "evil/model"})),
    "no description, a folder": ("hf", lambda node: node.update(config=None, model="payload", pretrained=True)),
}
# Not refused, but left aside: the checkpoint holds all weights.
IGNORED = {
    "a folder": ("hf", lambda node: node.update(model="payload", pretrained=True)),
    "a folder of open_clip": ("open_clip", lambda node: node.update(model="payload", pretrained=True)),
    "a file of weights": ("open_clip", lambda node: node.update(weights="payload")),
}


@pytest.mark.parametrize("name", JOINT_ATTACKS | IGNORED)
def test_a_joint_model_opens_no_file_that_its_checkpoint_names(joint, tmp_path, monkeypatch, reached, name):
    monkeypatch.chdir(tmp_path)
    torch.save(Payload(), tmp_path / "payload")
    library, attack = (JOINT_ATTACKS | IGNORED)[name]
    path = changed(
        joint[library],
        tmp_path / "x.safetensors",
        lambda description, _: attack(description["config"]["image_encoder"]),
    )
    reached.clear()
    with pytest.raises(InputError, match="checkpoint: ") if name in JOINT_ATTACKS else nullcontext():
        vsehub.load(path)
    assert not reached
    assert not (tmp_path / "trace").exists()


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace, which sees every call of a process, is not installed"
)
def test_the_kernel_sees_no_file_and_no_connection(joint, tmp_path):
    """All attacks in one process, whose calls strace writes down: a witness that no Python code can deceive."""
    torch.save(Payload(), tmp_path / "payload")
    for name, (library, attack) in JOINT_ATTACKS.items():
        changed(
            joint[library],
            tmp_path / f"{list(JOINT_ATTACKS).index(name)}.safetensors",
            lambda description, _, attack=attack: attack(description["config"]["image_encoder"]),
        )
    script = """
import sys
import vsehub
from vsehub.checks import InputError
for path in sys.argv[1:]:
    try:
        vsehub.load(path)
    except InputError as error:
        print(error)
"""
    calls = "trace=open,openat,connect,execve,sendto"
    names = [f"{number}.safetensors" for number in range(len(JOINT_ATTACKS))]
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "calls.txt", "-e", calls]
    ran = subprocess.run(
        [*strace, sys.executable, "-P", "-c", script, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("strace may not follow processes here")
    assert len(ran.stdout.splitlines()) == len(JOINT_ATTACKS), ran.stdout + ran.stderr
    recorded = (tmp_path / "calls.txt").read_text().splitlines()
    assert any("0.safetensors" in line for line in recorded)
    assert not [line for line in recorded if "payload" in line or "evil" in line]
    assert not [line for line in recorded if "AF_INET" in line]
    programs = {line.split('execve("')[1].split('"')[0] for line in recorded if "execve(" in line}
    assert {Path(program).name for program in programs} <= {Path(sys.executable).name, "ldconfig"}  # which ctypes asks
    assert not (tmp_path / "trace").exists()
