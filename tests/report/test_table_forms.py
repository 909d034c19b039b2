"""A table and a section as page, Markdown, LaTeX and terminal text: the same cells, and text that stays text."""

import html
import re

from vsehub.report.pages.templates import render_page
from vsehub.report.tables import ReportTable, Section, latex_text

HOSTILE = 'a<b> | "c" & \n d'


def test_page_markdown_and_terminal_have_the_same_cells():
    rows = [["hal", ("1.0", "k 3"), "3.0"], [HOSTILE, "∅", "2.0 ± 0.1"]]
    table = ReportTable(["loss", "is", HOSTILE], rows, HOSTILE)
    section = Section(HOSTILE, [HOSTILE], [table], [(HOSTILE, HOSTILE)])
    page = render_page("page.html.j2", title=HOSTILE, summary=HOSTILE, sections=[section], notes=[HOSTILE])
    cells = [html.unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh]\b.*?</t[dh]>", page, re.S)]
    assert cells == ["loss", "is", HOSTILE, "hal", "1.0 k 3", "3.0", HOSTILE, "∅", "2.0 ± 0.1"]
    assert "<b>" not in page
    lines = [re.sub(" +", " ", line) for line in section.markdown().splitlines() if line.startswith("|")]
    hostile = 'a&lt;b&gt; \\| "c" &amp; d'
    assert [lines[0], *lines[2:]] == [
        f"| loss | is | {hostile} |",
        "| hal | 1.0 k 3 | 3.0 |",
        f"| {hostile} | ∅ | 2.0 ± 0.1 |",
    ]
    table = ReportTable(["loss"], [["\x1b[2J[a](http://evil)\x9b\n`b`"]])
    assert table.terminal().splitlines()[-1] == "[2J[a](http://evil) `b`"
    assert table.markdown().splitlines()[-1] == "| [2J[a]\\(http://evil) \\`b\\` |"
    assert re.fullmatch(r"\|:-+\|-+:\|-+:\|", lines[1])
    table = ReportTable(["loss", "rsum"], [["hal", ("1.5", "± 0.2")], ["a,b", "22.0"]], "Losses.")
    assert table.terminal().splitlines() == [
        "Losses.", "loss         rsum", "------  ---------", "hal     1.5 ± 0.2", "a,b          22.0",
    ]  # fmt: skip


def test_no_cell_is_a_command_or_an_argument_in_latex():
    """LaTeX takes "[" and "*" at the start of a line as belonging to the \\\\ or rule before it."""
    text = latex_text("50 % & #1 _x_ $y$ {z} ~ ^ \\input{secret}\n\\\\ λ ≥ 2 ± 0.1 – é")
    assert text == (
        r"50 \% \& \#1 \_x\_ \$y\$ \{z\} \textasciitilde{} \textasciicircum{} \textbackslash{}input\{secret\} "
        r"\textbackslash{}\textbackslash{} $\lambda$ $\ge$ 2 $\pm$ 0.1 -- é"
    )
    table = ReportTable(["[0] a", "d&"], [["[1] b", ("1.0", "± 0.2")], ["* c", "<f>|"]], "Losses, 100 %", bold=[(0, 1)])
    lines = [re.sub(" +", " ", line).strip() for line in table.latex().splitlines()]
    assert [line.removesuffix("\\\\").strip() for line in lines if "&" in line] == [
        r"{[}0{]} a & d\&",
        r"{[}1{]} b & \textbf{1.0 $\pm$ 0.2}",
        r"{*} c & \textless{}f\textgreater{}\textbar{}",
    ]
    assert {r"\begin{tabular}{lr}", r"\caption{Losses, 100 \%}", r"\toprule", r"\midrule", r"\bottomrule"} <= set(lines)
