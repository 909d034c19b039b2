"""Tables of text and sections, written to the terminal, as Markdown and LaTeX, and by the pages' templates as HTML.

A command can print a table without importing pandas.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tabulate import tabulate

from vsehub.checks import one_line
from vsehub.io.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

    from vsehub.report.pictures import Picture

ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "[": "{[}",  # at the start of a line it would be an argument of the rule or the line before
    "]": "{]}",
    "*": "{*}",  # also an argument there
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "–": "--",
    "→": r"$\to$",
    "−": "$-$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
    "γ": r"$\gamma$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "≥": r"$\ge$",
    "·": r"$\cdot$",
}

Cell = str | tuple[str, str]  # a value, or a value and a note that pages show beside it in small type


class ReportTable(NamedTuple):
    """A table of text.

    Attributes:
        head: the columns' names.
        rows: the cells; "1.0 ± 0.2" is a value with its deviation beside it.
        caption: one line that says what the cells are.
        text_left: the number of columns of text on the left; columns of numbers, in the middle, are right-aligned.
        text_right: the number of columns of text on the right.
        bold: (row, column) of the cells in bold type; a terminal has none.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    text_left: int = 1
    text_right: int = 0
    bold: Collection[tuple[int, int]] = ()

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame", caption: str = "", text_left: int = 1, text_right: int = 0) -> Self:
        """The table of a frame of text."""
        return cls(list(map(str, frame.columns)), frame.to_numpy(dtype=str).tolist(), caption, text_left, text_right)

    @property
    def numeric(self) -> list[bool]:
        """True for each column of numbers."""
        return [self.text_left <= column < len(self.head) - self.text_right for column in range(len(self.head))]

    def texts(self) -> list[list[str]]:
        """The rows, each cell one text."""
        return [[cell if isinstance(cell, str) else " ".join(filter(None, cell)) for cell in row] for row in self.rows]

    def terminal(self) -> str:
        """The table for a terminal, its caption above."""
        text = self._tabulated("simple", one_line)
        return f"{self.caption}\n{text}" if self.caption else text

    def markdown(self) -> str:
        """The table as GitHub's Markdown, its caption above; no cell can break the table or hold HTML."""
        text = self._tabulated("pipe", markdown_text, "**{}**")
        return f"{markdown_text(self.caption)}\n\n{text}" if self.caption else text

    def latex(self) -> str:
        """A `table*` with the caption and the rules of the package booktabs. What stands in a cell stays text."""
        begin = "\\begin{table*}\n\\centering\\scriptsize\\setlength{\\tabcolsep}{2pt}"
        text = self._tabulated("latex_raw", latex_text, "\\textbf{{{}}}")
        for rule in ("toprule", "midrule", "bottomrule"):
            text = text.replace("\\hline", f"\\{rule}", 1)
        return f"{begin}\n\\caption{{{latex_text(self.caption)}}}\n{text}\n\\end{{table*}}\n"

    def _tabulated(self, style: str, text: Callable[[object], str], bold: str = "{}") -> str:
        sides = ["right" if numeric else "left" for numeric in self.numeric] if self.rows else None
        rows = [list(map(text, row)) for row in self.texts()]
        for row, column in self.bold:
            rows[row][column] = bold.format(rows[row][column])
        return tabulate(rows, list(map(text, self.head)), style, disable_numparse=True, colalign=sides)


class Section(NamedTuple):
    """A section of a page.

    Attributes:
        heading: its title.
        notes: short statements that are needed to read the values correctly, shown as a list.
        tables: the tables, each with its caption.
        facts: the origin of the values, (name, text).
        pictures: the plots.
        lead: plots that come first, before the notes.
    """

    heading: str
    notes: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    facts: Sequence[tuple[str, str]] = ()
    pictures: "Sequence[Picture]" = ()
    lead: "Sequence[Picture]" = ()

    def markdown(self) -> str:
        """The section without its plots."""
        facts = bullets([f"{name}: {text}" for name, text in self.facts])
        parts = [f"## {markdown_text(self.heading)}", bullets(self.notes), *(table.markdown() for table in self.tables)]
        return "\n\n".join(filter(None, [*parts, facts]))


def bullets(texts: Sequence[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {markdown_text(text)}" for text in texts)


def latex_text(text: object) -> str:
    """Text that stays text in LaTeX, on one line."""
    return "".join(ESCAPES.get(character, character) for character in one_line(text))


def markdown_text(text: object) -> str:
    """Text that stays text in Markdown, on one line."""
    text = one_line(text).replace("](", "]\\(").replace("`", "\\`")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


def criterion_text(criterion: str, parameters: str, reference: str = "none") -> str:
    """A criterion with its parameters and its reference: "is (beta 10), transductive"."""
    text = f"{criterion} ({parameters})" if parameters else criterion
    return text if reference == "none" else f"{text}, {reference}"


def distinct_seeds(seeds: Iterable[int]) -> str:
    """The seeds as text, each once: "0, 1, 2"."""
    return ", ".join(map(str, sorted(set(seeds))))


def seeds_text(runs: int, seeds: str) -> str:
    """The number of `distinct_seeds` and the seeds; if some had several runs, their number too: "2 (0, 1), 3 runs"."""
    count = len(seeds.split(", "))
    return f"{count} ({seeds})" + ("" if runs == count else f", {runs} runs")


def frame_csv(frame: "pd.DataFrame") -> str:
    """A frame as .csv text with a header and without its index; missing values are empty entries."""
    cells = frame.astype(object).where(frame.notna(), None)
    return csv_text(map(str, frame.columns), cells.itertuples(index=False, name=None))


def spread_text(mean: float, std: float, decimals: int) -> str:
    """ "45.3 ± 0.8", "45.3" without a standard deviation (NaN), "–" without a mean."""
    if math.isnan(mean):
        return "–"
    return f"{mean:.{decimals}f}" + ("" if math.isnan(std) else f" ± {std:.{decimals}f}")


def collapsed_text(collapsed: int, n: int) -> str:
    """The mark behind a mean of `n` runs: " collapsed", " (1 of 3 collapsed)"; empty if none collapsed."""
    if not collapsed:
        return ""
    return " collapsed" if collapsed == n else f" ({collapsed} of {n} collapsed)"


def probability_text(p: float) -> str:
    """A p with three digits, "< 0.001" below, "–" without a test."""
    if math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as text: "61 s", "14.2 min", "5.3 h"."""
    if seconds is None or math.isnan(seconds):
        return "–"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def count_text(number: int, word: str) -> str:
    """ "1 run", "2,000 runs"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def code_text(record: Mapping[str, Any]) -> str:
    """The version of the code in a record: "vsehub 0.1.0, git 1a2b3c4d", and whether it had uncommitted changes."""
    git = record.get("git") or {}
    commit = f", git {git['sha'][:8]}" if git.get("sha") else ""
    changes = ", uncommitted changes" if commit and git.get("dirty") else ""
    return f"vsehub {record.get('vsehub', 'of unknown version')}{commit}{changes}"


def hardware_text(facts: Mapping[str, Any] | None) -> str:
    """A machine of {"cpu", "cores", "memory_gb", "gpu"} in one phrase."""
    facts = facts or {}
    units = {"cpu": "", "cores": " cores", "memory_gb": " GB memory", "gpu": ""}
    return ", ".join(f"{facts[key]}{unit}" for key, unit in units.items() if facts.get(key)) or "not recorded"


def versions_text(versions: Mapping[str, Any] | None) -> str:
    """Installed versions in one phrase, by name; empty if none were recorded."""
    return ", ".join(f"{name} {version}" for name, version in sorted((versions or {}).items()))
