"""Each setting changes the outcome of its command, is refused, or changes nothing by design: settings.yaml says which.

A setting of conf/ that settings.yaml lacks fails. The settings that a record repeats are no outcome.
"""

import contextlib
import copy
import functools
import io
import itertools
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import setting_files
import torch
import yaml
from choices import choice_node
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from run_files import record, rows
from safetensors.torch import load_file
from test_size import CONF, leaves, read
from undrawn import save_undrawn

from vsehub.checks import InputError
from vsehub.cli.evaluate import evaluate
from vsehub.cli.train import train
from vsehub.evaluation.evaluate import evaluate as measured
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases.collection import open_collection
from vsehub.serving.databases.engines import location_of

TABLE = yaml.safe_load((CONF.parent / "tests/commands/settings.yaml").read_text())
BASES, COMMANDS, MADE = TABLE.pop("bases"), TABLE.pop("commands"), TABLE.pop("made")
OPTIONS = {"by", "with", "like"}
# What these groups change shows after two steps, unless it takes a bank or several epochs.
SEEN_IN_STEPS = {"loss", "similarity", "image_encoder", "text_encoder", "optimizer"}


def components():
    """The yaml files of the commands and of their groups, below conf/, but for whole recipes."""
    for command in COMMANDS:
        yield command
        entries = [entry for entry in read(CONF / f"{command}.yaml")["defaults"] if isinstance(entry, dict)]
        for group in (name.split()[-1] for entry in entries for name in entry if not name.startswith("override")):
            for path in (CONF / group).glob("*.yaml"):
                if "@package _global_" not in path.read_text() and list(leaves(read(path))):
                    yield str(path.relative_to(CONF).with_suffix(""))


@pytest.mark.parametrize("name", sorted(set(components())))
def test_each_setting_does_what_the_table_says(name, run):
    file, entry = read(CONF / f"{name}.yaml"), TABLE[name]
    if same := entry.get("like"):
        assert file["_target_"] == read(CONF / f"{same}.yaml")["_target_"]
        assert set(leaves(file)) <= TABLE[same].keys()
        return
    assert set(leaves(file)) == entry.keys() - OPTIONS
    group, _, choice = name.rpartition("/")
    by = entry.get("by", name if name in BASES else "train")
    command = by if by in OUTCOMES else "train"
    before = BASES[by] | ({group: choice} if group else {}) | entry.get("with", {})
    wrong = []
    for key in entry.keys() - OPTIONS:
        row = entry[key] if isinstance(entry[key], dict) else {"value": entry[key]}
        (how, tried) = next((how, row[how]) for how in ("value", "equal", "refused") if how in row)
        settings = before | row.get("with", {})
        in_steps = group in SEEN_IN_STEPS and "bank" not in settings and settings["trainer.max_epochs"] == 1
        outcome = "steps" if in_steps else command
        default = run(outcome, settings)
        other = run(outcome, settings | {f"{group}.{key}" if group else key: tried})
        changes = differing(default, other)
        refused = [result.get("refused", "")[:300] for result in (default, other)]
        if how == "refused":
            fits = not refused[0] and refused[1] and row["says"] in refused[1]
        else:
            fits = bool(changes) == (how == "value") and [bool(refused[0]), refused[1]] == ["after" in row, ""]
        if not fits:
            wrong.append(f"{key}: {row} changed {changes[:9]} and was refused: {refused}")
    assert not wrong, "\n".join(wrong)


def test_final_split_val_is_measured_as_the_epochs_are(run):
    result = run("train", BASES["train"] | {"final_split": "val"})
    assert result["measured"]["rsum"] == pytest.approx(result["rows"][0]["val/rsum"])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_each_epoch_draws_its_own_dropout(run, dropout):
    """The same pairs and weights in both epochs: what differs is drawn."""
    alike = {"optimizer.lr": 0.0, "loader.batch_size": 24, "trainer.max_epochs": 2, "trainer.overfit_batches": 1}
    rows = run("train", BASES["train"] | alike | {"embedding_dropout": dropout})["rows"]
    assert (rows[0]["train/loss"] == pytest.approx(rows[1]["train/loss"], rel=1e-4)) == (dropout == 0)


