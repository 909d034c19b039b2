"""HAL with each regularisation, and with several together, under one recipe; the runs of README's table.

    python experiments/regularisation/study.py FOLDER --out runs/regularisation

FOLDER holds features in the layout of VSE++. Finished runs are not trained again, and a killed one goes on. Training is
measured on validation; `--test CASE ...` also measures these cases on the test split, plainly and corrected.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from running import run_all, training  # noqa: E402 (beside this folder, found by the line above)

PLAIN = (
    "experiment=papers",
    "loss=hal",
    "loss.gamma=60",
    "loss.epsilon=0.7",
    "text_encoder.pooling=gpo",
    "scheduler.step_size=8",
)
SHORT = ("embedding_dim=512", "trainer.max_epochs=13")
WORDS, FEATURES, EMBEDDINGS = "text_encoder.word_dropout=0.3", "image_encoder.dropout=0.2", "embedding_dropout=0.1"
AVERAGE, BOTH_WAYS = "callbacks=ema", "text_encoder.bidirectional=true"
CASES = {
    "none": (*PLAIN, *SHORT),
    "words": (*PLAIN, *SHORT, WORDS),
    "all, words left out": (*PLAIN, *SHORT, AVERAGE, WORDS, FEATURES, EMBEDDINGS, "augmentation.drop_words=0.2"),
    "all, both directions": (*PLAIN, *SHORT, AVERAGE, WORDS, FEATURES, EMBEDDINGS, BOTH_WAYS),
    "defaults": SHORT,
    "none, 1024 dimensions": (*PLAIN, "trainer.max_epochs=13"),
    "defaults, 1024 dimensions": (),
}
# Each case, and the one without regularisation that it is compared with.
WITHOUT = {
    **dict.fromkeys(["words", "all, words left out", "all, both directions", "defaults"], "none"),
    "defaults, 1024 dimensions": "none, 1024 dimensions",
}
CORRECTED = ("criterion=is", "criterion=sinkhorn")


def folder(out: Path, case: str, seed: int) -> Path:
    """The run's folder."""
    return out / f"{case.replace(', ', '+').replace(' ', '-')}-{seed}"


def main() -> None:
    """Train what is not trained, then measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=Path("runs/regularisation"), help="default: %(default)s")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--test", nargs="+", default=[], choices=list(CASES), metavar="CASE")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    given = parser.parse_args()
    place = ("data=precomp", f"data.root={given.data}", "data.name=flickr8k")
    runs = {folder(given.out, case, seed): (case, seed) for seed in given.seeds for case in given.cases}
    trainings = [
        training(path, [*place, *CASES[case], "final_split=val", f"seed={seed}"]) for path, (case, seed) in runs.items()
    ]
    measurings = [
        ["evaluate", f"checkpoint={path / 'checkpoints' / 'best.safetensors'}", *more]
        for path, (case, _) in runs.items()
        if case in given.test
        for more in ([], *([one, "reference=train", "tune=true"] for one in CORRECTED))
    ]
    failed = run_all([*filter(None, trainings), *measurings], given.dry_run)
    if failed:
        sys.exit("\n".join([f"{len(failed)} commands failed:", *failed]))


if __name__ == "__main__":
    main()
