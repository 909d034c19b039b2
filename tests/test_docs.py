"""The documentation names what is there: files, folders, packages and commands."""

import ast
import csv
import json
import re
from pathlib import Path
from statistics import mean, stdev

import pandas as pd

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vsehub"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INDEXES = {  # a benchmark's name of an index -> that of the page
    "LanceDB, approximate": "LanceDB, IVF_FLAT",
    "Postgres, approximate": "Postgres, HNSW",
    "Milvus, exact": "Milvus Lite, exact",
    "Milvus, approximate": "Milvus Lite, HNSW",
}
EXAMPLES = ("soft_margin", "quantile")  # what docs/extending.md has a reader write


def test_files_that_the_pages_name_exist():
    missing = []
    for page in PAGES:
        for name in set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yaml|csv|toml|ipynb))`", page.read_text())):
            places = (ROOT / name, SOURCE / name, SOURCE.parent / name, ROOT / "conf" / name)
            # A bare name is a file that a run or a user's folder holds; words in capitals stand for others.
            concrete = (
                "/" in name and not any(one in name for one in EXAMPLES) and not re.search(r"\b[A-Z]{2,}\b", name)
            )
            if concrete and not any(place.exists() for place in places):
                missing.append(f"{page.name}: {name}")
    assert not missing


def test_the_tests_that_the_page_on_security_names_exist():
    page = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


def test_the_architecture_page_lists_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text.partition("src/vsehub/\n")[2].partition("```")[0]
    listed = {re.match(r"  (\w+)(?:/|\.py) +\S", line)[1] for line in tree.splitlines()}
    on_disk = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")} - {"__init__", "__pycache__"}
    assert listed == on_disk


