"""`vsehub search TEXT...`: the images of a split that a text finds, as a list and as a page of thumbnails."""

import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import fail, nearest, one_of, require, whole
from vsehub.cli import app
from vsehub.cli.nodes import build, components, plain
from vsehub.cli.overrides import bare_texts, with_texts

if TYPE_CHECKING:
    from vsehub.criteria.base import Criterion
    from vsehub.data.sources import CaptionedImages
    from vsehub.data.text.vocabulary import Words
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.report.pages.gallery import Gallery


def main() -> None:
    """Run the command; bare arguments are texts, data.KEY=VALUE changes a setting of the checkpoint's data."""
    command = f"{sys.argv[0]} {shlex.join(sys.argv[1:])}"
    words = bare_texts(sys.argv[1:])
    arguments = with_texts(sys.argv[1:], "query")
    sys.argv = [sys.argv[0], *(f"+{argument}" if argument.startswith("data.") else argument for argument in arguments)]

    def task(cfg: DictConfig) -> None:
        search(cfg, command)
        if len(words) > 1 and all(word.isalpha() for word in words):
            one = shlex.quote(" ".join(words))
            print(f"\n{len(words)} texts of one word each were searched; one text of them: vsehub search ... {one}")

    app.run(task, "search")


def search(cfg: DictConfig, command: str) -> None:
    """Search with `cfg.query` and `cfg.image`, print the results and write their gallery to `cfg.out`.

    command: the command as it was typed, for the gallery.
    """
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
    require(
        not OmegaConf.is_missing(cfg, "checkpoint"),
        "checkpoint is not set; give checkpoint=RUN_FOLDER/checkpoints/best.safetensors",
    )
    from vsehub.evaluation.checkpoint_file import checkpoint_file

    checkpoint_file(cfg.checkpoint)

    from vsehub.cli.shown import Shown, hits_of
    from vsehub.criteria.auto import Auto
    from vsehub.data.sources import SPLITS
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.report.pages.gallery import gallery_output, write_gallery

    gallery_output(cfg.out, cfg.overwrite)  # refused before anything is encoded
    for name in ("split", "reference"):
        one_of(name, cfg[name], SPLITS)
    for name in ("k", "eval_batch_size"):
        whole(name, cfg[name])
    name, criterion = str(cfg.criterion_name), build("criterion", cfg.criterion, cfg.trust)
    if isinstance(criterion, Auto):
        name, criterion = criterion.untuned
    model = TrainedModel(cfg.checkpoint, components(cfg.trust), plain(cfg.data), cfg.eval_batch_size, keep=True)
    if model.vocabulary is None:
        fail(
            f"checkpoint: {cfg.checkpoint} was trained on texts that are vectors, so it cannot read words; search "
            "needs one that was trained on captions. To search with vectors, use vsehub rerank"
        )
    texts = [str(text) for text in texts]
    notes = [word_notes(text, model.vocabulary, model.max_words) for text in texts]
    split = model.split(cfg.split)
    row = None if cfg.image is None else image_row(str(cfg.image), split)
    shown = Shown(split, cfg.images, plain=not criterion.needs_reference)

    ranked_by = (cfg.k, criterion, cfg.split, cfg.reference)
    galleries = []
    if texts:
        said = criterion_note(name, criterion, cfg.reference, "captions", model)
        found = hits_of(model.search(texts, *ranked_by))
        galleries += [
            shown.of_text(text, [*own, said], hits) for text, own, hits in zip(texts, notes, found, strict=True)
        ]
    if row is not None:
        said = criterion_note(name, criterion, cfg.reference, "images", model)
        found = hits_of(model.search(None, *ranked_by, images=split.images[row : row + 1]))
        galleries.append(shown.of_image(row, [said], found[0]))
    source = model.source.name
    summary = f"The {cfg.split} split of {source}: {len(split.images):,} images with {len(split.captions):,} captions."
    origin = [("checkpoint", str(cfg.checkpoint)), ("command", command)]
    missing = len(set(shown.thumbnails.missing))
    shown.thumbnails.warn()
    path = write_gallery(cfg.out, f"Found in {source}", summary, galleries, origin, missing, cfg.overwrite)
    print("\n\n".join([summary, *map(listed, galleries), f"gallery: {path}"]))


def criterion_note(name: str, criterion: "Criterion", reference: str, asked: str, model: "TrainedModel") -> str:
    """A sentence on the criterion and its reference, if it takes one. asked: "captions" or "images", the queries."""
    from vsehub.report.tables import criterion_text

    text = criterion_text(name, ", ".join(f"{key} {value}" for key, value in criterion.parameters().items()))
    if not criterion.needs_reference:
        return f"Criterion {text}."
    loaded = model.split(reference)
    count = len(loaded.captions if asked == "captions" else loaded.images)
    bank = ""
    if criterion.takes_reference_items:
        found, items = ("images", loaded.images) if asked == "captions" else ("captions", loaded.captions)
        bank = f" with its {len(items):,} {found}"
    return f"Criterion {text}, inductive: its reference is the {count:,} {asked} of the {reference} split{bank}."


def listed(gallery: "Gallery") -> str:
    """A gallery for the terminal, one line per result; a star marks an image's own captions."""
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


def word_notes(text: str, vocabulary: "Words", max_words: int | None) -> list[str]:
    """Notes on words that the checkpoint does not know or did not read. Raises InputError if it knows none."""
    from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, tokenize

    if not isinstance(vocabulary, Vocabulary):  # subwords spell every word
        is_cut = len(vocabulary.encode(text)) > len(vocabulary.encode(text, max_words))
        return [f"Read to its subword {max_words}, as in training."] if is_cut else []
    words = tokenize(text)
    require(bool(words), f"the text {text!r} holds no word; give one or more words")
    numbers = vocabulary.numbers(text)[:max_words]
    unknown = [word for word, number in zip(words, numbers, strict=False) if number == UNKNOWN]
    said = ", ".join(f"{word}{nearest(word, vocabulary.words[4:])}" for word in dict.fromkeys(unknown))
    require(
        len(unknown) < len(numbers),
        f"the checkpoint knows no word of the text {text!r}: {said}. Give words of its training captions",
    )
    cut = [f"Read to its word {max_words}, as in training."] if len(numbers) < len(words) else []
    return [*([f"Not known to the checkpoint: {said}."] if unknown else []), *cut]


def image_row(image: str, split: "CaptionedImages") -> int:
    """The row of an image, given by its name or its row number. Raises InputError if there is none."""
    names = split.names or []
    if image in names:
        return names.index(image)
    if image.isdecimal() and int(image) < len(split.images):
        return int(image)
    hint = nearest(image, names) or (f"; the first name is {names[0]}" if names else "")
    fail(f"image: the split has no image {image!r}{hint}. Give a name or a row from 0 to {len(split.images) - 1}")
