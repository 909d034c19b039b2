"""Draw table.md, the figures and the README's generated parts from the study's tables and expected.csv.

    python experiments/claims/render.py [FOLDER]

What the tables lack is said: a figure without runs, and the values and seeds that a sweep has not.
"""

import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import judged_table, read_expected, renew, study_folder, verdict  # noqa: E402 (found by the line above)
from judging import held  # noqa: E402 (beside this file)
from parts import PARTS, data_text  # noqa: E402
from plots import save  # noqa: E402

TABLES = ("results", "epochs", "lambda", "occurrences", "published")


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    data = {name: pd.read_csv(folder / f"{name}.csv", dtype={"recipe": str, "table": str}) for name in TABLES}
    data["results"]["figures"] = data["results"]["figures"].fillna("")
    claims = held(data["results"], data["epochs"], data["lambda"], read_expected(folder))
    page, bare = ([data_text(data["results"]), judged_table(claims).markdown()] for _ in range(2))
    for name, (title, part) in PARTS.items():
        text, picture = part(data)
        if picture is None:
            (folder / "figures" / f"{name}.png").unlink(missing_ok=True)
            text = "Not drawn: no finished run or measurement of it is among those collected."
        else:
            save(folder, picture)
            bare.append(f"## {title}\n\n{text}")
            text = f"![{title}](figures/{name}.png)\n\n{picture.caption}\n\n{text}"
        page.append(f"### {title}\n\n{text}")
    write_text(folder / "table.md", "# The papers' figures\n\n" + "\n\n".join(bare) + "\n")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", "\n\n".join(page), "figures")


if __name__ == "__main__":
    main()
