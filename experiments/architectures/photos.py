"""How far does a small network get that is trained from scratch on photos? One run with the default recipe.

    python experiments/architectures/photos.py DATA --out runs/photos

DATA: a folder with dataset_flickr8k.json and images/. Writes photos.csv, a row an epoch and one of the test split,
beside this file; `render.py` draws it. A killed command goes on where it was.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from running import run_all, training  # noqa: E402 (beside this folder, found by the line above)
from study import PHOTOS  # noqa: E402

RECIPE = [
    *("text_encoder.bidirectional=false", "loader.max_words=20", "embedding_dim=512"),
    *("trainer.max_epochs=25", "scheduler=cosine"),
]


def curve(run: Path) -> pd.DataFrame:
    """val/rsum and the training loss epoch by epoch; the last row is the best epoch's model on the test split."""
    history = pd.read_csv(run / "metrics.csv")[["epoch", "seconds", "train/loss", "val/rsum"]]
    record = json.loads((run / "run.json").read_text())
    last = {"epoch": record["best"]["epoch"], "test/rsum": record["metrics"]["test/rsum"]}
    return pd.concat([history, pd.DataFrame([last])], ignore_index=True)


def main() -> None:
    """Read the command line, train, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/photos"), help="default: %(default)s")
    parser.add_argument("--dry-run", action="store_true", help="print the training, run nothing")
    arguments = parser.parse_args()
    told = training(arguments.out, [*(one.format(arguments.data) for one in PHOTOS), *RECIPE])
    failed = run_all([told] if told else [], arguments.dry_run)
    if failed:
        sys.exit(1)
    if not arguments.dry_run:
        write_text(HERE / "photos.csv", curve(arguments.out).to_csv(index=False, float_format="%.6g"))


if __name__ == "__main__":
    main()
