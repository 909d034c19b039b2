"""Settings that are true or false."""

from typing import Any

from vsehub.checks import require


def flag(name: str, value: Any, optional: bool = False) -> None:
    """InputError unless `value` is True or False, or None where it is `optional`: text such as "no" counts as true."""
    require(
        isinstance(value, bool) or (optional and value is None),
        f"{name} is {value!r}; expected {'true, false or null' if optional else 'true or false'}",
    )
