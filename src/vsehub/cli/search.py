"""`vsehub search TEXT...`: ranked lists of the pictures of a split or a folder that texts find."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import existing, require
from vsehub.cli.nodes import build, choice_in, components, model_settings, plain
from vsehub.models.hub import checkpoint_file

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.models.trained import DataModel


def search(cfg: DictConfig) -> None:
    """Print what the texts of `cfg.query` find."""
    texts = plain(cfg)["query"]
    require(
        isinstance(texts, list) and len(texts) > 0,
        f'query is {texts!r}; give each text as an argument, e.g. vsehub search checkpoint=... "two dogs on a beach"',
    )
    settings = model_settings(cfg)
    if cfg.checkpoint is not None:
        checkpoint_file(cfg.checkpoint)
    require(
        cfg.folder is not None or cfg.model is None,
        "model: a published model has no data of its own to search; give folder=PICTURES",
    )

    from vsehub.report.tables import ReportTable

    texts = list(map(str, texts))
    model = open_model(cfg, settings)
    notes = list(map(model.notes, texts))
    summary, lists = search_split(cfg, model, texts)
    for text, remarks, rows in zip(texts, notes, lists, strict=True):
        cells = [[str(rank), f"{score:.4f}", name, caption] for rank, (name, caption, score) in enumerate(rows, 1)]
        table = ReportTable(["rank", "score", "image", "caption"], cells, text_left=0, text_right=2).terminal()
        print("\n".join([f"“{text}”", *remarks, table]), end="\n\n")
    print(summary)


def open_model(cfg: DictConfig, settings: dict[str, Any]) -> "DataModel":
    """The model of the checkpoint, or a published one with its settings."""
    if cfg.model is None:
        from vsehub.models.trained import TrainedModel

        return TrainedModel(cfg.checkpoint, components(cfg.trust), plain(cfg.data), keep=True)
    from vsehub.io.files import cache_folder
    from vsehub.models.zero_shot import ZeroShot

    return ZeroShot(cfg.model, None, store=cache_folder() / "encoded", **settings)


def search_split(cfg: DictConfig, model: "DataModel", texts: Sequence[str]) -> tuple[str, list[list[Any]]]:
    """Search the images of a split or folder.

    Returns a summary of the search and, for each text, (name, first caption, score) of the images, best first.
    """
    from vsehub.criteria.choose import Auto
    from vsehub.io.text import read_lines
    from vsehub.models.trained import FOLDER

    name = choice_in("criterion")
    criterion = build("criterion", cfg.criterion, cfg.trust)
    if isinstance(criterion, Auto):
        name, criterion = criterion.untuned(0)
    split = cfg.split
    reference = str(cfg.reference)
    if cfg.folder is not None:
        split = FOLDER
        model.use_folder(cfg.folder)
    if reference.endswith(".txt"):
        lines = read_lines(existing("reference", reference, "Give one text on each line, or a split"), "text")
        model.use_reference(reference, lines)
    loaded = model.split(split)
    hits = model.search(texts, min(cfg.k, len(loaded.images)), criterion, split, reference)
    names = range(len(loaded.images)) if loaded.names is None else loaded.names
    lists = []
    for rows, scores in zip(hits.rows.tolist(), hits.scores.tolist(), strict=True):
        captions = [[loaded.text_of(caption) for caption in loaded.captions_of(row)] for row in rows]
        first = [texts_of_image[0] if texts_of_image else "" for texts_of_image in captions]
        lists.append(list(zip([str(names[row]) for row in rows], first, scores, strict=True)))
    reference_text = f", inductive: its reference is {reference}" if criterion.needs_reference else ""
    return f"{len(loaded.images):,} images of {cfg.folder or split}; criterion {name}{reference_text}", lists
