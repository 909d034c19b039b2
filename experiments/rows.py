"""docs/rows.md: every published row, its figure and its commands, from the tables, conf/experiment and conf/row.

python -m experiments rows [PAGE]
"""

from pathlib import Path

import pandas as pd

from experiments.evidence import number, renew
from experiments.row_files import read
from experiments.study import Given, option, verb

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "experiments" / "papers" / "paper_tables.csv"
TITLES = {
    "aaai2020": "AAAI 2020 (HAL)",
    "acl-srw2019": "ACL SRW 2019 (kNN-margin)",
    "emnlp2019-submission": "EMNLP 2019 submission (rescaled loss, matching)",
}
NOT_OURS = {
    "sm-lstm": "an LSTM that attends to regions and words in steps",
    "rrf-net": "recurrent residual fusion blocks",
    "conv-vse": "a convolutional text encoder, trained end to end with the image's",
    "chain-vse": "a convolutional text encoder over characters",
    "uni-vse": "an embedding of objects, attributes and relations",
}
HEAD = "| row | architecture | loss | criterion | test images | rsum | commands |\n|---|---|---|---|---|---:|---|"


def page_text() -> str:
    """The generated part: a table for each published one."""
    frame = pd.read_csv(PUBLISHED, dtype={"table": str, "line": str})
    parts = []
    for (paper, table), rows in frame.groupby(["paper", "table"], sort=False):
        lines = [f"| {' | '.join(cells(row))} |" for _, row in rows.iterrows()]
        parts.append("\n".join([f"### {TITLES[paper]}, table {table}", "", HEAD, *lines]))
    return "\n\n".join(parts)


def cells(row: pd.Series) -> list[str]:
    """A line of the page."""
    loss = "" if pd.isna(row["loss"]) else row["loss"]
    images = f"{row['dataset']} {row['protocol']}"
    return [row["line"], row["architecture"], loss, row["criterion"], images, rsum(row), commands(row)]


def rsum(row: pd.Series) -> str:
    """The published sum; in brackets the recalls' sum where none is printed."""
    if pd.notna(row["rsum"]):
        return number(row["rsum"])
    recalls = row[[f"{side}_r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)]]
    return f"({number(recalls.sum())})" if recalls.notna().all() else number(float("nan"))


def commands(row: pd.Series) -> str:
    """What to run for a row: train, or train another row and measure it; or why there is nothing to run."""
    if row["architecture"] in NOT_OURS:
        return f"another paper's architecture, not here: {NOT_OURS[row['architecture']]}"
    name = f"{row['paper']}/{row['line']}"
    trained = read(name)[0].get("evaluates", name)
    lines = [f"`vsehub train experiment={trained} data.root=FOLDER`"]
    if trained != name:
        lines.append(f"`vsehub evaluate row={name} checkpoint=RUN/checkpoints/best.safetensors`")
    return "<br>".join(lines)


@verb(option("page", nargs="?", type=Path, default=ROOT / "docs" / "rows.md"))
def main(given: Given) -> None:
    """Write the page's generated part."""
    renew(given.page, page_text())
