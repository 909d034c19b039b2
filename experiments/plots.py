"""Figures written to a study's folder."""

from pathlib import Path

from vsehub.io.files import atomic
from vsehub.report.pictures import Picture


def save(folder: Path, *pictures: Picture) -> None:
    """Write the figures' PNG files into `folder`/figures."""
    for picture in pictures:
        with atomic(folder / "figures" / f"{picture.name}.png") as handle:
            handle.write(picture.png)