def differing(first, second, name=""):
    """The names of the values by which two outcomes differ, but for rounding."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = sorted(first.keys() | second.keys(), key=str)
        return [change for key in names for change in differing(first.get(key), second.get(key), f"{name}/{key}")]
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        same = (first.shape, first.dtype) == (second.shape, second.dtype)
        close = same and torch.allclose(first, second, rtol=1e-4, atol=1e-6, equal_nan=True)
    elif isinstance(first, float) and isinstance(second, float):
        close = math.isclose(first, second, rel_tol=1e-4, abs_tol=1e-6) or (math.isnan(first) and math.isnan(second))
    else:
        close = type(first) is type(second) and first == second
    return [] if close else [name]


@pytest.fixture(scope="module")
def run(tmp_path_factory, shared_folder):
    """A function that returns the outcome of a command, by name, with settings; of equal settings it runs once."""
    outcomes = {}

    def outcome(command, settings):
        key = json.dumps([command, settings], sort_keys=True)
        if key not in outcomes:
            folder = tmp_path_factory.mktemp("run")
            outcomes[key] = OUTCOMES[command](configured(command, settings, files, folder), folder)
            shutil.rmtree(folder, ignore_errors=True)  # a refused training has removed it
        return outcomes[key]

    def command(name, settings, folder):
        assert "refused" not in OUTCOMES[name](configured(name, BASES[name] | settings, files, folder), folder)

    files = setting_files.Files(tmp_path_factory.mktemp("files"), MADE, command)
    before = HydraConfig.instance().cfg
    with (
        mock.patch.dict("os.environ", XDG_CACHE_HOME=str(shared_folder / "cache")),
        pytest.MonkeyPatch.context() as here,
    ):
        here.setattr("matplotlib.figure.Figure.savefig", save_undrawn)
        for module in ("io.provenance", "training.run_record"):  # both ask git
            here.setattr(f"vsehub.{module}.code_version", lambda: None)
            here.setattr(f"vsehub.{module}.versions", lambda *_: {})
        wandb = mock.MagicMock(run=None, Run=object, RunDisabled=object, __spec__=True)
        wandb.init.return_value.id = "id"
        for name in ("wandb", "wandb.sdk", "wandb.sdk.lib", "wandb.wandb_run"):  # they take seconds to import
            here.setitem(sys.modules, name, wandb)
        loader = "pytorch_lightning.trainer.connectors.callback_connector._load_external_callbacks"
        here.setattr(loader, lambda _: [])  # it reads the metadata of all installed packages
        here.setattr("vsehub.serving.measured_time", lambda *_: {"plain": 0.0, "corrected": 0.0})
        yield outcome
    HydraConfig.instance().cfg = before


@functools.cache
def composed(command):
    """The configuration of a command with its defaults, the same with Hydra's own node, and the choices in that."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose(command, ["~recipe"] if command == "train" else [], return_hydra_config=True)
    for node in (whole, whole.hydra):
        OmegaConf.set_readonly(node, False)
        OmegaConf.set_struct(node, False)
    cfg = copy.deepcopy(whole)
    del cfg["hydra"]
    return cfg, whole, OmegaConf.to_container(whole.hydra.runtime.choices)


def configured(command, settings, files, folder):
    """The configuration of a command with settings, those of whole groups first, as Hydra gives it to its task."""
    default, whole, choices = composed("train" if command in ("data", "steps") else command)
    cfg, choices = copy.deepcopy(default), dict(choices)
    for key, value in sorted(settings.items(), key=lambda item: "." in item[0]):
        value = files.placed(value, folder)
        if (CONF / key).is_dir() and not isinstance(value, dict):
            choices[key] = value
            value = None if value is None else choice_node(key, value)
        OmegaConf.update(cfg, key, value, merge=False)
    whole.hydra.runtime.output_dir, whole.hydra.runtime.choices = str(folder), choices
    HydraConfig.instance().cfg = whole
    return cfg


def trained(cfg, folder):
    """The weights, the history, the measurement and the files of a training."""
    few = {"rsum", "hubness/hs_sum"}  # Lightning takes most of a tiny training to log the ninety others

    def measured_little(*sides):
        evaluation = measured(*sides)
        return replace(evaluation, metrics={name: evaluation.metrics[name] for name in few})

    sys.modules["wandb"].init.reset_mock()
    with (
        mock.patch("sys.argv", ["vsehub train"]),
        mock.patch("vsehub.training.callbacks.retrieval.evaluate", measured_little),
    ):
        try:
            train(cfg)
        except InputError as error:
            return {"refused": str(error)}
    run = folder if (folder / "run.json").exists() else folder / "inner"
    run_record = record(run)
    (evaluation,) = (json.loads(path.read_text()) for path in run.glob("evaluations/*.json"))
    return {
        "weights": load_file(run / "checkpoints" / "best.safetensors"),
        "rows": {number: {name: number_of(text) for name, text in row.items()} for number, row in enumerate(rows(run))},
        "measured": {name.partition("/")[2]: value for name, value in run_record["metrics"].items()},
        "named": {name: run_record[name] for name in ("dataset", "precision", "collapsed") if name in run_record},
        "evaluated": evaluation["criterion"],
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "evaluations" not in path.parts),
        "wandb": str(sys.modules["wandb"].init.call_args),
    }


