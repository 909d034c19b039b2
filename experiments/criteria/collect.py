"""results.csv of the criteria study from what `measure.py` wrote; `render.py` draws it.

python experiments/criteria/collect.py FOLDER
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.recipes import label_rank

HERE = Path(__file__).parent
SIDES = ("i2t", "t2i")
COLUMNS = {f"{side}_r{k}": f"{side}/r{k}" for side in SIDES for k in (1, 5, 10)} | {
    "rsum": "rsum",
    "map_r_i2t": "i2t/map_r",
    "meanr_i2t": "i2t/meanr",
    "meanr_t2i": "t2i/meanr",
    "hs_sum": "hubness/hs_sum",
}


def results(folder: Path) -> pd.DataFrame:
    """One row a measurement."""
    rows = []
    for file in sorted(folder.glob("*/*.json")):
        record = json.loads(file.read_text())
        loss, _, seed = file.parent.name.rpartition("-")
        rows.append(
            {
                "loss": loss,
                "seed": int(seed),
                "criterion": record["criterion"],
                "reference": record["reference"],
                "settings": "tuned" if record["tuned"] else "default",
                "parameters": json.dumps(record["parameters"]),
                "val_rsum": record["tuned"]["rsum"] if record["tuned"] else None,
                "split": record["split"],
                "images": record["images"],
                "texts": record["texts"],
                "protocol": record["protocol"],
                "seconds": record["ranking_seconds"],
            }
            | {name: record["metrics"][key] for name, key in COLUMNS.items()}
        )
    frame = pd.DataFrame(rows)
    frame["r1"] = frame["i2t_r1"] + frame["t2i_r1"]
    frame["r10"] = frame["i2t_r10"] + frame["t2i_r10"]
    frame = frame.sort_values(["seed", "criterion", "reference", "settings"])
    return frame.sort_values("loss", key=lambda names: names.map(label_rank), kind="stable", ignore_index=True)


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_text(HERE / "results.csv", results(parser.parse_args().folder).to_csv(index=False, float_format="%.6g"))


if __name__ == "__main__":
    main()
