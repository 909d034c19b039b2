"""The page of `vsehub search`: what each query found, best first, as pictures or as texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vsehub.io.files import write_text
from vsehub.io.outputs import Output
from vsehub.report.pages.templates import render_page

PAGE = "index.html"


class Found(NamedTuple):
    """One thing that was found.

    score: by which it is ranked. similarity: the plain one where it is another, else None. name: of its image, None
    if there is none to name. caption: what is said of it. thumbnail: a data URL, or None. own: the image's own.
    """

    rank: int
    score: str
    similarity: str | None
    name: str | None
    caption: str
    thumbnail: str | None = None
    own: bool = False


class Gallery(NamedTuple):
    """What one query found, best first.

    heading: the query. notes: sentences on it. pictured: whether what was found is shown as pictures. name, thumbnail:
    of the image that is the query, None if it is a text.
    """

    heading: str
    notes: Sequence[str]
    found: Sequence[Found]
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

    summary: what was searched and how. facts: where it comes from, (name, text). missing: how many pictures could not
    be shown. overwrite: an earlier gallery is replaced. Raises InputError if `out` holds something that is not to be
    replaced.
    """
    output = gallery_output(out, overwrite)
    values = {"title": title, "summary": summary, "galleries": galleries, "origin": facts, "missing": missing}
    output.begin([PAGE])
    write_text(output / PAGE, render_page("gallery.html.j2", **values))
    output.finish()
    return output / PAGE


def gallery_output(out: str | Path, overwrite: bool) -> Output:
    """The folder of a gallery. Raises InputError if it holds something that is not to be replaced."""
    return Output(out, "a gallery", [PAGE], overwrite)
