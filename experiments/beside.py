"""Runs beside a published table: the measured values, their difference, and notes on what can be compared.

    python experiments/beside.py runs/ --paper aaai2020 --table 2 --out beside

writes published.csv, published.md and published.tex, and prints the rsum of each line. Runs on other data than the
paper's are compared by the order of their rows only.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from published import beside_published, published_beside_table, short_published_table

from vsehub.checks import InputError
from vsehub.io.outputs import Output
from vsehub.report.build import write_all
from vsehub.report.pages.sections import bullets
from vsehub.report.recipes import series_of
from vsehub.report.results import aggregate, results
from vsehub.report.runs import read_runs
from vsehub.report.tables import markdown_text

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
    return write_all(output, texts, [])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="run folders, or folders of them")
    parser.add_argument("--paper", required=True, help="e.g. aaai2020")
    parser.add_argument("--table", required=True, help="the number of its table, e.g. 2")
    parser.add_argument("--out", type=Path, default=Path("beside"), help="the folder to write; default: beside")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier result")
    given = parser.parse_args()
    try:
        files = beside(given.runs, given.paper, given.table, given.out, given.overwrite)
    except InputError as error:
        parser.error(str(error))
    print(files["published.txt"].read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
