"""Tables as LaTeX, in the manner of booktabs."""

from collections.abc import Sequence

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
    "*": "{*}",  # likewise
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


def latex(frame: pd.DataFrame, caption: str, numeric: Sequence[str] = ()) -> str:
    """A `table*` of a frame of text; `numeric` columns are aligned right. Needs \\usepackage{booktabs}."""
    columns = "".join("r" if name in set(numeric) else "l" for name in frame.columns)
    lines = [_line(frame.columns), r"\midrule", *(_line(row) for row in frame.itertuples(index=False, name=None))]
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
            rf"\caption{{{latex_text(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def _line(cells: Sequence[object]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: object) -> str:
    """Text that stays text in LaTeX, on one line."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(str(text).split()))
