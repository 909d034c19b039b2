"""LaTeX tables: what stands in a cell stays text, and columns stay columns."""

from vsehub.report.tables import ReportTable, latex_text


def test_no_character_of_a_cell_can_be_a_command():
    text = latex_text("50 % & #1 _x_ $y$ {z} ~ ^ \\input{secret}\n\\\\ λ ≥ 2 ± 0.1 – é")
    assert text == (
        r"50 \% \& \#1 \_x\_ \$y\$ \{z\} \textasciitilde{} \textasciicircum{} \textbackslash{}input\{secret\} "
        r"\textbackslash{}\textbackslash{} $\lambda$ $\ge$ 2 $\pm$ 0.1 -- é"
    )


def test_no_cell_is_an_argument_of_the_line_before():
    """LaTeX takes "[" and "*" at the start of a line as belonging to the \\\\ or rule before it."""
    table = ReportTable(["[0] a", "d&"], [["[1] b", ("1.0", "± 0.2")], ["* c", "<f>|"]], "Losses, 100 %")
    lines = table.latex().splitlines()
    assert [line for line in lines if line.endswith(r"\\")] == [
        r"{[}0{]} a & d\& \\",
        r"{[}1{]} b & 1.0 $\pm$ 0.2 \\",
        r"{*} c & \textless{}f\textgreater{}\textbar{} \\",
    ]
    assert {r"\begin{tabular}{lr}", r"\caption{Losses, 100 \%}"} <= set(lines)
