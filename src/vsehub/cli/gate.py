"""`vsehub gate`: find new items that would be hubs of a collection before they are added to it."""

import time

from omegaconf import DictConfig

from vsehub.checks import fail, require, whole
from vsehub.cli import app
from vsehub.cli.collection import collection_place, new_items
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import alone, write_json, write_text
from vsehub.io.outputs import Output
from vsehub.io.spreadsheet import csv_text

RECORD, QUARANTINE = "gate.json", "quarantine.csv"


def main() -> None:
    """Run the command."""
    app.run(gate, "gate")


def gate(cfg: DictConfig) -> None:
    """Compare `cfg.items` with the lists of sentinel queries in a collection; write those that would be hubs."""
    place = collection_place(cfg)
    for name in ("k", "sample"):
        whole(name, cfg[name])
    for name in ("budget", "false_alarms"):
        share = cfg[name]
        given = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1
        require(
            given or (name == "budget" and share is None), f"{name} is {share!r}; expected a share from 0 to below 1"
        )
    require(cfg["items"] is not None, "items is not set; give the vectors that are to be added")
    if cfg.sentinels is not None:
        require_vectors("sentinels", split_path(str(cfg.sentinels))[0])
    out = Output(str(cfg.out), "a gate's result", (RECORD, QUARANTINE), cfg.overwrite)

    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.neighbors.vectors import as_vectors, sampled
    from vsehub.serving.databases.gate import RANKINGS, Gate
    from vsehub.serving.databases.living import opened

    began = time.perf_counter()
    with alone(out.folder, "writing"), opened(place) as collection:
        facts = collection.facts
        items = new_items(cfg, collection)
        if cfg.sentinels is not None:
            file = open_vectors(str(cfg.sentinels), "sentinels", normalize=facts.normalize)
            look_through(file)
            asked = collection.without_mean(as_vectors("sentinels", file, columns=facts.dim))
        elif facts.reference_rows:
            asked = as_vectors("reference", collection.kept.reference)
        else:
            fail(f"sentinels is not set, and no reference queries are kept beside {place.address}; give queries")
        sentinels, _ = sampled(asked, cfg.sample, cfg.seed)
        found = Gate.of(collection, sentinels, cfg.k, cfg.budget, cfg.false_alarms)
        entries = found.entries(items, facts.scale, facts.mean_bias)
        beyond = found.beyond(entries).nonzero().flatten().tolist()
        shares = entries.shares
    beyond.sort(key=lambda row: -max(shares[name][row] for name in RANKINGS))
    out.begin((RECORD, QUARANTINE))
    rows = [
        {
            "id": items.ids[row],
            "label": "" if items.labels is None else items.labels[row],
            **{name: round(float(shares[name][row]), 6) for name in RANKINGS},
            "reason": found.reason(entries, row),
        }
        for row in beyond
    ]
    write_text(out / QUARANTINE, csv_text(["id", "label", *RANKINGS, "reason"], rows))
    record = {
        "collection": place.address,
        "held": found.items,
        "items": len(items.vectors),
        "quarantined": len(beyond),
        "sentinels": len(sentinels),
        "k": found.k,
        "budget": found.budget,
        "largest": {name: float(shares[name].max()) for name in RANKINGS},
        "seconds": time.perf_counter() - began,
    }
    write_json(out / RECORD, record)
    out.finish()
    for row in rows[:10]:
        print(f"{row['id']}{' (' + row['label'] + ')' if row['label'] else ''}: {row['reason']}")
    more = f" ({len(rows) - 10} more in the list)" if len(rows) > 10 else ""
    budgets = ", ".join(f"{found.budget[name]:.2%} {name}" for name in RANKINGS)
    print(
        f"{len(beyond):,} of {len(items.vectors):,} items quarantined{more}; budget {budgets}; "
        f"written to {out.folder}: {RECORD}, {QUARANTINE}; {record['seconds']:.1f} seconds"
    )
