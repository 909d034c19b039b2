"""`vsehub search TEXT...`: the images that a text finds, as a list and as a page of thumbnails."""

import shutil
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import existing, one_of, require, whole
from vsehub.cli.nodes import build, components, plain
from vsehub.cli.published import model_settings, require_checkpoint_alone, require_one_model
from vsehub.io.address import typed_command

if TYPE_CHECKING:
    from vsehub.evaluation.trained import DataModel
    from vsehub.report.pages.gallery import Gallery


def search(cfg: DictConfig) -> None:
    """Search with `cfg.query` and `cfg.image`, print the results and write their gallery to `cfg.out`."""
    texts = plain(cfg)["query"]
    require(
        isinstance(texts, list) and not any(isinstance(text, list | dict) for text in texts),
        f"query is {texts!r}; expected a list of texts in brackets, or each text as a separate argument",
    )
    require(
        bool(texts) or cfg.image is not None,
        'there is nothing to search for; give a text, e.g. vsehub search checkpoint=... "two dogs on a beach", '
        "or image=NAME to find captions",
    )
    refuse_early(cfg)

    from vsehub.cli.searched import search_collection, search_split
    from vsehub.criteria.auto import Auto
    from vsehub.evaluation.words import word_notes
    from vsehub.report.pages.gallery import gallery_output, write_gallery

    gallery_output(cfg.out, cfg.overwrite)  # refused before anything is encoded
    name, criterion = str(cfg.criterion_name), build("criterion", cfg.criterion, cfg.trust)
    if isinstance(criterion, Auto):
        name, criterion = criterion.untuned
    require(
        cfg.engine is None or not criterion.needs_reference,
        f"criterion={name}: a collection ranks by the criterion with which it was filled; leave criterion out",
    )
    model = searching_model(cfg)
    texts = [str(text) for text in texts]
    notes = [word_notes(text, model.vocabulary, model.max_words) for text in texts]  # type: ignore[arg-type]
    if cfg.engine is None:
        found = search_split(cfg, model, criterion, name, texts, notes)
    else:
        found = search_collection(cfg, model, texts, notes)
    named = "checkpoint" if cfg.model is None else "model"
    origin = [(named, str(cfg[named])), ("command", typed_command())]
    missing = len(set(found.thumbnails.missing))
    path = write_gallery(cfg.out, found.title, found.summary, found.galleries, origin, missing, cfg.overwrite)
    print("\n\n".join([found.summary, *map(listed, found.galleries), f"gallery: {path}"]))


def refuse_early(cfg: DictConfig) -> None:
    """Raise InputError for settings that can be refused without torch."""
    from vsehub.data.sources import SPLITS

    alone = ". Without the model that made the vectors, search by vectors, with the Python of the index's USAGE.md"
    require_one_model(cfg.checkpoint, cfg.model, "" if cfg.uri is None else alone)
    if cfg.checkpoint is not None:
        from vsehub.evaluation.checkpoint_file import checkpoint_file

        checkpoint_file(cfg.checkpoint)
        require_checkpoint_alone(model_settings(cfg))
    places = [name for name in ("folder", "engine") if cfg[name] is not None]
    require(len(places) < 2, "folder and index are given; search one of them")
    require(
        cfg.model is None or bool(places),
        "model: a published model has no data of its own to search; give folder=PICTURES, or engine= with uri=",
    )
    own = [name for name in ("uri", "accept") if cfg[name] is not None and cfg.engine is None]
    require(not own, f"{', '.join(own)}: of a collection that vsehub index filled; give engine= too, or omit it")
    one_of("split", cfg.split, SPLITS)
    if not str(cfg.reference).endswith(".txt"):
        one_of("reference", cfg.reference, (*SPLITS, "FILE.txt"))
    else:
        existing("reference", str(cfg.reference), "Give one text on each line, or a split")
    for name in ("k", "eval_batch_size"):
        whole(name, cfg[name])


def searching_model(cfg: DictConfig) -> "DataModel":
    """The model of the checkpoint, or a published one."""
    if cfg.model is None:
        from vsehub.evaluation.trained import TrainedModel

        return TrainedModel(cfg.checkpoint, components(cfg.trust), plain(cfg.data), cfg.eval_batch_size, keep=True)
    from vsehub.evaluation.zero_shot import ZeroShot
    from vsehub.io.files import cache_folder

    own = {"batch_size": cfg.eval_batch_size, "keep": cache_folder(None) / "encoded"}
    return ZeroShot(cfg.model, None, **own, **model_settings(cfg))


def listed(gallery: "Gallery") -> str:
    """A gallery for the terminal, one line per result, if there are any; a star marks an image's own captions."""
    if not gallery.found:
        return "\n".join([gallery.heading, *gallery.notes])
    width = shutil.get_terminal_size((160, 24)).columns
    rows = [("rank", "score", "similarity", "image", "caption" if gallery.found[0].name is None else "first caption")]
    rows += [
        (str(one.rank), one.score, one.similarity or "", one.name or "", ("* " if one.own else "") + one.caption)
        for one in gallery.found
    ]
    used = [n for n, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ["  ".join(f"{row[n]:{'<' if n > 2 else '>'}{widths[n]}}" for n in used)[:width].rstrip() for row in rows]
    return "\n".join([gallery.heading, *gallery.notes, "", *lines])
