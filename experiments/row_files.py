"""The published rows' files: what each row measures, which row is trained for it, and with which settings."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
PUBLISHED = ROOT / "experiments" / "papers" / "paper_tables.csv"
FEATURES = {
    "vgg19": "vgg19",
    "irv2": "inception_resnet_v2",
    "resnet152": "resnet152",
    "scan": "regions",
    "order": "vgg19",
}
GROUPS = ("loss", "bank", "similarity", "image_encoder", "text_encoder")


@dataclass(frozen=True)
class Row:
    """A published row that has a file.

    name: the file's, as `experiment=` or `row=` takes it. line: the row's number in its paper. trained: the name of the
    row whose training is measured, its own or another.
    """

    name: str
    line: str
    dataset: str
    architecture: str
    trained: str
    criterion: str
    protocol: str
    tuned: bool | str

    @property
    def features(self) -> str:
        """The subfolder of its data set's features."""
        return next(folder for name, folder in FEATURES.items() if name in self.architecture)


def rows(paper: str, table: str) -> tuple[list[Row], list[str]]:
    """The rows of a table that have a file, and the lines of those that have none: other papers' architectures."""
    frame = pd.read_csv(PUBLISHED, dtype={"table": str, "line": str})
    frame = frame[(frame["paper"] == paper) & (frame["table"] == table)]
    files = []
    for _, row in frame.dropna(subset="file").iterrows():
        settings, chosen = read(row["file"])
        files.append(
            Row(
                row["file"],
                row["line"],
                row["dataset"],
                row["architecture"],
                settings.get("evaluates", row["file"]),
                chosen.get("criterion", "nns"),
                chosen.get("protocol", "single"),
                settings.get("tune", False),
            )
        )
    return files, frame["line"][frame["file"].isna()].tolist()


def file_of(name: str) -> Path:
    """A row's file: in conf/row if it measures what another row trains."""
    path = CONF / "row" / f"{name}.yaml"
    return path if path.is_file() else CONF / "experiment" / f"{name}.yaml"


def read(name: str) -> tuple[dict, dict[str, str]]:
    """The settings of a row's file, and its choices by group."""
    settings = yaml.safe_load(file_of(name).read_text())
    pairs = [next(iter(entry.items())) for entry in settings.pop("defaults")]
    return settings, {key.removeprefix("override /"): value for key, value in pairs}


def elsewhere(name: str, published_rate: bool = True) -> list[str]:
    """A trained row's losses, encoders, learning rate and positives, for data of another size and kind.

    Epochs, batch size and the bank's k, which belong to the size of the papers' data, are left to that data's own
    settings; so is the learning rate where `published_rate` is false.
    """
    settings, chosen = read(name)
    groups = [f"{group}={chosen[group]}" for group in GROUPS if group in chosen]
    of_loss = [f"loss.{key}={value}" for key, value in settings.get("loss", {}).items()]
    rate = [f"optimizer.lr={settings['optimizer']['lr']}"] if published_rate else []
    return [*groups, *of_loss, *rate, f"positives={settings['positives']}"]


def criterion_settings(name: str) -> dict:
    """A criterion's settings as its file has them, those of a chain's steps together."""
    settings = yaml.safe_load((CONF / "criterion" / f"{name}.yaml").read_text())
    steps = settings.get("steps", [settings])
    return {key: value for step in steps for key, value in step.items() if key != "_target_"}
