"""Resuming a run: its recorded configuration, and the settings that the command line may change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, existing, fail, nearest, regular, require
from vsehub.cli.nodes import components, leaves, literal, plain
from vsehub.components import TARGET, component_nodes
from vsehub.io.address import require_given
from vsehub.io.files import require_no_way_out
from vsehub.io.records import RUN, read_record
from vsehub.io.text import stays_inside
from vsehub.recipes import decides

LONGER = "trainer.max_epochs"


def resumed(folder: Path, overrides: list[str]) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration of the unfinished run in `folder`, changed by key=value overrides, and its record.

    Overrides may change the number of epochs, the paths of the data and the settings of the machine: the run's record
    stays true. Raises InputError for other changes, or if the folder holds no run or a run that was moved.
    """
    cfg, record = recorded(folder)
    own = (f"data={data_choice(record)}", "resume=")
    changes = [override for override in overrides if not override.startswith(own)]
    changed = OmegaConf.from_dotlist(changes) if changes else OmegaConf.create()
    given = dict(leaves(plain(changed, resolve=False)))
    for name, value in given.items():
        if name != "trust":  # which a run has from its command only
            _require_changeable(cfg, name, value)
    require_given({name: value for name, value in leaves(plain(cfg, resolve=False)) if name not in given})
    merged = OmegaConf.merge(cfg, changed)
    assert isinstance(merged, DictConfig)  # as cfg is
    return merged, record


def recorded(folder: Path) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration of the run in `folder`, and its record. Raises InputError if there is none or it was moved."""
    record = read_record(run_record(folder), RUN, "Start a new run in another folder")
    cfg = literal(record["config"])
    # Lightning identifies the best checkpoint only by its path: in another folder any later epoch would count as best.
    place = cfg.get("run_folder")
    require(
        isinstance(place, str) and Path(place).resolve() == folder.resolve(),
        f"resume: the run in {folder} was started in {place} and can only continue there; move it back",
    )
    # A record must not decide where files are written, nor which classes are trusted.
    loggers = plain(cfg.get("logger"), resolve=False)
    for node in component_nodes(loggers):
        if node.get("save_dir") is not None:
            node["save_dir"] = place
        for name, value in leaves(node):
            texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
            require(
                name == "save_dir" or all(stays_inside(one) for one in texts),
                f"resume: logger.{name} is {value!r} in {folder / 'run.json'}, which leads out of the run's folder; "
                "start a new run",
            )
    cfg.logger = loggers
    cfg.trust = None
    return cfg, record


def data_choice(record: Mapping[str, Any]) -> str | None:
    """The name of the yaml file of a run's data, without which the command line knows no other data's settings.

    None if no file of conf/data names the class.
    """
    known = components()
    data = record["config"].get("data")
    target = data.get(TARGET) if isinstance(data, Mapping) else None
    return next((name for name in known.choices("data") if known.node("data", name)[TARGET] == target), None)


def run_record(folder: Path) -> Path:
    """The run.json of a run's folder. Raises InputError if there is none, or if a link leads out of the folder."""
    path = existing(
        "resume", folder / "run.json", "Give the folder of a run that `vsehub train` started; it holds a run.json"
    )
    require_no_way_out(folder)
    return path


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to continue from, or None if the run was killed before its first checkpoint."""
    path = folder / "checkpoints" / "last.ckpt"
    return regular(path) if path.exists() else None


def require_same_data(record: dict[str, Any], data: dict[str, dict]) -> None:
    """Raise InputError if a split differs from the one with which the run was started."""
    for split, facts in data.items():
        before = (record["data"].get(split) or {}).get("fingerprint")
        require(
            before in (None, facts["fingerprint"]),
            f"resume: the {split} data differ from those with which the run was started ({facts['fingerprint']}, not "
            f"{before}); give the same data (data.KEY=PATH if they were moved), or start a new run",
        )


def _require_changeable(cfg: DictConfig, name: str, value: Any) -> None:
    node: Any = cfg
    *above, last = name.split(".")
    for key in above:
        node = node.get(key) if OmegaConf.is_dict(node) and key in node else None
    known = [one for one, _ in leaves(plain(cfg, resolve=False))]
    require(
        OmegaConf.is_dict(node) and last in node,
        f"resume: the run has no setting {name}{nearest(name, known)}; settings can be changed, not added",
    )
    if node[last] == value:
        return
    moved = name.startswith("data.") and not name.startswith("data.noise") and isinstance(value, str)
    if OmegaConf.is_config(node[last]) or not (moved or name == LONGER or not decides(name)):
        fail(
            f"resume: {name}={value} would make the run's record false. A resumed run can only change {LONGER}, the "
            "paths of its data and settings of the machine; else start a new run"
        )
    if name == LONGER and not isinstance(value, int):
        raise InputError(f"resume: {name} is {value!r}; expected a whole number of epochs")
