r"""Count habits of English that make a reader read twice, over pages, docstrings, comments, messages and yaml comments.

python tools/english.py [ROOT] [--show HABIT]     a table of counts; with --show, each place of one habit

A report, not a gate: a count may be right where it stands.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

PARTS = ("pages", "docstrings", "comments", "messages", "yaml", "names")
NOUNS = "one|found|own|place|given|held|told|built|kept|asked"
FILES = (
    "[!C]*.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "experiments/**/*.md",
    "conf/**/*.yaml",
    "src/**/*.py",
    "experiments/**/*.py",
)
HABITS = {  # those of the last two lines are counted in names, the others in prose
    "chain": r"\b(of|by|for|in|on|from|with|to|at) (which|whose)\b",
    "opening": r"\A\s*(What|How|Which|Whether|Where|That)\b",
    "none": r"\b(is|are|was|were|be) (no|none)\b(?! longer)|\bor none\b",
    "headless": r"(?:^\s*|\. )\w+: (of|for|in|with|by|that|which|what|how) ",
    "see": r"\ASee `[^`]*`\.?\Z",
    "object first": r"(?:^|[.;:] )(Of|To|From|By|With) [^.,;:]{3,60} (is|are|was|were|has|have) ",
    "words": r"\b(leaves? away|left away|parted by|to be had|(is|are|was|were) told|shortlists?|facts|takes none)\b",
    "pronouns": r"[^.;]*\b(?:it|they|them)\b[^.;]*\b(?:it|they|them)\b",
    "noun": rf"\b(?:the|a|this|that|each|every|of) (?:{NOUNS})(?=[.,;:)]|\Z)",
    "value": rf"\A({NOUNS})\Z",
    "function": rf"\Adef (_?({NOUNS}|drawn|shown|written|of)|_?[a-z]+ed)\Z",
}


def parts(path: Path) -> dict[str, list[str]]:
    """The paragraphs of a page, the comments of a yaml file, or the texts and names of a Python file, by part."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        prose = re.sub(r"^\s*```.*?^\s*```|<!-- generated.*?<!-- end", "", text, flags=re.M | re.S)
        return {"pages": re.split(r"\n\s*\n|^\||^[*-] ", prose, flags=re.M)}
    if path.suffix == ".yaml":
        return {"yaml": re.findall(r"(?:^|\s)# ?(.*)", text)}
    nodes = list(ast.walk(ast.parse(text)))
    documented = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {ast.get_docstring(node, clean=False) for node in documented} - {None}
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    variables = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {
        "docstrings": list(docstrings),
        "comments": [token.string[2:] for token in tokens if token.type == tokenize.COMMENT],
        "messages": [string for string in strings - docstrings if string.count(" ") > 2],
        "names": [
            *variables,
            *(node.arg for node in nodes if isinstance(node, ast.arg)),
            *(f"def {node.name}" for node in nodes if isinstance(node, ast.FunctionDef)),
        ],
    }


def main() -> None:
    """Print the table, and the texts with one habit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--show", choices=HABITS)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted({path for pattern in FILES for path in options.root.glob(pattern)}):
        for part, text in [(part, text) for part, texts in parts(path).items() for text in texts]:
            for habit, expression in HABITS.items():
                if (part == "names") == (habit in ("value", "function")):
                    matches = [match[0] for match in re.finditer(expression, text, re.M)]
                    counts[habit, part] += len(matches)
                    if matches and habit == options.show:
                        print(f"{path.relative_to(options.root)}: {matches[0].strip()}: {' '.join(text.split())[:200]}")
    print(" " * 14 + "".join(f"{part:>12}" for part in (*PARTS, "all")))
    for habit in HABITS:
        row = [counts[habit, part] for part in PARTS]
        print(f"{habit:14}" + "".join(f"{number:12}" for number in (*row, sum(row))))


if __name__ == "__main__":
    main()
