"""The page of `vsehub search`: the results of each query, best first, as pictures or as texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vsehub.io.files import Output, write_text
from vsehub.report.pages.templates import render_page

PAGE = "index.html"


class GalleryEntry(NamedTuple):
    """One result of a search.

    score: the score that ranks it. similarity: the plain similarity if it differs, else None. name: its image's
    name, or None. caption: its caption. thumbnail: a data URL, or None. own: whether it is the query image's caption.
    """

    rank: int
    score: str
    similarity: str | None
    name: str | None
    caption: str
    thumbnail: str | None = None
    own: bool = False


class Gallery(NamedTuple):
    """The results of one query, best first.

    heading: the query. notes: sentences on it. pictured: whether results are shown as pictures. name, thumbnail: of the
    image that is the query; None if the query is a text.
    """

    heading: str
    notes: Sequence[str]
    found: Sequence[GalleryEntry]
    pictured: bool
    name: str | None = None
    thumbnail: str | None = None


def write_gallery(
    out: str | Path,
    title: str,
    summary: str,
    galleries: Sequence[Gallery],
    facts: Sequence[tuple[str, str]],
    missing: int = 0,
    overwrite: bool = False,
) -> Path:
    """Write the page as index.html in the folder `out`, atomically, and return its path.

    summary: what was searched. facts: the origin, (name, text). missing: the number of pictures that could not be
    shown. overwrite: replace an earlier gallery. Raises InputError if `out` holds files that must not be replaced.
    """
    output = gallery_output(out, overwrite)
    values = {"title": title, "summary": summary, "galleries": galleries, "origin": facts, "missing": missing}
    output.begin([PAGE])
    write_text(output / PAGE, render_page("gallery.html.j2", **values))
    output.finish()
    return output / PAGE


def gallery_output(out: str | Path, overwrite: bool) -> Output:
    """The folder of a gallery. Raises InputError if it holds files that must not be replaced."""
    return Output(out, "a gallery", [PAGE], overwrite)
