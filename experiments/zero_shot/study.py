"""Zero-shot retrieval of open_clip's models, plain and under every criterion, beside published rows.

    python -m experiments zero_shot measure --data coco dataset_coco.json COCO \\
        --data flickr30k dataset_flickr30k.json FLICKR30K
    python -m experiments zero_shot render

The JSON files are Karpathy's, COCO and FLICKR30K folders of photos; nothing is downloaded. Of each model `vsehub
extract` writes the vectors of training and test split, and `vsehub rerank` ranks the test split in both directions. The
reference of a criterion is the training split of the same data set (inductive), that of another one (out of domain), or
"queries", the test queries (transductive). The same command continues a killed one.
"""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from experiments.evidence import renew
from experiments.running import run_all
from experiments.study import DRY_RUN, TO, Given, Study, finish, option, verb
from vsehub.criteria.auto import candidates
from vsehub.evaluation.zero_shot import slug
from vsehub.io.files import write_text
from vsehub.report.tables import ReportTable

OPENAI = ("ViT-B-32-quickgelu/openai", "ViT-B-16-quickgelu/openai", "ViT-L-14-quickgelu/openai")
MODELS = (*OPENAI, "ViT-B-32/laion2b_s34b_b79k", "ViT-L-14/laion2b_s32b_b82k", "ViT-B-16-SigLIP/webli")
CRITERIA = [*list(candidates())[1:], "dual_is", "dbsn"]
IMAGES, TEXTS = "images::img_emb", "texts::text_emb"
RESULT, REVERSED = "result.json", "reversed.csv"
SIDES = {"text to image": (TEXTS, IMAGES, "test.csv"), "image to text": (IMAGES, TEXTS, REVERSED)}
KEYS = ["model", "data", "direction", "criterion", "reference"]
RECALLS = ["r1", "r5", "r10"]
DATA = ("NAME", "JSON", "PHOTOS")


@verb(
    option("--data", nargs=3, action="append", required=True, metavar=DATA, help="again for each data set"),
    option("--models", nargs="+", default=MODELS, metavar="MODEL", help="NAME/WEIGHTS of open_clip, or folders"),
    option("--criteria", nargs="+", default=CRITERIA, metavar="CRITERION", help="default: all"),
    option("--out", type=Path, default=Path("runs/zero_shot"), help="vectors and rankings; default: %(default)s"),
    TO,
    DRY_RUN,
)
def measure(given: Given) -> None:
    """Encode and rank what is missing, model by model, and write results.csv."""
    path, failed = given.folder / "results.csv", []
    for model in given.models:
        places = {name: given.out / slug(f"open_clip:{model}") / name for name, _, _ in given.data}
        broken = run_all(
            [
                [
                    *("extract", "data=karpathy", f"data.json={table}", f"data.images={photos}", "splits=[train,test]"),
                    *("image_encoder=open_clip", f"image_encoder.model={model}", f"out={places[name]}"),
                ]
                for name, table, photos in given.data
                if not (places[name] / "manifest.json").is_file()
            ],
            given.dry_run,
        )
        asked = {} if broken else rankings(places, given.criteria)
        for place in () if broken or given.dry_run else places.values():
            write_text(place / REVERSED, (place / "test.csv").read_text().replace("query,item", "item,query", 1))
        waiting = [command for folder, (_, command) in asked.items() if not (folder / RESULT).is_file()]
        failed += broken + run_all(waiting, given.dry_run)
        rows = [pd.read_csv(path)] if path.is_file() else []
        for folder, (keys, _) in asked.items():
            if (folder / RESULT).is_file():
                plain, corrected = json.loads((folder / RESULT).read_text())["rankings"]
                for own, ranking in ((*keys[:2], "nns", "none"), plain), (keys, corrected):
                    recalls = [ranking["truth"][name] for name in RECALLS]
                    rows.append(pd.DataFrame([[model, *own, *recalls]], columns=[*KEYS, *RECALLS]))
        if rows:
            frame = pd.concat(rows).drop_duplicates(KEYS, keep="last")
            write_text(path, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    finish(failed, "command")


def rankings(places: dict[str, Path], criteria: Sequence[str]) -> dict[Path, tuple[tuple[str, ...], list[str]]]:
    """Each ranking's folder, its data set, direction, criterion and reference, and its command.

    places: the folders of the data sets' vectors.
    """
    found = {}
    for name, direction, criterion, reference in product(places, SIDES, criteria, [*places, "queries"]):
        place, (queries, items, truth) = places[name], SIDES[direction]
        folder = place / "rankings" / f"{direction}, {criterion}, {reference}".replace(", ", "+").replace(" ", "-")
        command = ["rerank", f"queries={place}/test/{queries}", f"items={place}/test/{items}", f"truth={place}/{truth}"]
        other = [f"reference={places[reference]}/train/{queries}"] if reference in places else []
        found[folder] = (
            (name, direction, criterion, reference),
            [*command, *other, f"criterion={criterion}", f"out={folder}"],
        )
    return found


def render(folder: Path) -> None:
    """Write the README's tables from published.csv and, once it exists, results.csv."""
    published, path = pd.read_csv(folder / "published.csv"), folder / "results.csv"
    measured = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=[*KEYS, *RECALLS])
    both = published.merge(measured, "left", KEYS, suffixes=("", " measured"))
    both["set"] = both["data"] + ", " + both["direction"]
    both["cell"] = [
        f"{one:.2f}" if pd.isna(own) else f"{one:.2f} ({own:.2f})"
        for one, own in both[["r1", "r1 measured"]].itertuples(index=False)
    ]
    measured["cell"] = measured["r1"].map("{:.1f}".format)
    renew(folder / "README.md", table(both, ["model", "criterion", "source"], "set"), "published")
    renew(folder / "README.md", table(measured, KEYS[:3], "criterion") if len(measured) else "None yet.", "measured")


def table(frame: pd.DataFrame, rows: list[str], column: str) -> str:
    """Markdown: the cells by `rows` and `column`; those of several references side by side."""
    wide = frame.pivot_table("cell", rows, column, aggfunc=" / ".join, sort=False).fillna("–").reset_index()
    return ReportTable(list(wide.columns), wide.to_numpy().tolist(), words=len(rows)).markdown()


STUDY = Study(__file__, render=render, verbs={"measure": measure})
