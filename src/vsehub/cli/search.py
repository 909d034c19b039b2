"""`vsehub search TEXT...`: the images of a split that a text finds, as a list and as a page of thumbnails."""

import difflib
import shlex
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, one_of, require, whole
from vsehub.cli import app
from vsehub.cli.overrides import with_texts

if TYPE_CHECKING:
    from vsehub.cli.split_search import SplitSearch
    from vsehub.criteria import Criterion
    from vsehub.data.sources import CaptionedImages
    from vsehub.data.text.vocabulary import Vocabulary, Words


def main() -> None:
    """Run the command; bare arguments are texts, data.KEY=VALUE is for settings of the checkpoint's data."""
    arguments = with_texts(sys.argv[1:], "query")
    sys.argv = [sys.argv[0], *(f"+{argument}" if argument.startswith("data.") else argument for argument in arguments)]
    app.run(search, "search")


def search(cfg: DictConfig) -> None:
    """Search with `cfg.query` and `cfg.image`, print what is found and write its gallery to `cfg.out`."""
    texts = OmegaConf.to_container(cfg, resolve=True)["query"]
    require(
        isinstance(texts, list) and not any(isinstance(text, list | dict) for text in texts),
        f"query is {texts!r}; expected texts in brackets, or each as an argument of its own",
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
    from vsehub.cli.split_search import Shown, listed
    from vsehub.report.pages.gallery import gallery_output, write_gallery

    gallery_output(cfg.out, cfg.overwrite)  # refused before anything is encoded

    finder, name = opened(cfg)
    texts = [str(text) for text in texts]
    notes = [word_notes(text, finder.vocabulary, finder.max_words) for text in texts]
    split = finder.load(finder.split)
    row = None if cfg.image is None else image_row(str(cfg.image), split)
    sizes = {"images": len(split.images)} if texts else {}
    for what, size in (sizes | ({} if row is None else {"captions": len(split.captions)})).items():
        require(
            cfg.k <= size, f"k is {cfg.k}; expected at most {size}, the number of {what} in the {finder.split} split"
        )
    shown = Shown(split, cfg.images, plain=not finder.criterion.needs_reference)

    galleries = []
    if texts:
        told, found = finder.told("captions"), finder.images_for(texts, cfg.k)
        galleries += [
            shown.of_text(text, [*own, told], hits) for text, own, hits in zip(texts, notes, found, strict=True)
        ]
    if row is not None:
        galleries.append(shown.of_image(row, [finder.told("images")], finder.captions_for(row, cfg.k)))
    summary = f"The {finder.split} split of {name}: {len(split.images):,} images with {len(split.captions):,} captions."
    command = f"{sys.argv[0]} {shlex.join(sys.argv[1:])}"
    origin = [("checkpoint", str(cfg.checkpoint)), ("command", command)]
    missing = len(set(shown.thumbnails.missing))
    shown.thumbnails.warn()
    path = write_gallery(cfg.out, f"Found in {name}", summary, galleries, origin, missing, cfg.overwrite)
    print("\n\n".join([summary, *map(listed, galleries), f"gallery: {path}"]))


def opened(cfg: DictConfig) -> tuple["SplitSearch", str]:
    """What searches, and the name of the data; InputError where settings, checkpoint and data do not fit."""
    import torch

    from vsehub.cli.build import fitting, restore_model, trained_source
    from vsehub.cli.split_search import EncodedCache, SplitSearch
    from vsehub.data.sources import SPLITS

    for name in ("split", "reference"):
        one_of(name, cfg[name], SPLITS)
    for name in ("k", "eval_batch_size"):
        whole(name, cfg[name])
    criterion = one_query_criterion(cfg)
    model, trained, vocabulary = restore_model(cfg.checkpoint, cfg.trust)
    require(
        vocabulary is not None,
        f"checkpoint: {cfg.checkpoint} was trained on texts that are vectors, so it reads no words; search needs one "
        "trained on captions. To search with vectors, give them to vsehub rerank",
    )
    kind = type(model.similarity).__name__
    require(
        model.similarity.inner_product,
        f"checkpoint: {cfg.checkpoint} was trained with {kind}, which is no inner product of vectors; search needs one",
    )
    source = trained_source(trained, cfg.data, cfg.trust)
    load: Callable[[str], CaptionedImages] = cache(lambda split: fitting(model, source.load(split)))
    finder = SplitSearch(
        model.to("cuda" if torch.cuda.is_available() else "cpu"),
        vocabulary,
        load,
        cfg.split,
        criterion,
        cfg.criterion_name,
        cfg.reference,
        EncodedCache(cfg.checkpoint),
        trained["loader"]["max_words"],
        cfg.eval_batch_size,
    )
    return finder, source.name


def one_query_criterion(cfg: DictConfig) -> "Criterion":
    """The criterion; InputError for one that matches queries with items, of which one query alone has none."""
    from vsehub.cli.nodes import build

    criterion = build("criterion", cfg.criterion)
    require(
        criterion.matching is None and criterion.inductive,
        f"criterion={cfg.criterion_name} matches many queries with items at once, a single query cannot be matched; "
        "use another, e.g. criterion=csls",
    )
    return criterion


def word_notes(text: str, vocabulary: "Words", max_words: int | None) -> list[str]:
    """A sentence on the words that the checkpoint does not know; InputError where it knows none."""
    from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, tokenize

    if not isinstance(vocabulary, Vocabulary):  # subwords spell every word
        cut = len(vocabulary.encode(text)) > len(vocabulary.encode(text, max_words))
        return [f"Read to its subword {max_words}, as in training."] if cut else []
    words = tokenize(text)
    require(bool(words), f"the text {text!r} holds no word; give one or more words")
    numbers = vocabulary.numbers(text)[:max_words]
    unknown = [word for word, number in zip(words, numbers, strict=False) if number == UNKNOWN]
    said = ", ".join(_with_nearest(word, vocabulary) for word in dict.fromkeys(unknown))
    require(
        len(unknown) < len(numbers),
        f"the checkpoint knows no word of the text {text!r}: {said}. Give words of its training captions",
    )
    cut = [f"Read to its word {max_words}, as in training."] if len(numbers) < len(words) else []
    return [*([f"Not known to the checkpoint: {said}."] if unknown else []), *cut]


def _with_nearest(word: str, vocabulary: "Vocabulary") -> str:
    near = difflib.get_close_matches(word, vocabulary.words[4:], n=1, cutoff=0.75)
    return f"{word} (it knows {near[0]})" if near else word


def image_row(image: str, split: "CaptionedImages") -> int:
    """The row of the image of this name, or of this row number; InputError where there is none."""
    names = split.names or []
    if image in names:
        return names.index(image)
    if image.isdecimal() and int(image) < len(split.images):
        return int(image)
    near = difflib.get_close_matches(image, names, n=3)
    hint = f"; names like it: {', '.join(near)}" if near else f"; the first name is {names[0]}" if names else ""
    raise InputError(
        f"image: the split has no image {image!r}{hint}. Give a name or a row from 0 to {len(split.images) - 1}"
    )
