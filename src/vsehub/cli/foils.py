"""`vsehub evaluate foil=FILE`: measure how often the true caption scores above the false one."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from vsehub.checks import existing, fail, require
from vsehub.data.foils import Foils, read_foils, unknown_words
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Vocabulary, Words
from vsehub.evaluation.foils import distinct, foil_metrics, foil_scores
from vsehub.evaluation.trained import TrainedModel
from vsehub.io.files import write_json
from vsehub.io.records import FOILS, read_record

_SHOWN = 5  # unknown words that are named


def measure_foils(
    open_model: Callable[[], TrainedModel], checkpoint: str, foil: str, split: str, folder: Path, overwrite: bool
) -> None:
    """Measure the table `foil` on a split with the checkpoint's model, write the record to `folder`, and print it."""
    files = existing_foil(foil), Path(checkpoint)
    digest, weights = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    path = folder / "foils" / f"{split}-{Path(foil).stem}-{digest[:6]}-{weights[:6]}.json"
    if path.exists() and not overwrite:
        record = read_record(path, FOILS, "Give overwrite=true to measure again")
        print(f"{table_of(record)}\nmeasured before: {path}; overwrite=true measures again")
        return
    model = open_model()
    vocabulary = model.vocabulary
    if vocabulary is None:
        fail(
            f"checkpoint: {checkpoint} was trained on texts that are vectors, so it cannot read foils; give one "
            "that was trained on captions"
        )
    rows = model.split(split)
    foils = read_foils(foil, len(rows.images), rows.names)
    table = TokenTable.build(vocabulary, [*foils.captions, *foils.foils], model.max_words)
    encoders = model.model.image_encoder, model.model.text_encoder
    scores = foil_scores(encoders, model.similarity, rows.images, foils.images, table, model.batch_size)
    _, read_as = distinct(table)
    record = {
        "schema": FOILS.version,
        "split": split,
        "foil": foil,
        "sha256": digest,
        "checkpoint": checkpoint,
        "images": len(set(foils.images.tolist())),
        "read_alike": int((read_as[: len(scores)] == read_as[len(scores) :]).sum()),
        "unknown": _unknown(vocabulary, foils),
        "metrics": foil_metrics(scores, foils.types),
    }
    write_json(path, record)
    print(f"{table_of(record)}\nwritten to {path}")


def existing_foil(path: str) -> Path:
    """The path of the table. Raises InputError if it is not a file."""
    found = existing("foil", path, "Give a .csv with the columns image, caption and foil")
    require(found.is_file(), f"foil: {path} is a folder; give a .csv with the columns image, caption and foil")
    return found


def _unknown(vocabulary: Words, foils: Foils) -> dict | None:
    """{"captions", "foils"}: word -> in how many texts, for words that the vocabulary lacks; None with subwords."""
    if not isinstance(vocabulary, Vocabulary):
        return None
    sides = {"captions": foils.captions, "foils": foils.foils}
    return {name: dict(unknown_words(vocabulary, texts).most_common()) for name, texts in sides.items()}


def table_of(record: dict) -> str:
    """The metrics as a table for the terminal, with the pairs and words that the model cannot tell apart."""
    metrics = record["metrics"]
    width = max(len(name) for name in metrics)
    lines = [
        f"{record['split']}: {metrics['all']['pairs']} pairs of a caption and a foil, {record['images']} images",
        f"{'':<{width}}  pairs   right    95 % interval   ties",
    ]
    for name, one in metrics.items():
        interval = f"{one['low']:.1f} to {one['high']:.1f}"
        lines.append(f"{name:<{width}}{one['pairs']:7,}{one['share']:8.1f}{interval:>17}{one['ties']:7,}")
    for side, words in (record["unknown"] or {}).items():
        if words:
            named = ", ".join(list(words)[:_SHOWN]) + (", ..." if len(words) > _SHOWN else "")
            lines.append(f"{len(words)} words of the {side} are unknown to the vocabulary: {named}")
    if record["read_alike"]:
        lines.append(f"{record['read_alike']} pairs are the same words to the model: ties, counted as wrong")
    return "\n".join(lines)
