"""Runs beside a published table: the measured values, their difference, and notes on what can be compared.

    python -m experiments beside runs/ --paper aaai2020 --table 2 --out beside

writes published.csv, published.md and published.tex, and prints the rsum of each line. Runs on other data than the
paper's are compared by the order of their rows only.
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.published import beside_published, published_beside_table, short_published_table
from experiments.study import RUNS, Given, option, verb
from vsehub.io.files import Output, write_text
from vsehub.report.recipes import series_of
from vsehub.report.results import aggregate, results
from vsehub.report.runs import read_runs
from vsehub.report.tables import bullets, markdown_text

FILES = ("published.csv", "published.md", "published.tex", "published.txt")


def beside(folders: Sequence[Path], paper: str, table: str, out: Path, overwrite: bool = False) -> dict[str, Path]:
    """Write the runs in or below `folders` beside a published table. Raises InputError for an unknown table."""
    output = Output(out, "runs beside a published table", FILES, overwrite)
    runs = [run for run in read_runs(folders) if run.evaluations]
    lines, remarks = beside_published(aggregate(results(runs, series_of(runs))), paper, table)
    heading = f"Measured beside published: {paper}, table {table}"
    side, short = published_beside_table(lines, heading), short_published_table(lines, "rsum").terminal()
    texts = {
        "published.csv": lines.to_csv(index=False, lineterminator="\n"),
        "published.md": f"# {markdown_text(heading)}\n\n{bullets(remarks)}\n\n{side.markdown()}\n",
        "published.tex": side.latex(),
        "published.txt": "\n\n".join([heading, bullets(remarks), *([short] if len(lines) else [])]) + "\n",
    }
    with output.transaction():
        for name, text in texts.items():
            write_text(output / name, text)
    return {name: output.folder / name for name in texts}


@verb(
    RUNS,
    option("--paper", required=True, help="e.g. aaai2020"),
    option("--table", required=True, help="the number of its table, e.g. 2"),
    option("--out", type=Path, default=Path("beside"), help="the folder to write; default: beside"),
    option("--overwrite", action="store_true", help="replace an earlier result"),
)
def main(options: Given) -> None:
    """Write and print the runs beside the table."""
    files = beside(options.runs, options.paper, options.table, options.out, options.overwrite)
    print(files["published.txt"].read_text(encoding="utf-8"))
