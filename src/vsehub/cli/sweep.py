"""What `-m` does besides Hydra's own: one folder that stays, Optuna's search space, a summary at the end."""

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, flag_override

from vsehub.checks import InputError, require
from vsehub.cli import app
from vsehub.cli.sweep_digest import counts, digest_of
from vsehub.cli.sweep_job import FAILED, FINISHED, NOT_RETRIED, SKIPPED, STOPPED, Outcome, outcomes
from vsehub.files import claimed

PARENT = "runs/sweeps"  # hydra.sweep.dir as conf/train.yaml has it
RANK = (FINISHED, STOPPED, FAILED, NOT_RETRIED, SKIPPED)  # of a run that a sweep names twice the first counts


class Sweep(Callback):
    """Prepares a sweep in the process that starts it.

    began: a name for this start of the sweep. command: whose sweep it is, None if that is plain. space: setting ->
    Optuna's notation. optuna: settings of that sweeper.
    """

    running: ClassVar["list[tuple[str, str]]"] = []  # folder and `began` of the sweep that this process started
    held: ClassVar["list[FileLock]"] = []  # of the folders of outcomes, by which a killed start is known

    def __init__(self, began: str, command: str | None, space: DictConfig, optuna: DictConfig):
        self.began, self.command, self.space, self.optuna = began, command, space, optuna

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Fill in what the command line left open."""
        with app.boundary():  # Hydra turns errors in here into warnings
            self._prepare(config)

    def _prepare(self, config: DictConfig) -> None:
        hydra = config.hydra
        require(
            self.command in (None, hydra.job.name),
            f"sweep={hydra.runtime.choices.get('sweep')} is for vsehub {self.command} -m",
        )
        with flag_override(config, ["struct", "readonly"], False):
            if hydra.sweep.dir == PARENT:
                sweeper = hydra.runtime.choices["hydra/sweeper"]
                hydra.sweep.dir = f"{PARENT}/{name(config)}{'' if sweeper == 'basic' else f'-{sweeper}'}"
                hydra.overrides.hydra.append(f"hydra.sweep.dir={hydra.sweep.dir}")  # jobs compose anew from these
            if hydra.runtime.choices["hydra/sweeper"] == "optuna":
                given = {one.split("=")[0].lstrip("+") for one in hydra.overrides.hydra}
                for key, value in leaves(self.optuna):
                    if f"hydra.sweeper.{key}" not in given:
                        OmegaConf.update(hydra.sweeper, key, value)
                hydra.sweeper.params = dict(hydra.sweeper.params or {}) | dict(self.space)
        self.running.append((hydra.sweep.dir, self.began))
        forget_killed(hydra.sweep.dir)
        self.held.append(claimed(outcomes(hydra.sweep.dir, self.began), "sweeping"))


def name(config: DictConfig) -> str:
    """The sweep's name: its study's, its file's, or the swept settings with a digest of those that are not."""
    if config.get("study") is not None:
        return readable(str(config.study))
    chosen = config.hydra.runtime.choices.get("sweep")
    if chosen is not None:
        return readable(chosen)
    overrides = OverridesParser.create().parse_overrides(list(config.hydra.overrides.task))
    own = [one for one in overrides if counts(one.key_or_group)]
    names = sorted(one.key_or_group for one in own if one.is_sweep_override())
    fixed = sorted(one.input_line for one in own if not one.is_sweep_override())
    return readable("-".join([*names, *([digest_of(fixed)] if fixed else [])]) or "one")


def readable(text: str) -> str:
    """Text as a folder's name."""
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "one"


def leaves(node: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values."""
    for key, value in node.items():
        if OmegaConf.is_dict(value):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def forget_killed(sweep: str) -> None:
    """Remove the outcomes that were noted by starts of this sweep that were killed before they told them."""
    for folder in Path(sweep).glob(".outcomes-*"):
        with suppress(InputError):  # that start lives
            lock = claimed(folder, "sweeping")
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


@contextmanager
def summary() -> Iterator[None]:
    """Say at the end of a sweep what became of its runs, however it ends; exits with 1 where any failed."""
    failed = False
    try:
        yield
    finally:
        while Sweep.running:
            failed |= tell(*Sweep.running.pop())
        while Sweep.held:
            Sweep.held.pop().release()
    if failed:
        raise SystemExit(1)


def tell(sweep: str, began: str) -> bool:
    """Print what became of the runs; whether any failed."""
    folder = outcomes(sweep, began)
    found = [Outcome(**json.loads(file.read_text())) for file in folder.glob("*.json")]
    shutil.rmtree(folder, ignore_errors=True)
    runs: dict[str, Outcome] = {}
    for one in sorted(found, key=lambda one: (one.folder, RANK.index(one.state))):
        runs.setdefault(one.folder, one)
    number = Counter(one.state for one in runs.values())
    wrong = [one for one in runs.values() if one.state in (FAILED, NOT_RETRIED)]
    print(
        f"\nsweep {sweep}: {number[FINISHED]} run{'' if number[FINISHED] == 1 else 's'} finished, {number[SKIPPED]} "
        f"skipped (finished before), {len(wrong)} failed"
        + (f" ({number[NOT_RETRIED]} of them before, not retried)" if number[NOT_RETRIED] else "")
        + (f", {number[STOPPED]} stopped: the same command goes on with it" if number[STOPPED] else "")
    )
    for one in wrong:
        print(f"  failed: {one.folder}: {one.error}", file=sys.stderr)
    if wrong:
        print("retry_failed=true with the same command tries the failed ones again", file=sys.stderr)
    print(f"vsehub report {Path(sweep)}")
    return bool(wrong)
