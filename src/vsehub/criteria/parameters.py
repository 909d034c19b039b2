"""A criterion's settings: read, changed, and the grid among which validation chooses."""

import inspect
import itertools
from typing import Any


def parameters(rule: Any) -> dict[str, Any]:
    """The constructor's arguments of a criterion and their values; those of a chain's steps together.

    >>> from vsehub.criteria.csls import CSLS
    >>> parameters(CSLS(k=5))
    {'k': 5}
    """
    if hasattr(rule, "steps"):
        return {name: value for step in rule.steps for name, value in parameters(step).items()}
    return {name: getattr(rule, name) for name in inspect.signature(type(rule)).parameters}


def with_parameters(rule: Any, **changes: Any) -> Any:
    """A criterion like `rule` with some arguments changed; in a chain those of the step that has them."""
    if hasattr(rule, "steps"):
        own = [{name: value for name, value in changes.items() if name in parameters(step)} for step in rule.steps]
        return type(rule)([with_parameters(step, **changed) for step, changed in zip(rule.steps, own, strict=True)])
    return type(rule)(**parameters(rule) | changes)


def grid(rule: Any) -> list[dict[str, Any]]:
    """All combinations of the values that a criterion names in GRID; one empty combination where it names none."""
    return [dict(zip(rule.GRID, values, strict=True)) for values in itertools.product(*rule.GRID.values())]


def has_grid(rule: Any) -> bool:
    """Whether a criterion, or a step of it, has settings that validation can choose."""
    return any(step.GRID for step in (rule.correction, rule.matching) if step is not None)
