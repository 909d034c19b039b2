"""`vsehub adapt`: linear maps of queries and items, fitted to known pairs, where these show that a map helps."""

import shlex
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import fail
from vsehub.cli.embeddings import named_files
from vsehub.cli.overrides import override
from vsehub.io.files import Output, write_json, write_text
from vsehub.io.records import RESULT

if TYPE_CHECKING:
    from vsehub.ranking.adapt import CrossValidation
    from vsehub.ranking.inputs import Inputs

MAPS, USAGE = "maps.safetensors", "USAGE.md"
NAMES = ("queries.npy", "items.npy", "query_ids.txt", "item_ids.txt", MAPS, USAGE, RESULT)
HEAD = ("map", "R@1 plain", "gain", "R@1 CSLS", "gain")
CODE = """import numpy as np
from safetensors.numpy import load_file

{unit}maps = load_file("maps.safetensors")
mapped = (query - maps["query_mean"]) @ maps["query_map"]
mapped /= np.linalg.norm(mapped, axis=-1, keepdims=True)
"""
UNIT = "query = query / np.linalg.norm(query, axis=-1, keepdims=True)\n"
NOTE = """# Mapping a new query

`query` is one vector of the model, or an array of several; `mapped` is what `queries.npy` holds for it. Items are
mapped in the same way, by `item_mean` and `item_map`. Run in this file's folder:

```python
{code}```

The map is {map}; choosing it gained {gain} points of R@1 on pairs that it was not fitted to. On those that it
was fitted to, recall is too high: measure it on others.
"""


def adapt(cfg: DictConfig) -> None:
    """Choose a map by the pairs of `cfg.truth`; write it and the mapped vectors if the gain of choosing is above 0."""
    files = named_files(cfg)
    if cfg.truth is None or cfg.queries is None:
        fail("truth or queries is not set; give the known pairs as truth=FILE, of queries=FILE and items=FILE")
    out = Output(str(cfg.out), "adapted vectors", NAMES, cfg.overwrite)

    from vsehub.io.provenance import origin
    from vsehub.ranking.adapt import CRITERIA, NOTHING, best, try_maps
    from vsehub.ranking.inputs import open_inputs
    from vsehub.ranking.record import with_absolute_path

    inputs = open_inputs(files, cfg.normalize)
    inputs.check()
    sides: Any = inputs.sides
    cross_validation = try_maps(sides.queries, sides.items, sides.positives, seed=cfg.seed)
    gain = cross_validation.gain_of_choosing()
    name, criterion = cross_validation.candidates[best(cross_validation.ranks)]
    helps = gain["low"] > 0 and name != NOTHING
    candidates = print_gains(cross_validation, gain)
    record: dict[str, Any] = {
        "schema": 1,
        "kind": "adapt",
        **origin(),
        "inputs": {key: with_absolute_path(value) for key, value in inputs.settings.items()},
        "fingerprints": {side: file.fingerprint() for side, file in inputs.files.items()},
        "candidates": candidates,
        "gain": gain,
        "map": name if helps else None,
        "criterion": criterion if helps else None,
    }
    with out.transaction():
        if helps:
            record["next"] = write_mapped(out, inputs, record, cfg.seed)
        write_json(out / RESULT, record)
    if helps:
        print(f"{name} and the mapped vectors are written to {out.shown}\nnext: {record['next']}")
    else:
        print(
            f"no map is shown to help: {gain_in_words(cross_validation.gain_of_choosing(len(CRITERIA)))}. "
            f"{out.shown} has only {RESULT}"
        )


def print_gains(cross_validation: "CrossValidation", gain: dict[str, float]) -> list[dict[str, Any]]:
    """Print R@1 and the gain of each candidate; returns them in plain values. gain: the gain of choosing."""
    from vsehub.ranking.adapt import NOTHING
    from vsehub.report.tables import ReportTable

    candidates = []
    rows: dict[str, list[str]] = {}
    for number, (name, criterion) in enumerate(cross_validation.candidates):
        r1, gain_of_map = 100 * (cross_validation.ranks[number] == 1).mean().item(), cross_validation.gain(number)
        candidates.append({"map": name, "criterion": criterion, "r1": r1, "gain": gain_of_map})
        rows.setdefault(name, [name]).extend([f"{r1:.1f}", "–" if name == NOTHING else with_interval(gain_of_map)])
    caption = (
        f"{gain['queries']:,} known queries, each among {cross_validation.items:,} items; gains over the unmapped "
        "vectors"
    )
    print(ReportTable(HEAD, list(rows.values()), caption).terminal())
    print(f"choosing the best, in each fold by the other folds, gains {with_interval(gain)} points of R@1")
    return candidates


def write_mapped(out: Output, inputs: "Inputs", record: dict[str, Any], seed: int) -> str:
    """Fit the record's map to all known pairs; write it, its usage, the mapped vectors and their ids.

    Returns the command that ranks the mapped vectors under the record's criterion. seed: see `pairs_of`.
    """
    from safetensors.torch import save_file

    from vsehub.io.arrays import write_array
    from vsehub.ranking.adapt import fit_maps, pairs_of

    sides: Any = inputs.sides
    known = sides.positives.counts.nonzero().flatten()
    maps = fit_maps(*pairs_of(sides.queries, sides.items, sides.positives, known, seed))
    of_queries, of_items = maps[record["map"]]
    code = CODE.format(unit=UNIT if inputs.settings["normalize"] else "")
    write_text(out / USAGE, NOTE.format(code=code, map=record["map"], gain=with_interval(record["gain"])))
    tensors, written = dict[str, Any](), dict[str, str]()
    for side, names, side_map in (("query", inputs.query_names, of_queries), ("item", inputs.item_names, of_items)):
        rows = inputs.files[names.side]
        tensors |= {f"{side}_mean": side_map.mean, f"{side}_map": side_map.matrix.contiguous()}
        written[names.side] = f"{names.side}.npy"
        write_array(out / written[names.side], len(rows), (side_map(block).numpy() for _, block in rows.blocks()))
        if names.ids is not None:
            written[f"{side}_ids"] = f"{side}_ids.txt"
            write_text(out / f"{side}_ids.txt", "".join(f"{row_id}\n" for row_id in names.ids))
    save_file(tensors, out / MAPS)
    words = [override(key, f"{out.shown}/{file}") for key, file in written.items()]
    words += [f"criterion={record['criterion']}", override("out", f"{out.shown}-reranked")]
    return shlex.join(["vsehub", "rerank", *words])


def with_interval(gain: dict[str, float]) -> str:
    """A gain in R@1 with its 95 % interval."""
    return f"{gain['r1']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}]"


def gain_in_words(gain: dict[str, float]) -> str:
    """The gain of the best map, and the estimated number of known queries with which its interval would exclude 0."""
    words = f"the best map gains {with_interval(gain)} points"
    if gain["r1"] <= 0:
        return f"{words}, and these pairs do not tell how many more might help"
    queries = gain["queries"] * ((gain["r1"] - gain["low"]) / gain["r1"]) ** 2
    return f"{words}; about {queries:,.0f} known queries might show that it helps"
