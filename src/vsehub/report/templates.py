"""The pages' templates: one look for all, every text escaped, nothing fetched from elsewhere."""

import base64
from collections.abc import Callable

import jinja2

from vsehub.report.drawing import Picture


def render_page(template: str, filters: dict[str, Callable] | None = None, **values) -> str:
    """The page that `template` (a file beside this one) makes of `values`; a value that is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vsehub.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"image": image, "narrow_image": narrow_image} | (filters or {})
    return environment.get_template(template).render(values)


def image(picture: Picture) -> str:
    """The figure as a data URL."""
    return data_url("image/svg+xml", picture.svg)


def narrow_image(picture: Picture) -> str:
    """The figure as a data URL, in its form for a phone, which it must have."""
    return data_url("image/svg+xml", picture.narrow)


def data_url(kind: str, content: bytes) -> str:
    """Bytes of a media type as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
