"""The check of last.ckpt: whether it is a state that the run that continues could have written itself.

Nothing is loaded before all of it fits: Lightning and PyTorch take over counters, lists and tensors as they are, and
the fused optimizers read a tensor of another shape beyond its end.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytorch_lightning as pl
import torch
from pytorch_lightning.__version__ import version as LIGHTNING
from torch import Tensor, nn
from torch.optim import Optimizer

from vsehub.checks import fail
from vsehub.io.records import RUN, read_record
from vsehub.training.callbacks.average import WeightAverage, trained
from vsehub.training.callbacks.collapse import CollapseDetector
from vsehub.training.checkpoint import AGAIN, PATHS, LastState, load_state, parameter_names
from vsehub.training.module import RetrievalModule
from vsehub.training.run_record import RunRecorder

_LARGEST = 1 << 48  # of a counter
_EXECUTION = ("foreach", "fused", "capturable")  # how an optimizer computes, on one machine or another
_KEYS = (
    *("epoch", "global_step", "pytorch-lightning_version", "state_dict", "loops", "callbacks"),
    *("optimizer_states", "lr_schedulers", "vsehub"),
)


def read_state(path: Path, lightning: pl.Trainer, module: RetrievalModule, folder: Path) -> dict[str, Any]:
    """The state in `path`, from which `lightning` can continue the training of `module`.

    folder: the run's. Raises InputError, with the first part that is wrong, where any part of the state is not one
    that this run could have written: weights, optimizer, schedule, counters, callbacks or history.
    """
    state = load_state(path)
    _Check(path, state, lightning, module, folder)
    return state


class _Check:
    """The check of one state, part by part. Raises InputError."""

    def __init__(self, path: Path, state: dict[str, Any], lightning: pl.Trainer, module: RetrievalModule, folder: Path):
        self.path, self.state, self.module, self.folder = path, state, module, folder
        self.lightning: Any = lightning
        self.epochs = len(state["callbacks"]["RunRecorder"]["rows"])
        self.steps: int = state["global_step"]
        plugin = lightning.precision_plugin
        own = plugin.state_dict()
        self.keys("entries", state, [*_KEYS, *([type(plugin).__qualname__] if own else [])])
        self.history()
        self.description()
        self.tensors("weight", state["state_dict"], module.state_dict())
        self.loops()
        optimizer, schedule = self.after_epochs()
        self.optimizer(optimizer)
        self.same("schedule", state["lr_schedulers"], [schedule])
        self.callbacks()
        if own:
            self.alike(type(plugin).__qualname__, state[type(plugin).__qualname__], own)

    def wrong(self, what: str) -> NoReturn:
        fail(f"resume: {self.path} does not fit the run in {self.folder}: {what}. {AGAIN}")

    def keys(self, what: str, held: Any, expected: Iterable[str]) -> None:
        """The names in a mapping are those expected, in any order."""
        if not isinstance(held, Mapping):
            self.wrong(f"{what}: a {type(held).__name__} instead of a mapping")
        lacking = [str(name) for name in expected if name not in held]
        other = [str(name)[:60] for name in held if name not in set(expected)]
        if lacking or other:
            self.wrong(f"{what}: " + (f"{lacking[0]} is absent" if lacking else f"{other[0]} is unknown"))

    def number(self, what: str, held: Any, least: int, most: int) -> None:
        """A whole number in a range."""
        if type(held) is not int or not least <= held <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self.wrong(f"{what} is {str(held)[:60]}; expected {wanted}")

    def alike(self, what: str, held: Any, fresh: Any) -> None:
        """The same names, types and shapes as in `fresh`, a state before training; counters may be larger.

        Where `fresh` has None, `held` may have None, a text, a number or a tensor of one number.
        """
        if isinstance(fresh, Mapping):
            self.keys(what, held, fresh)
            for name, one in fresh.items():
                self.alike(f"{what}.{name}", held[name], one)
        elif isinstance(fresh, list | tuple):
            if type(held) is not type(fresh) or len(held) != len(fresh):
                self.wrong(f"{what}: expected {len(fresh)} entries")
            for place, one in enumerate(fresh):
                self.alike(f"{what}[{place}]", held[place], one)
        elif isinstance(fresh, Tensor):
            self.tensor(what, held, fresh.shape, fresh.dtype)
        elif type(fresh) is int:
            self.number(what, held, 0, _LARGEST)
        elif fresh is None:
            small = isinstance(held, Tensor) and held.dim() == 0
            if not (small or held is None or isinstance(held, str | bool | int | float)):
                self.wrong(f"{what} is a {type(held).__name__}")
        elif type(held) is not type(fresh):
            self.wrong(f"{what} is a {type(held).__name__}; expected a {type(fresh).__name__}")

    def same(self, what: str, held: Any, expected: Any) -> None:
        """Equal values; numbers up to rounding."""
        if isinstance(expected, Mapping):
            self.keys(what, held, expected)
            for name, one in expected.items():
                self.same(f"{what}.{name}", held[name], one)
        elif isinstance(expected, list | tuple):
            if not isinstance(held, list | tuple) or len(held) != len(expected):
                self.wrong(f"{what}: expected {len(expected)} entries")
            for place, one in enumerate(expected):
                self.same(f"{what}[{place}]", held[place], one)
        else:
            alike = type(held) is type(expected)
            near = alike and type(held) is float and math.isclose(held, expected, rel_tol=1e-6, abs_tol=1e-12)
            if not (near or (alike and held == expected)):
                self.wrong(f"{what} is {str(held)[:60]}; expected {expected}")

    def tensor(self, what: str, held: Any, shape: torch.Size, dtype: torch.dtype) -> None:
        """A tensor of this shape and type."""
        if not isinstance(held, Tensor):
            self.wrong(f"{what} is a {type(held).__name__}; expected a tensor")
        if (held.shape, held.dtype, held.layout) != (shape, dtype, torch.strided):
            self.wrong(f"{what} is {list(held.shape)} of {held.dtype}; expected {list(shape)} of {dtype}")

    def tensors(self, what: str, held: Any, own: Mapping[str, Tensor]) -> None:
        """The tensors of the run's own names, shapes and types."""
        self.keys(f"{what}s", held, own)
        for name, tensor in own.items():
            self.tensor(f"{what} {name}", held[name], tensor.shape, self.converted(tensor.dtype))

    def converted(self, dtype: torch.dtype) -> torch.dtype:
        """The type that the trainer's precision gives to the weights of a type when training begins."""
        probe = nn.Module()
        probe.register_buffer("one", torch.zeros(1, dtype=dtype))
        return self.lightning.precision_plugin.convert_module(probe).get_buffer("one").dtype

    def history(self) -> None:
        """The rows of the epochs, which agree with the counters and with run.json."""
        state, recorder = self.state, self.state["callbacks"]["RunRecorder"]
        self.keys("callbacks.RunRecorder", recorder, ("rows", "started"))
        self.number("epoch", state["epoch"], self.epochs - 1, self.epochs - 1)
        before = 0
        for place, row in enumerate(recorder["rows"]):
            for name, value in row.items():
                if not isinstance(name, str) or type(value) not in (int, float):
                    self.wrong(f"the history of epoch {place}: {str(name)[:60]} is {str(value)[:60]}")
            self.number(f"the history of epoch {place}: epoch", row.get("epoch"), place, place)
            self.number(f"the history of epoch {place}: step", row.get("step"), before, self.steps)
            before = row["step"]
            for name in ("lr", "seconds"):
                if not 0 <= row.get(name, -1) < math.inf:
                    self.wrong(f"the history of epoch {place}: {name} is {row.get(name)}")
        self.number("global_step", self.steps, before, before)
        record = read_record(self.folder / "run.json", RUN, "Start a new run in another folder")
        if recorder["started"] != record.get("started"):
            self.wrong(f"its run was started {str(recorder['started'])[:60]}, run.json says {record.get('started')}")
        # A run may be broken off between the end of an epoch and its checkpoint.
        self.number("epochs in run.json", record.get("epochs", 0), 0, self.epochs + 1)
        version = str(state["pytorch-lightning_version"]).split(".")
        if version[0] != LIGHTNING.split(".")[0] or not all(part.isalnum() for part in version):
            self.wrong(f"it was written by version {'.'.join(version)[:60]} of Lightning, not {LIGHTNING}")

    def description(self) -> None:
        """The description of the model; data and loader may lie elsewhere than at the run's start."""
        self.keys("vsehub", self.state["vsehub"], ("version", "description"))
        held, own = self.state["vsehub"]["description"], self.module.description
        self.keys("description", held, own)
        for name, value in own.items():
            if name == "config":
                self.keys("description.config", held[name], value)
                for part, settings in value.items():
                    if part not in ("data", "loader"):
                        self.same(f"description.config.{part}", held[name][part], settings)
                    elif not isinstance(held[name][part], Mapping):
                        self.wrong(f"description.config.{part}: expected settings")
            else:
                self.same(f"description.{name}", held[name], value)

    def loops(self) -> None:
        """Lightning's counters of epochs, batches and steps."""
        held, loops = self.state["loops"], ("fit_loop", "validate_loop", "test_loop", "predict_loop")
        self.keys("loops", held, loops)
        for name in loops:
            self.alike(f"loops.{name}", held[name], getattr(self.lightning, name).state_dict())
        fit = held["fit_loop"]
        optimizer = fit["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
        exact = {
            "epoch_progress": (fit["epoch_progress"], self.epochs),
            "optimizer.step": (optimizer["step"], self.steps),
            "scheduler_progress": (fit["epoch_loop.scheduler_progress"], self.epochs),
        }
        for name, (counts, total) in exact.items():
            for kind in ("total", "current"):
                one = counts[kind]
                # An epoch is complete only after its checkpoint.
                done = total - 1 if name == "epoch_progress" else one["ready"]
                if kind == "total" or name == "epoch_progress":
                    self.number(f"loops.{name}.{kind}.ready", one["ready"], total, total)
                self.number(f"loops.{name}.{kind}.ready", one["ready"], 0, total)
                self.number(f"loops.{name}.{kind}.completed", one["completed"], done, done)
        batches = fit["epoch_loop.batch_progress"]
        for kind, most in (("total", _LARGEST), ("current", batches["total"]["ready"])):
            for name, count in batches[kind].items():
                self.number(f"loops.batch_progress.{kind}.{name}", count, 0, most)
                if count != batches[kind]["ready"]:
                    self.wrong(f"loops.batch_progress.{kind}.{name} is {count}, not {batches[kind]['ready']}")
        self.number("loops.batch_progress.total", batches["total"]["ready"], self.steps, _LARGEST)

    def after_epochs(self) -> tuple[Optimizer, dict[str, Any]]:
        """A fresh optimizer of the module with its rates after the run's epochs, and the state of its schedule."""
        made = self.module.configure_optimizers()
        optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
        optimizer.step()  # without gradients, so that nothing changes; a schedule wants the first step before its own
        for _ in range(self.epochs):
            scheduler.step()
        return optimizer, scheduler.state_dict()

    def optimizer(self, own: Optimizer) -> None:
        """The options of each group of parameters, and the tensors that the optimizer keeps of each parameter."""
        states = self.state["optimizer_states"]
        if not isinstance(states, list) or len(states) != 1:
            self.wrong("optimizer_states: expected the state of one optimizer")
        held = states[0]
        self.keys("optimizer", held, ("state", "param_groups"))
        groups, names = held["param_groups"], parameter_names(own, self.module)
        if not isinstance(groups, list) or len(groups) != len(own.param_groups):
            self.wrong(f"optimizer: expected {len(own.param_groups)} groups of parameters")
        made: dict[tuple, dict[str, Any]] = {}
        allowed: dict[str, dict[str, Any]] = {}
        for place, (group, expected) in enumerate(zip(groups, own.param_groups, strict=True)):
            what = f"optimizer group {place}"
            self.keys(what, group, expected)
            own_names = [names[id(one)] for one in expected["params"]]
            if group["params"] != own_names:
                self.wrong(f"{what}: other parameters, or another order")
            for option, value in expected.items():
                if option not in ("params", *_EXECUTION):
                    self.same(f"{what}: {option}", group[option], value)
            for name, parameter in zip(own_names, expected["params"], strict=True):
                like = place, parameter.shape, self.converted(parameter.dtype)
                if like not in made:
                    made[like] = _after_a_step(type(own), expected, parameter.shape, like[2])
                allowed[name] = made[like]
        if not isinstance(held["state"], Mapping):
            self.wrong("optimizer: state is no mapping")
        for name, kept in held["state"].items():  # one that never had a gradient has none
            if name not in allowed:
                self.wrong(f"optimizer: {str(name)[:60]} is not a parameter that is trained")
            self.keys(f"optimizer {name}", kept, allowed[name])
            for key, value in allowed[name].items():
                self.alike(f"optimizer {name}: {key}", kept[key], value)
                if key == "step" and not 0 < float(kept[key]) <= self.steps:
                    self.wrong(f"optimizer {name}: step is {float(kept[key]):g}; expected 1 to {self.steps}")

    def callbacks(self) -> None:
        """The state of each callback; the files that they name are the run's own."""
        held = self.state["callbacks"]
        stateful = [one for one in self.lightning.callbacks if one.state_dict()]
        self.keys("callbacks", held, [one.state_key for one in stateful])
        for callback in stateful:
            what, state = type(callback).__name__, held[callback.state_key]
            fresh = callback.state_dict()
            if isinstance(callback, RunRecorder):
                continue  # its history is checked
            self.keys(what, state, fresh)
            if isinstance(callback, WeightAverage):
                self.number(f"{what}.steps", state["steps"], self.steps, self.steps)
                self.tensors(f"{what} weight", state["weights"], trained(self.module))
            elif isinstance(callback, LastState):
                self.kept_model(what, callback, state)
            elif isinstance(callback, CollapseDetector):
                self.collapse(what, state)
            else:
                self.alike(what, state, fresh)
                for name in inspect.signature(type(callback)).parameters.keys() & fresh.keys():
                    self.same(f"{what}.{name}", state[name], fresh[name])  # a setting, which the record has too

    def collapse(self, what: str, state: Mapping[str, Any]) -> None:
        """What the detector of collapse has seen."""
        if type(state["collapsed"]) is not bool:
            self.wrong(f"{what}.collapsed is {str(state['collapsed'])[:60]}; expected true or false")
        if state["since"] is not None:
            self.number(f"{what}.since", state["since"], 0, self.steps)
        first = state["first"]
        if first is not None:
            self.keys(f"{what}.first", first, ("epoch", "step", "seen"))
            self.number(f"{what}.first.epoch", first["epoch"], 0, self.epochs - 1)
            self.number(f"{what}.first.step", first["step"], 0, self.steps)
            if not isinstance(first["seen"], list) or not all(isinstance(one, str) for one in first["seen"]):
                self.wrong(f"{what}.first.seen: expected texts")

    def kept_model(self, what: str, callback: LastState, state: Mapping[str, Any]) -> None:
        """Scores and the file's name of the best model or of the last state."""
        file = f"{callback.filename}{callback.FILE_EXTENSION}"
        self.same(f"{what}.monitor", state["monitor"], callback.monitor)
        kept = state["best_k_models"]
        if not isinstance(kept, Mapping):
            self.wrong(f"{what}.best_k_models: expected a mapping")
        for name, held in [*((name, state[name]) for name in PATHS), *(("best_k_models", one) for one in kept)]:
            if held not in ("", file):
                self.wrong(f"{what}.{name} is {str(held)[:200]}; expected {file}")
        scores = {name: state[name] for name in ("best_model_score", "current_score", "kth_value")}
        for name, score in [*scores.items(), *kept.items()]:
            if score is not None:
                self.tensor(f"{what}: the score {name}", score, torch.Size(), torch.float32)
        if callback.monitor is not None:
            if state["best_model_score"] is None:
                self.wrong(f"{what}: no best score")
            best = max(row["val/rsum"] for row in self.state["callbacks"]["RunRecorder"]["rows"])
            self.same(f"{what}.best_model_score", float(state["best_model_score"]), best)


def _after_a_step(
    kind: Callable[..., Optimizer], group: Mapping[str, Any], shape: torch.Size, dtype: torch.dtype
) -> dict[str, Any]:
    """What an optimizer keeps of a parameter of this shape after its first step."""
    parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    made = kind([{**group, "params": [parameter]}])
    made.step()
    return dict(made.state[parameter])
