"""One table of text, written to the terminal, as Markdown, CSV and LaTeX, and by the pages' templates as HTML.

Only `ReportTable.latex` and `frame_csv` need pandas: a command can print a table without importing it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tabulate import tabulate

from vsehub.io.text import csv_text

if TYPE_CHECKING:
    import pandas as pd

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
        words: the number of columns on the left that hold words; other columns hold numbers and are right-aligned.
        notes: the number of columns on the right that hold words.
        over: a heading above each column, "" for none; equal adjacent headings are merged. Only shown by pages.
        starts: whether each row begins a group of rows. Only shown by pages.
        shades: a value from 0 to 1 that colours each cell, or None. Only shown by pages.
        wrap: whether pages break long words.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    words: int = 1
    notes: int = 0
    over: Sequence[str] | None = None
    starts: Sequence[bool] | None = None
    shades: Sequence[Sequence[float | None]] | None = None
    wrap: bool = False

    @classmethod
    def of(cls, frame: "pd.DataFrame", caption: str = "", words: int = 1, notes: int = 0) -> Self:
        """The table of a frame of text."""
        return cls([str(name) for name in frame.columns], frame.to_numpy(dtype=str).tolist(), caption, words, notes)

    @property
    def numeric(self) -> list[bool]:
        """True for each column of numbers."""
        return [self.words <= place < len(self.head) - self.notes for place in range(len(self.head))]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings of `over`, each with the number of columns below it."""
        found: list[tuple[str, int]] = []
        for name in self.over or ():
            if name and found and found[-1][0] == name:
                found[-1] = (name, found[-1][1] + 1)
            else:
                found.append((name, 1))
        return found

    def texts(self) -> list[list[str]]:
        """The rows, each cell one text."""
        return [[cell if isinstance(cell, str) else " ".join(filter(None, cell)) for cell in row] for row in self.rows]

    def terminal(self) -> str:
        """The table for a terminal, its caption above."""
        text = self._tabulated("simple", str)
        return f"{self.caption}\n{text}" if self.caption else text

    def markdown(self) -> str:
        """The table as GitHub's Markdown, its caption above; no cell can break the table or hold HTML."""
        text = self._tabulated("pipe", markdown_text)
        return f"{markdown_text(self.caption)}\n\n{text}" if self.caption else text

    def latex(self) -> str:
        """A `table*` with the caption; needs \\usepackage{booktabs}. What stands in a cell stays text."""
        import pandas as pd

        # Styler's own escaping lacks Greek letters, and "[" or "*" at a line's start is an argument of the line before.
        rows = [list(map(latex_text, row)) for row in self.texts()]
        frame = pd.DataFrame(rows, columns=list(map(latex_text, self.head)), dtype=str)
        text = frame.style.hide(axis="index").to_latex(
            environment="table*",
            position_float="centering",
            column_format="".join("r" if numeric else "l" for numeric in self.numeric),
            hrules=True,
            caption=latex_text(self.caption),
        )
        return text.replace("\\centering", "\\centering\\scriptsize\\setlength{\\tabcolsep}{2pt}", 1)

    def _tabulated(self, style: str, text: Callable[[object], str]) -> str:
        sides = ["right" if numeric else "left" for numeric in self.numeric] if self.rows else None
        rows = [list(map(text, row)) for row in self.texts()]
        return tabulate(rows, list(map(text, self.head)), style, disable_numparse=True, colalign=sides)


def latex_text(text: object) -> str:
    """Text that stays text in LaTeX, on one line."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(str(text).split()))


def markdown_text(text: object) -> str:
    """Text that stays text in Markdown, on one line."""
    text = " ".join(str(text).split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


def criterion_text(criterion: str, parameters: str) -> str:
    """A criterion with its parameters: "is (beta 10)"."""
    return f"{criterion} ({parameters})" if parameters else criterion


def seeds_text(n: int, seeds: str) -> str:
    """The number of seeds and the seeds: "3 (0, 1, 2)"."""
    return f"{n} ({seeds})"


def frame_csv(frame: "pd.DataFrame") -> str:
    """A frame as .csv text with a header and without its index; missing values are empty entries."""
    cells = frame.astype(object).where(frame.notna(), None)
    return csv_text(map(str, frame.columns), cells.itertuples(index=False, name=None))


def spread_text(mean: float, std: float, decimals: int) -> str:
    """ "45.3 ± 0.8", "45.3" without a standard deviation (NaN), "–" without a mean."""
    if math.isnan(mean):
        return "–"
    return f"{mean:.{decimals}f}" + ("" if math.isnan(std) else f" ± {std:.{decimals}f}")


def probability_text(p: float) -> str:
    """A p with three digits, "< 0.001" below, "–" without a test."""
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as text: "61 s", "14.2 min", "5.3 h"."""
    if seconds is None or math.isnan(seconds):
        return "–"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def count_text(number: int, one: str, many: str | None = None) -> str:
    """ "1 run", "2,000 runs"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def shades(values: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Each value scaled from the smallest (0) to the largest (1); None stays None, NaN becomes None."""
    known = [value for row in values for value in row if value is not None and value == value]
    low, high = min(known, default=0.0), max(known, default=0.0)
    width = high - low or 1.0
    return [[None if value is None or value != value else (value - low) / width for value in row] for row in values]


def code_text(record: Mapping[str, Any]) -> str:
    """The version of the code in a record with "vsehub" and "git": "vsehub 0.1.0, git 1a2b3c4d"."""
    sha = (record.get("git") or {}).get("sha")
    known = [f"{name} {fact}" for name, fact in (("vsehub", record.get("vsehub")), ("git", sha and sha[:8])) if fact]
    return ", ".join(known) or "not recorded"


def hardware_text(facts: Mapping[str, Any] | None) -> str:
    """A machine of {"cpu", "cores", "memory_gb", "gpu"} in one phrase."""
    if not facts:
        return "not recorded"
    memory = facts.get("memory_gb")
    known = [facts.get("cpu"), facts.get("cores") and f"{facts['cores']} cores", memory and f"{memory:g} GB memory"]
    return ", ".join(str(fact) for fact in [*known, facts.get("gpu") or "no GPU"] if fact)


def versions_text(versions: Mapping[str, Any] | None) -> str:
    """Installed versions in one phrase, by name; empty if none were recorded."""
    return ", ".join(f"{name} {version}" for name, version in sorted((versions or {}).items()))
