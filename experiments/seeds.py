"""Parts of pages on trainings with several seeds: a table of the cases, and claims tested over the seeds."""

from pathlib import Path

import pandas as pd

from experiments.evidence import judged, judged_table, over_seeds, read_expected, renew, verdict
from vsehub.report.tables import ReportTable


def tell(folder: Path, frame: pd.DataFrame, case: str) -> None:
    """Write the README's parts "verdict", "claims" and "cases".

    frame: a row a run, in the order of the table: `case`, seed, images, best_epoch, val_rsum, rsum and hs_sum.
    """
    claims = judged(frame, read_expected(folder), case)
    renew(folder / "README.md", judged_table(claims).markdown(), "claims")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", cases(frame, case).markdown(), "cases")


def cases(frame: pd.DataFrame, case: str) -> ReportTable:
    """Means over the seeds with their sample deviation, a row a case."""
    rows = [
        [
            str(name),
            str(len(own)),
            *(over_seeds(own[one]) for one in ("val_rsum", "rsum", "hs_sum")),
            f"{own['best_epoch'].mean():.1f}",
        ]
        for name, own in frame.groupby(case, sort=False)
    ]
    head = [case, "seeds", "val rsum", "test rsum", "hs_sum", "best epoch"]
    return ReportTable(head, rows, "Means over the seeds ± one sample deviation; epochs count from 0.", words=1)
