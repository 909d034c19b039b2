"""The papers' figures: batch size, k and the bank's size, one loss beside the other, corrections, matching, hubness.

    python -m experiments claims train DATA                     or: train scenes; --cases "k-*" for one sweep
    python -m experiments claims measure RUNS...
    python -m experiments claims collect RUNS... --measured MEASURED
    python -m experiments claims render

DATA: "scenes", or a folder in the layout of VSE++ with one vector an image. Seed by seed, so that a part is of use.
Beside the swept values the same runs compare the losses: each sweep holds the papers' value. RUNS: run folders or
folders of them, of this study or the grid.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from experiments.claims.collect import trainings, write
from experiments.claims.curves import compared
from experiments.claims.judging import held
from experiments.claims.measure import measure_run
from experiments.claims.parts import PARTS, data_text
from experiments.compare import loss_overrides
from experiments.evidence import judged_table, read_expected, renew, verdict
from experiments.plots import save
from experiments.study import DATA_ROOT, MEASURED, RUNS, TO, Given, Study, Trainings, option, verb

SEEDS = (0, 1, 2)
EMBEDDING_DIM = 256
EPOCHS = 8
DECAY = 6  # epochs after which the learning rate falls to a tenth


@dataclass(frozen=True)
class Sweep:
    """One setting over `values`, for some losses."""

    setting: str
    values: tuple[float, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """The trainings on one data set: its settings; each loss's own; the sweeps."""

    settings: tuple[str, ...]
    sweeps: dict[str, Sweep]
    further: dict[str, list[str]] = field(default_factory=dict)
    seeds: tuple[int, ...] = SEEDS


HINGES, RESCALED = ("sum", "max", "hal"), ("rescaled_sum", "rescaled_max", "knn_margin")
# Chosen on val by the grid's pilot among the papers' settings; losses that are not named keep their recipe.
# Rescaled MAX too: at five times its published rate it collapsed there.
MARGIN = ["loss.margin=0.05", "optimizer.lr=0.001"]
WEIGHTS = ["loss.gamma=60", "loss.epsilon=0.7"]
FEATURES = Data(
    settings=(
        "experiment=papers",
        "data=precomp",
        "data.root={data}",
        "data.name={name}",
        f"embedding_dim={EMBEDDING_DIM}",
        f"trainer.max_epochs={EPOCHS}",
        f"scheduler.step_size={DECAY}",
    ),
    sweeps={
        "batch_size": Sweep("loader.batch_size", (128, 32, 64, 256, 512), HINGES),
        "k": Sweep("loss.k", (3, 1, 5, 10, 20), RESCALED),
        "bank": Sweep("bank.fraction", (0.05, 0.01, 0.02, 0.1, 0.2), ("hal+mb",)),
    },
    further={"sum": MARGIN, "max": MARGIN, "hal": WEIGHTS, "hal+mb": WEIGHTS},
)
# Twelve runs of 25 s: it shows that all works, and no more.
SCENES = Data(
    settings=(
        "experiment=demo",
        "embedding_dim=64",
        "image_encoder.width=8",
        "text_encoder.word_dim=64",
        "trainer.max_epochs=4",
        "scheduler.step_size=3",
    ),
    sweeps={
        "batch_size": Sweep("loader.batch_size", (64, 256), HINGES),
        "k": Sweep("loss.k", (3, 10), ("rescaled_sum", "knn_margin")),
        "bank": Sweep("bank.fraction", (0.05, 0.2), ("hal+mb",)),
    },
    further={"max": ["optimizer.lr=0.0005"]},
    seeds=(0,),
)


def trained(data: Data) -> Trainings:
    """The runs of each sweep, value and loss."""
    cases = {
        f"{sweep}-{value:g}/{loss}": [*loss_overrides(loss), f"{values.setting}={value:g}", *data.further.get(loss, ())]
        for sweep, values in data.sweeps.items()
        for value in values.values
        for loss in values.losses
    }
    return Trainings(cases, data.settings, data.seeds, scenes=None if data is SCENES else trained(SCENES))


@verb(RUNS, MEASURED, DATA_ROOT)
def measure(options: Given) -> None:
    """Measure the runs that compare the losses, as far as that is not done, unless a run was trained anew since."""
    runs, frame = trainings(options.runs)
    for index in compared(frame):
        row = frame.loc[index]
        out = options.measured / f"{row['loss']}-{row['seed']}-{row['recipe']}"
        measure_run(Path(row["path"]), runs[row["path"]], out, options.root)


@verb(RUNS, option("--measured", nargs="+", type=Path, default=[], help="folders of measurements"), TO)
def collect(options: Given) -> None:
    """Write results.csv and the tables beside it."""
    write(options.runs, options.measured, options.folder)


TABLES = ("results", "epochs", "lambda", "occurrences", "published")


def render(folder: Path) -> None:
    """Draw the figures and the README's generated parts; what the tables lack is said."""
    data = {name: pd.read_csv(folder / f"{name}.csv", dtype={"recipe": str, "table": str}) for name in TABLES}
    data["results"]["figures"] = data["results"]["figures"].fillna("")
    claims = held(data["results"], data["epochs"], data["lambda"], read_expected(folder))
    page = [data_text(data["results"]), judged_table(claims[claims["p"].notna()]).markdown()]
    for name, (title, part) in PARTS.items():
        text, picture = part(data)
        if picture is None:
            (folder / "figures" / f"{name}.png").unlink(missing_ok=True)
            text = "Not drawn: no finished run or measurement of it is among those collected."
        else:
            save(folder, picture)
            text = f"![{picture.caption}](figures/{name}.png)\n\n{text}"
        page.append(f"### {title}\n\n{text}".rstrip())
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", "\n\n".join(page), "figures")


STUDY = Study(
    __file__,
    trainings={"results": trained(FEATURES)},
    render=render,
    verbs={"measure": measure, "collect": collect},
)
