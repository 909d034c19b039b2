"""`vsehub adapt`: linear maps of queries and items, fitted to known pairs, where these show that a map helps."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import fail
from vsehub.cli.embeddings import named_files
from vsehub.cli.overrides import override
from vsehub.io.files import Output, write_json, write_text
from vsehub.io.records import RESULT

if TYPE_CHECKING:
    from vsehub.ranking.adapt import Map
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
    from vsehub.ranking.adapt import CRITERIA, NOTHING, best, fit_maps, pairs_of, try_maps
    from vsehub.ranking.inputs import open_inputs
    from vsehub.ranking.record import with_absolute_path
    from vsehub.report.tables import ReportTable

    inputs = open_inputs(files, cfg.normalize)
    inputs.check()
    queries, items = inputs.files["queries"], inputs.files["items"]
    positives: Any = inputs.sides.positives
    trial = try_maps(queries, items, positives, seed=cfg.seed)
    gain = trial.gain_of_choosing()
    name, criterion = trial.cells[best(trial.ranks)]
    helps = gain["low"] > 0 and name != NOTHING
    candidates = []
    rows: dict[str, list[str]] = {}
    for number, (map_name, criterion_name) in enumerate(trial.cells):
        r1, gain_of_map = 100 * (trial.ranks[number] == 1).mean().item(), trial.gain(number)
        candidates.append({"map": map_name, "criterion": criterion_name, "r1": r1, "gain": gain_of_map})
        rows.setdefault(map_name, [map_name]).extend([f"{r1:.1f}", with_interval(gain_of_map)])
    caption = f"{gain['queries']:,} known queries, each among {trial.items:,} items; gains over the unmapped vectors"
    print(ReportTable(HEAD, list(rows.values()), caption).terminal())
    print(f"choosing the best, in each fold by the other folds, gains {with_interval(gain)} points of R@1")
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
    with out.replaced():
        if helps:
            known = positives.counts.nonzero().flatten()
            maps = fit_maps(*pairs_of(queries, items, positives, known, cfg.seed))[name]
            code = CODE.format(unit=UNIT if cfg.normalize else "")
            write_text(out / USAGE, NOTE.format(code=code, map=name, gain=with_interval(gain)))
            written = write_mapped(out, inputs, dict(zip(("query", "item"), maps, strict=True)))
            words = [override(key, f"{out.shown}/{file}") for key, file in written.items()]
            words += [f"criterion={criterion}", override("out", f"{out.shown}-reranked")]
            record["next"] = shlex.join(["vsehub", "rerank", *words])
        write_json(out / RESULT, record)
    if helps:
        print(f"{name} and the mapped vectors are written to {out.shown}\nnext: {record['next']}")
    else:
        print(
            f"adapting would not help: {gain_in_words(trial.gain_of_choosing(len(CRITERIA)))}. "
            f"{out.shown} has only {RESULT}"
        )


def write_mapped(out: Output, inputs: "Inputs", maps: Mapping[str, "Map"]) -> dict[str, str]:
    """Write the maps, the mapped vectors and their ids; returns the files by the setting of rerank that takes each.

    maps: the maps of "query" and "item".
    """
    from safetensors.torch import save_file

    from vsehub.io.arrays import write_array

    tensors, written = dict[str, Any](), dict[str, str]()
    for side, names in (("query", inputs.query_names), ("item", inputs.item_names)):
        mapped, rows = maps[side], inputs.files[names.side]
        tensors |= {f"{side}_mean": mapped.mean, f"{side}_map": mapped.matrix.contiguous()}
        written[names.side] = f"{names.side}.npy"
        write_array(out / written[names.side], len(rows), (mapped(block).numpy() for _, block in rows.blocks()))
        if names.ids is not None:
            written[f"{side}_ids"] = f"{side}_ids.txt"
            write_text(out / f"{side}_ids.txt", "".join(f"{name}\n" for name in names.ids))
    save_file(tensors, out / MAPS)
    return written


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
