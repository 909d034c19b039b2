"""LaTeX tables: what stands in a cell stays text, and columns stay columns."""

import re

from vsehub.report.tables import ReportTable, latex_text


def test_no_character_of_a_cell_can_be_a_command():
    text = latex_text("50 % & #1 _x_ $y$ {z} ~ ^ \\input{secret}\n\\\\ λ ≥ 2 ± 0.1 – é")
    assert text == (
        r"50 \% \& \#1 \_x\_ \$y\$ \{z\} \textasciitilde{} \textasciicircum{} \textbackslash{}input\{secret\} "
        r"\textbackslash{}\textbackslash{} $\lambda$ $\ge$ 2 $\pm$ 0.1 -- é"
    )


def test_no_cell_is_an_argument_of_the_line_before():
    """LaTeX takes "[" and "*" at the start of a line as belonging to the \\\\ or criterion before it."""
    lines = ReportTable(["[0] a", "d"], [["[1] b", "e"], ["* c", "<f>|"]]).latex().splitlines()
    body = [line for line in lines if line.endswith(r"\\")]
    assert body == [r"{[}0{]} a & d \\", r"{[}1{]} b & e \\", r"{*} c & \textless{}f\textgreater{}\textbar{} \\"]


def test_rows_and_columns_are_those_of_the_frame():
    table = ReportTable(["loss", "rsum"], [["a&b", ("1.0", "± 0.2")], ["c", "–"]], "Losses, 100 %")
    lines = table.latex().splitlines()
    assert r"\begin{tabular}{lr}" in lines
    assert r"\caption{Losses, 100 \%}" in lines
    body = [line for line in lines if line.endswith(r"\\")]
    assert body == [r"loss & rsum \\", r"a\&b & 1.0 $\pm$ 0.2 \\", r"c & -- \\"]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in body)
    assert [line for line in lines if line.startswith((r"\begin", r"\end"))] == [
        r"\begin{table*}", r"\begin{tabular}{lr}", r"\end{tabular}", r"\end{table*}",
    ]  # fmt: skip