class Loaded(Exception):
    """A command is stopped where its data, or its model, are loaded, which is all that is looked at: the args."""


def stepped(cfg, folder):
    """The losses of a training's first two steps, and the weights after them."""

    def take_steps(trainer, module, data, checkpoint):
        optimizer, losses = module.configure_optimizers()["optimizer"], []
        for number, batch in enumerate(itertools.islice(data.train_dataloader(), 2)):
            optimizer.zero_grad()
            losses.append(module.training_step(batch, number))
            losses[-1].backward()
            optimizer.step()
        raise Loaded({"losses": torch.stack(losses).detach(), "weights": module.state_dict()})

    try:
        with mock.patch("vsehub.training.train.train_module", take_steps):
            train(cfg)
    except InputError as error:
        return {"refused": str(error)}
    except Loaded as outcome:
        return outcome.args[0]


def loaded(cfg, folder):
    """The first batch, the splits and the name of a training's data."""

    def stop(settings, data, *_, **__):
        raise Loaded(data)

    with mock.patch("vsehub.training.build.build_module", stop):
        try:
            train(cfg)
        except InputError as error:
            return {"refused": str(error)}
        except Loaded as found:
            (data,) = found.args
    batch = next(iter(data.train_dataloader()))
    splits = {
        name: {"images": torch.from_numpy(split.images[np.arange(len(split.images))]), "texts": str(split.captions)}
        for name, split in data.splits.items()
    }
    return {"batch": batch._asdict(), "splits": splits, "name": data.source.name}


def evaluated(cfg, folder):
    """What is measured of a checkpoint, and where that is written."""
    try:
        evaluate(cfg)
    except InputError as error:
        return {"refused": str(error)}
    (path,) = folder.rglob("*-*.json")
    evaluation = json.loads(path.read_text())
    place = str(path.parent.relative_to(folder))
    return {name: evaluation[name] for name in ("metrics", "protocol", "tuned")} | {"folder": place}


def ran(command, cfg, folder):
    """The files of a command, and what it prints."""
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed), mock.patch("time.perf_counter", return_value=0.0):
        try:
            getattr(import_module(f"vsehub.cli.{command}"), command)(cfg)
        except InputError as error:
            return {"refused": str(error)}
        except SystemExit as error:
            status = error.code
    files = {str(path.relative_to(folder)): contents(path) for path in folder.rglob("*") if path.suffix in READ}
    return {"status": status, "printed": printed.getvalue().replace(str(folder), "@here"), "files": files}


def contents(path):
    """The values of a file, but for those that repeat the command or depend on the machine."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path))
    if path.suffix == ".json":
        return json.loads(path.read_text(), object_hook=lambda node: {key: node[key] for key in node.keys() - REPEATED})
    return re.search("<title>.*|$", path.read_text())[0] if path.suffix == ".html" else path.read_text()


def added(cfg, folder):
    """What `vsehub add` prints, and the items that the collection then holds."""
    outcome = ran("add", cfg, folder)
    if "refused" not in outcome:
        with open_collection(location_of(cfg.engine, cfg.uri, cfg.collection)) as collection:
            outcome["items"] = collection.find(as_vectors("queries", torch.eye(collection.metadata["dim"])), 200)
    return outcome


def served(cfg, folder):
    """What `vsehub serve` prints, and its answers."""
    from starlette.testclient import TestClient

    answers = {}

    def ask(application, _):
        client = TestClient(application, "http://127.0.0.1", raise_server_exceptions=False)
        for path in ("collection", "hubs", "search?query=3", "search?text=red", "items/3"):
            answers[path] = client.get(f"/api/{path}").json()

    with (
        mock.patch("vsehub.web.server.bind", lambda *address: mock.Mock(getsockname=lambda: address)),
        mock.patch("vsehub.web.server.run", ask),
    ):
        return ran("serve", cfg, folder) | answers


def number_of(text):
    try:
        return float(text)
    except ValueError:
        return text


READ = {".csv", ".html", ".json", ".md", ".npy", ".parquet", ".txt"}
REPEATED = {"batch_size", "command", "inputs", "path", "set", "started"}
OUTCOMES = {command: functools.partial(ran, command) for command in COMMANDS} | {
    "train": trained,
    "steps": stepped,
    "data": loaded,
    "evaluate": evaluated,
    "add": added,
    "serve": served,
}