def test_every_file_says_what_it_holds():
    silent = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_no_word_of_a_docstring_is_read_as_a_link():
    """Sphinx takes a word that ends in an underscore for a link, unless it is in backticks."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = (ast.get_docstring(node) or "").splitlines()
                words = "\n".join(line for line in lines if not line.strip().startswith((">>>", "...")))
                found += [
                    f"{path.name}: {word}"
                    for word in re.findall(r"(?<![\w*])[A-Za-z]\w*_(?![\w*])", re.sub(r"`[^`]*`", "", words))
                ]
    assert not found


def test_the_figures_of_indexes_are_those_that_were_measured():
    page = (ROOT / "docs" / "serving.md").read_text().partition("## What the bias costs")[2].partition("\n## ")[0]
    shown = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ") and "MB" in line]
    few, hundred, million = (_benchmark(f"engines{size}")["rows"] for size in ("", "_100000", "_1000000"))
    for (title, size, *figures), row in zip(shown, few + million, strict=True):
        assert title.partition(" (")[0] == INDEXES.get(row["name"], row["name"])
        recalls = [f"{row['recall'][ranking]:.3f}" for ranking in ("corrected", "plain")]
        took = row["milliseconds"]["corrected"]
        if len(figures) == 3:
            assert [size, *figures] == [f"{row['bytes'] / 1e6:,.1f} MB", *recalls, f"{took:.1f} ms"]
        else:
            filled = f"{row['seconds']:.0f} s"
            assert [size, *figures] == [f"{row['bytes'] / 1e6:,.0f} MB", filled, *recalls, f"{took:.0f} ms"]
    text, filled = " ".join(page.split()), [row["seconds"] for row in few]
    assert f"Filling took {min(filled):.1f} to {max(filled):.0f} seconds" in text
    for row in hundred:
        recalls = f"{row['recall']['corrected']:.3f} and {row['recall']['plain']:.3f}"
        assert recalls in text or recalls == "1.000 and 1.000"
    graph = next(row for row in hundred if row["name"] == "Postgres, approximate")
    assert f"HNSW in Postgres, at {graph['milliseconds']['corrected']:.0f} ms a query" in text
    assert f"100,000 items took {graph['seconds']:.0f} seconds with" in text


def test_the_figures_of_lists_are_those_that_were_measured():
    page = " ".join((ROOT / "docs" / "serving.md").read_text().split())
    measured = _benchmark("lists")
    assert f"rotation and in {measured['lists']} lists" in page
    for row in measured["by probes"]:
        assert "| " + " | ".join(f"{one:.3f}" if isinstance(one, float) else str(one) for one in row.values()) in page
    plain, csls, softmax = measured["similarity of the last"].values()
    assert f"tenth is {plain:.2f} in the plain ranking, {csls:.2f} under CSLS and {softmax:.2f} under" in page
    moved, fell = [], []
    for kind in ("ivf", "hnsw"):
        for ranking in ("plain", "corrected"):
            values = {row["bias times"]: row[ranking] for row in measured["by scale"] if row["index"] == kind}
            fell.append(values.pop(8.0) < min(values.values()))
            moved.append(max(values.values()) - min(values.values()))
    assert f"moved by at most {max(moved):.3f}, and at 8" in page
    assert all(fell)


def test_the_figures_of_search_and_sinkhorn_are_those_that_were_measured():
    page = " ".join((ROOT / "docs" / "embeddings.md").read_text().split())
    entries = _benchmark("exact")["entries"]
    ways = [(1_000, True), (1_000, False), (1, False)]
    ratios = [[one["ratio"] for one in entries if (one["queries"], one["int8"]) == way] for way in ways]
    many, without, single = (f"{max(one):.2f}" for one in ratios)
    assert (
        f"took {many} of the processor time of a flat FAISS index, {without} without VNNI, one query {single}" in page
    )
    assert all(one["equal"] == 1 for one in entries)
    rows = _benchmark("sinkhorn")["results"]
    ratios = [row["seconds"]["large shares"]["least"] / row["seconds"]["all scores"]["least"] for row in rows]
    equal = min(row["first items equal"] for row in rows)
    assert (
        f"It took {min(ratios):.2f} to {max(ratios):.2f} of the time, at equal first items for {equal:.1%} of" in page
    )


def test_the_figures_of_the_strongest_recipe_are_those_that_were_measured():
    folder, page = ROOT / "experiments" / "strong", " ".join((ROOT / "docs" / "results.md").read_text().split())
    with (folder / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "ensembles.csv").open() as file:
        ensembles = {row["ensemble"]: row for row in csv.DictReader(file)}
    teachers, five = (ensembles[name] for name in ("two of HAL, and CCA", "five of InfoNCE and 1024 dimensions"))

    def both(case):
        return [_told([float(row[name]) for row in rows if row["case"] == case]) for name in ("test_nns", "test_is")]

    together = f"reach {float(teachers['nns']):.1f} together in plain search and {float(teachers['is']):.1f} with"
    hal, infonce, alone = (" and ".join(both(case)) for case in ("student, tuned", "student, tuned, infonce", "hal"))
    wide, wide_infonce, widest = (
        " and ".join(both(f"student, tuned, {case} dimensions")) for case in ("1024", "infonce, 1024", "infonce, 2048")
    )
    most = f"these five together reach {float(five['nns']):.1f} and {float(five['is']):.1f}"
    two = f"one of 2,048 dimensions {widest} (InfoNCE, three seeds)"
    for said in (
        together,
        f"reaches {hal} with HAL and {infonce} with InfoNCE (three seeds each)",
        f"{wide} (HAL, five seeds), {wide_infonce} (InfoNCE, five seeds), which overlap (no test was made); "
        f"{most}, and {two}",
        f"HAL alone has {alone} (five)",
    ):
        assert said in page


def test_the_figures_of_the_strongest_recipes_page_are_those_that_were_measured():
    folder = ROOT / "experiments" / "strong"
    page = " ".join((folder / "README.md").read_text().split())
    kinds = {"plain": "test_nns", "corrected": "test_is", "val": "val_rsum"}
    models = pd.read_csv(folder / "models.csv").rename(columns={own: kind for kind, own in kinds.items()})
    runs = {case: own.set_index("seed")[list(kinds)] for case, own in models.groupby("case")}
    ensembles = pd.read_csv(folder / "ensembles.csv", index_col="ensemble")[["nns", "is"]]
    ensembles.columns = ["plain", "corrected"]

    def paired(one, other, kind):
        return _told((runs[one][kind] - runs[other][kind]).dropna().tolist())

    def more(one, other, between=""):
        return f"{paired(one, other, 'plain')}{between} and {paired(one, other, 'corrected')}"

    def numbers(row):
        return f"{row['plain']:.1f} and {row['corrected']:.1f}"

    hal, tuned, learner = "hal", "student, tuned", "student, tuned, infonce"
    wide_hal, wide, wide_knn, widest = (
        f"student, tuned, {one} dimensions" for one in ("1024", "infonce, 1024", "knn_margin, 1024", "infonce, 2048")
    )
    teachers, five = ensembles.loc["two of HAL, and CCA"], ensembles.loc["five of InfoNCE and 1024 dimensions"]
    reached = {one: [_told(runs[one][kind].tolist()) for kind in kinds] for one in (wide, widest)}
    by_cca = pd.DataFrame(
        [ensembles.loc[f"{one}, and CCA"] - ensembles.loc[one] for one in ("two of HAL", "three of HAL", "five of HAL")]
    )
    most, least = by_cca.max(), by_cca.min()
    cca, mean_hal = runs["cca"].loc[0], runs[hal].mean()
    above = (runs[widest][["plain", "corrected"]] - teachers).min() // 1
    span = {one: runs[one]["plain"].max() - runs[one]["plain"].min() for one in (wide_hal, wide)}
    behind = " and ".join(paired(one, wide_hal, "val") for one in (wide, wide_knn))
    for said in (
        f"reaches {reached[wide][0]} rsum in plain search and {reached[wide][1]} corrected (five seeds), and these "
        f"five together {numbers(five)}; one of 2,048 dimensions reaches {reached[widest][0]} and {reached[widest][1]}",
        f"HAL alone, at 512 dimensions, has {mean_hal['plain']:.0f} and {mean_hal['corrected']:.0f} on average",
        f"{least['plain']:.0f} to {most['plain']:.0f} points plain and {least['corrected']:.0f} to "
        f"{most['corrected']:.0f} under the inverted softmax, which lifts CCA itself by "
        f"{cca['corrected'] - cca['plain']:.1f}",
        f"with CCA two reach {numbers(teachers)}, five {numbers(ensembles.loc['five of HAL, and CCA'])}.",
        f"is {paired(tuned, hal, 'plain')} points above HAL with the same seed in plain search and "
        f"{paired(tuned, hal, 'corrected')} corrected",
        f"it stays {numbers(teachers - runs[tuned].mean())} behind its teachers together",
        f"With InfoNCE it is {numbers(runs[learner].mean() - teachers)} ahead of them",
        f"instead of 13 add {more(f'{learner}, 20 epochs', learner)} at 512 dimensions",
        f"1,024 dimensions {more(wide, f'{learner}, 20 epochs')} more",
        f"2,048 another {more(widest, wide)} (InfoNCE, three seeds each)",
        f"is {above['plain']:.0f} points or more above the teachers in plain search and {above['corrected']:.0f} or "
        "more corrected",
        f"2,048 dimensions are {paired(widest, wide, 'val')} above 1,024",
        f"on validation ({runs['student of students, 1024 dimensions']['val'].mean():.1f})",
        f"InfoNCE is {more(wide, wide_hal, ' above HAL in plain search')} corrected",
        f"HAL is behind both, by {behind}, and each of its seeds below each of theirs",
        f"by {span[wide_hal]:.1f} points in plain search, InfoNCE's by {span[wide]:.1f}",
        f"one seed has {numbers(runs[f'{learner}, weight 700'].loc[0])}, where three with 70 have "
        f"{numbers(runs[learner].mean())} on average",
    ):
        assert said in page, said
    assert min(runs[one]["val"].min() for one in (wide, wide_knn)) > runs[wide_hal]["val"].max()


def test_the_figures_of_single_regularisations_are_those_that_were_measured():
    folder = ROOT / "experiments" / "regularisation"
    page = " ".join((folder / "README.md").read_text().split())
    frame = pd.concat([pd.read_csv(folder / f"{name}.csv") for name in ("runs", "earlier")])
    runs = frame[frame["seed"] == 0].set_index("case")[["test_nns", "val_rsum"]]
    out, mixed = (runs.loc[one] - runs.loc["none"] for one in ("words left out", "mixing"))
    assert f"were {-out['test_nns']:.1f} points below none with that seed in plain search" in page
    assert f"was {mixed['test_nns']:.1f} above it, and {mixed['val_rsum']:.1f} on validation" in page


def test_the_figures_of_the_bank_are_those_that_were_measured():
    places = ("experiments/bank/README.md", "docs/results.md", "docs/training.md")
    page, summary, training = (" ".join((ROOT / place).read_text().split()) for place in places)
    with (ROOT / "experiments" / "bank" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    rsums: dict[str, dict[str, dict[str, float]]] = {"rsum": {}, "val_rsum": {}}
    for row in rows:
        for figure, cases in rsums.items():
            cases.setdefault(row["case"], {})[row["seed"]] = float(row[figure])

    def gain(case: str, over: str, sign: str = "") -> str:
        own = [value - rsums["rsum"][f"gamma {over}"][seed] for seed, value in rsums["rsum"][f"gamma {case}"].items()]
        return f"{mean(own):{sign}.1f} ± {stdev(own):.1f}"

    bank, batch = gain("30, bank, plain", "30, none, plain"), gain("30, batch, plain", "30, none, plain")
    both = gain("30, none, regularised", "30, none, plain")
    assert f"statistics from the batch alone are worth {batch} of its {bank} points" in page
    assert f"({gain('30, bank, plain', '30, batch, plain')} less, seed by seed" in page
    without = gain("60, bank, plain", "60, none, plain", "+"), gain("60, batch, plain", "60, none, plain", "+")
    assert f"gains nothing from the bank ({without[0]}) or from the batch's statistics ({without[1]})" in page
    assert f"lifts HAL by {bank} rsum, and dropout with averaged weights and no bank by {both}" in summary
    assert f"are worth {batch}." in summary
    assert f"the bank adds {gain('30, bank, regularised', '30, none, regularised')}, which holds over them" in summary
    assert f"bank lies {gain('60, none, plain', '30, bank, plain')} above the bank at" in page
    assert f"bank lies {gain('60, none, plain', '30, bank, plain')} above the bank at" in summary
    assert f"HAL at γ 30 by {both}, about as much as the memory bank alone did ({bank})" in training
    plain, regularised = (
        [mean(rsums[figure][f"gamma 60, none, {how}"].values()) for figure in ("val_rsum", "rsum")]
        for how in ("plain", "regularised")
    )
    assert f"raise validation by {regularised[0] - plain[0]:.1f} and the test split not at all" in page
    said = f"from {plain[0]:.1f} to {regularised[0]:.1f}, but not test ({plain[1]:.1f} and {regularised[1]:.1f})"
    assert said in training


def test_the_figures_of_architectures_are_those_that_were_measured():
    folder = ROOT / "experiments" / "architectures"
    page = " ".join((folder / "README.md").read_text().split())
    rsums: dict[str, dict[str, float]] = {}
    with (folder / "results.csv").open() as file:
        for row in csv.DictReader(file):
            rsums.setdefault(row["case"], {})[row["seed"]] = float(row["rsum"])

    def lead(one: str, other: str) -> str:
        gaps = [rsums[one][seed] - value for seed, value in rsums[other].items() if seed in rsums[one]]
        return _told(gaps)

    over = lead("order/hal", "order/sum"), lead("order/hal", "order/max"), lead("order/sum", "order/max")
    assert f"holds over three seeds, by {over[0]} over SUM and {over[1]} over MAX" in page
    assert f"and in SCAN by {lead('scan-t2i/hal', 'scan-t2i/max')} over MAX;" in page
    assert f"on order embeddings MAX is {over[2]} behind SUM, which holds over seeds" in page
    raised = [
        mean(rsums[f"cosine-gpo/{loss}"].values()) - mean(rsums[f"cosine-last/{loss}"].values())
        for loss in ("sum", "max", "hal")
    ]
    assert "raises SUM by {:.0f}, MAX by {:.0f} and HAL by {:.0f} rsum".format(*raised) in page
    gaps = [lead(f"cosine-{pooling}/hal", f"cosine-{pooling}/max") for pooling in ("last", "gpo")]
    assert f"half of the gap between HAL and MAX, {gaps[0]} to {gaps[1]}" in page
    banks = [
        abs(mean(rsums[f"{one}/hal+mb"].values()) - mean(rsums[f"{one}/hal"].values()))
        for one in ("cosine-last", "cosine-gpo", "order", "scan-t2i")
    ]
    assert f"changes the mean by {max(banks):.1f} rsum at most" in page
    photos = [f"{rsums['photos-cnn/hal'][seed]:.1f}" for seed in "012"]
    assert f"gave {photos[0]} and {photos[1]} with seeds 0 and 1, and {photos[2]}, chance, with seed 2" in page


def test_the_figures_of_noise_are_those_that_were_measured():
    page = (ROOT / "experiments" / "noise" / "README.md").read_text().partition("**Read with the tables.**")[2]
    page, summary = (" ".join(text.split()) for text in (page, (ROOT / "docs" / "results.md").read_text()))
    with (ROOT / "experiments" / "noise" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    rsums: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        place = row["protocol"] if row["protocol"] == "clean" else f"{row['protocol']} {row['rate']}"
        rsums.setdefault(place, {}).setdefault(row["loss"], {})[row["seed"]] = float(row["rsum"])
    one_fifth, two_fifths, three_fifths = (
        [rsums[f"{one} {rate}"] for one in ("captions", "images")] for rate in ("0.2", "0.4", "0.6")
    )

    def lead(one: str, other: str, both: list) -> list[str]:
        gaps = [[noisy[one][seed] - noisy[other][seed] for seed in noisy[other]] for noisy in both]
        return [f"{abs(mean(own)):.1f} ± {stdev(own):.1f}" for own in gaps]

    def means(loss: str, both: list = three_fifths) -> list[str]:
        return [f"{mean(noisy[loss].values()):.1f}" for noisy in both]

    def apart(losses: tuple, others: tuple, noisy: dict) -> bool:
        """Whether each seed of some losses is above each of others."""
        least, most = (
            bound(bound(noisy[one].values()) for one in some) for bound, some in ((min, losses), (max, others))
        )
        return least > most

    rates = [*one_fifth, *two_fifths, *three_fifths]
    for text in (page, summary):
        spans = [[float(one.split()[0]) for one in lead("hal", other, rates)] for other in ("max", "sum")]
        most, some = (f"{min(span)} to {max(span)}" for span in spans)
        assert re.search(rf"HAL lies {most} (rsum )?above MAX and {some} above SUM", text)
    over_max, over_sum, over_hal = (lead("knn_margin", other, one_fifth) for other in ("max", "sum", "hal+mb"))
    assert f"lies {over_sum[0]} above SUM and {over_max[0]} above MAX under `captions`" in page
    assert f"{over_sum[1]} and {over_max[1]} under `images`, of which the first passes" in page
    assert f"is {over_hal[0]} behind kNN-margin under `captions` and {over_hal[1]} under `images`" in page
    assert f"most: {over_sum[0]} and {over_sum[1]} rsum above SUM" in summary
    gave_up = [row["loss"] for row in rows if row["rate"] == "0.2" and row["collapsed"] == "True"]
    assert (gave_up.count("max"), gave_up.count("knn_margin")) == (5, 0)
    over_max, over_sum = (lead("knn_margin", other, two_fifths) for other in ("max", "sum"))
    assert f"lies {over_max[0]} above MAX and {over_sum[0]} above SUM under `captions`" in page
    assert f"{over_max[1]} and {over_sum[1]} under `images`" in page
    assert f"lies {over_max[0]} and {over_max[1]} above MAX, of which the second holds" in summary
    assert all(apart(("knn_margin",), ("sum", "max"), noisy) for noisy in two_fifths)
    over_max, from_sum = (lead("knn_margin", other, three_fifths) for other in ("max", "sum"))
    by_bank = lead("hal+mb", "hal", three_fifths)
    assert f"lies {over_max[0]} above MAX under `captions` and {over_max[1]} under `images`" in page
    assert f"lies {over_max[0]} and {over_max[1]} above MAX" in summary
    assert all(apart(("knn_margin",), ("max",), noisy) for noisy in three_fifths)
    assert float(means("knn_margin")[0]) < float(means("sum")[0])
    assert float(means("knn_margin")[1]) > float(means("sum")[1])
    assert f"{from_sum[0]} behind under `captions` and {from_sum[1]} ahead under `images`" in page
    assert f"adds {by_bank[0]} and {by_bank[1]} at three fifths." in page
    bank, hal = means("hal+mb"), means("hal")
    assert f"{bank[0]} and {hal[0]} under `captions`, {bank[1]} and {hal[1]} under `images`" in page
    plain = [" and ".join(means(loss)) for loss in ("sum", "knn_margin")]
    assert f"where SUM has {plain[0]} and kNN-margin {plain[1]}." in page
    clean = mean(rsums["clean"]["hal"].values())
    assert f"HAL keeps most, {hal[0]} and {hal[1]} of {clean:.1f} (three seeds" in summary
    bank, hal = means("hal+mb", two_fifths), means("hal", two_fifths)
    knn = means("knn_margin", two_fifths)[1]
    assert f"under `captions`, {bank[0]} and {hal[0]}, and as much as kNN-margin under `images`" in page
    assert f"`images`, {bank[1]} and {hal[1]} beside {knn}." in page
    assert all(apart(("hal", "hal+mb"), ("sum", "max", "knn_margin"), one) for one in (two_fifths[0], *three_fifths))


def test_the_figures_of_the_wide_losses_are_those_that_were_measured():
    folder = ROOT / "experiments" / "losses"
    page, summary = (
        " ".join(path.read_text().split()) for path in (folder / "README.md", ROOT / "docs" / "results.md")
    )
    read = {
        name: {
            (row["loss"], row["seed"]): row for row in csv.DictReader((folder / f"{name}.csv").read_text().splitlines())
        }
        for name in ("wide", "results")
    }
    seeds = sorted({seed for _, seed in read["wide"]})

    def gap(one: tuple, other: tuple, measured: str = "rsum") -> list[float]:
        first, second = ([float(read[name][loss, seed][measured]) for seed in seeds] for name, loss in (one, other))
        return [a - b for a, b in zip(first, second, strict=True)]

    ahead, behind = (gap(("wide", "hal"), ("wide", "infonce"), measured) for measured in ("rsum", "val_rsum"))
    lead = f"is {_told(ahead)} above InfoNCE"
    back = _told([-one for one in behind])
    assert f"{lead} over five seeds, and ahead with four of them; on validation HAL is {back} behind" in page
    assert f"three seeds HAL was {_told(ahead[:3])} ahead" in page
    assert f"{lead} on test and {-mean(behind):.1f} behind on validation (five seeds)" in summary
    assert len(seeds) == 5
    assert sum(one > 0 for one in ahead) == 4
    gains = [gap(("wide", loss), ("results", loss)) for loss in ("hal", "infonce")]
    told = [_told(one) for one in gains]
    assert f"HAL gains {told[0]} on test and InfoNCE {told[1]}." in page


def test_the_figures_of_the_wide_defaults_are_those_that_were_measured():
    folder = ROOT / "experiments" / "regularisation"
    page, summary = (
        " ".join(path.read_text().split()) for path in (folder / "README.md", ROOT / "docs" / "results.md")
    )
    rows = [row for row in csv.DictReader((folder / "runs.csv").read_text().splitlines()) if "defaults" in row["case"]]

    def reached(case: str, measured: str) -> list[float]:
        return [float(row[f"test_{measured}"]) for row in rows if row["case"] == case]

    plain, corrected = (reached("defaults, 1024 dimensions", measured) for measured in ("nns", "is"))
    narrow, narrow_corrected = (reached("defaults", measured) for measured in ("nns", "is"))
    told = [_told(one) for one in (plain, corrected)]
    assert f"reach {told[0]} in plain search and {told[1]} with the inverted softmax over five seeds" in page
    apart = mean(plain) - mean(narrow), mean(corrected) - mean(narrow_corrected)
    assert f"over five seeds, {apart[0]:.1f} and {apart[1]:.1f} above 512 dimensions" in page
    assert plain[0] == max(plain)
    assert corrected[0] == max(corrected)
    assert f"had {plain[0]:.1f} and {corrected[0]:.1f}" in page
    assert f"the other four lie between {min(plain):.1f} and {max(plain[1:]):.1f}" in page
    assert f"it reaches {told[0]}, and {told[1]} corrected (five seeds)" in summary


def test_the_figures_of_the_tuned_grid_are_those_that_were_measured():
    folder = ROOT / "experiments" / "tuned"
    page = (folder / "README.md").read_text().partition("**Read with the table.**")[2].partition("## Figures")[0]
    page, summary = (" ".join(text.split()) for text in (page, (ROOT / "docs" / "results.md").read_text()))
    rsums: dict[tuple, dict[str, float]] = {}
    for row in csv.DictReader((folder / "results.csv").read_text().splitlines()):
        if row["settings"] == "tuned" or row["criterion"] == "nns":
            rsums.setdefault((row["loss"], row["criterion"], row["reference"]), {})[row["seed"]] = float(row["rsum"])
    queries, train = "transductive", "inductive"

    def lead(one: tuple, other: tuple) -> list[float]:
        return [rsums[one][seed] - rsums[other][seed] for seed in rsums[other]]

    def gain(loss: str, criterion: str, reference: str) -> list[float]:
        return lead((loss, criterion, reference), (loss, "nns", "none"))

    def span(criterion: str, reference: str) -> str:
        gains = [mean(gain(loss, criterion, reference)) for loss in {loss for loss, *_ in rsums} - {"max"}]
        return f"{min(gains):.1f} to {max(gains):.1f}"

    assert (
        f"adds {span('is', queries)} rsum, CSLS {span('csls', queries)} and Sinkhorn {span('sinkhorn', queries)}"
        in page
    )
    assert f"{span('is', train)}, {span('csls', train)} and {span('sinkhorn', train)}." in page
    assert f"adds {span('is', train)} rsum and CSLS {span('csls', train)}, by loss" in summary
    after_hal, after_margin = (
        [_told(gain(loss, one, queries)) for one in ("csls", "is")] for loss in ("hal", "knn_margin")
    )
    assert f"CSLS adds {after_hal[0]} and the inverted softmax {after_hal[1]}" in page
    assert f"after kNN-margin {after_margin[0]} and {after_margin[1]}" in page
    for loss, said in (("sum", "SUM"), ("knn_margin", "kNN-margin"), ("siglip", "SigLIP")):
        gaps = lead(("hal", "is", queries), (loss, "is", queries))
        assert min(gaps) > 0
        assert re.search(rf"{_told(gaps)} above {said}", page), said
    losses = [-mean(gain("max", one, kind)) for one in ("is", "sinkhorn") for kind in (queries, train)]
    gains = [mean(gain("max", one, kind)) for one in ("csls", "nnn") for kind in (queries, train)]
    assert f"lose {min(losses):.0f} to {max(losses):.0f} rsum" in page
    assert f"gain {min(gains):.0f} to {max(gains):.0f} there" in page
    spread = list(csv.DictReader((folder / "spread.csv").read_text().splitlines()))
    own, others = ([row for row in spread if (row["loss"] == "max") == is_max] for is_max in (True, False))
    means, deviations = ([float(row[name]) for row in own] for name in ("mean", "deviation"))
    around = f"around {min(means):.2f} to {max(means):.2f}"
    assert f"{around} with a deviation of {min(deviations):.4f} to {max(deviations):.4f}" in page
    wide = [float(row["deviation"]) for row in others]
    assert f"other losses have one of {min(wide):.2f} to {max(wide):.2f}" in page


def test_other_figures_are_those_that_were_measured():
    training, embeddings = (
        " ".join((ROOT / "docs" / f"{name}.md").read_text().split()) for name in ("training", "embeddings")
    )
    bank = _benchmark("bank_precision")
    rounded, plain, faiss = (one["median"] for one in bank["seconds"].values())
    assert f"With {bank['pairs']:,} random pairs of {bank['dim']:,} dimensions" in training
    assert f"a query took {rounded:.3f} seconds, {plain:.3f} in float32 and {faiss:.3f} with FAISS" in training
    assert f"{bank['others']:.1%} of the neighbours differed" in training
    ratios = [one["alone"]["median"] / one["several"]["median"] for one in _benchmark("devices")["entries"]]
    assert f"were {min(ratios):.1f} to {max(ratios):.1f} times as fast at 512 pairs" in training
    whole, *_, eight = _benchmark("chunk")["entries"]
    longer = eight["seconds"]["median"] / whole["seconds"]["median"]
    assert eight["chunk"] == 8
    assert round(eight["peak_mb"] / whole["peak_mb"], 2) == 0.25
    assert f"chunks of 8 took a quarter of the memory and {longer:.1f} times the time" in training
    assert f"the peak was {_benchmark('million')['memory']['peak_gb']:.1f} GB" in embeddings


def _benchmark(name: str, device: str = "cpu") -> dict:
    return json.loads((ROOT / "experiments" / "benchmarks" / "results" / f"{name}-{device}.json").read_text())


def _told(values: list[float]) -> str:
    """As the pages write a mean and its sample deviation."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}"
