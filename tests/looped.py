"""Many small cases as one test: pytest's own work on each parameter set takes longer than most of them do."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def looped(
    names: str | tuple[str, ...], values: Iterable[Any] | Callable[[], Iterable[Any]]
) -> Callable[[Callable], Callable]:
    """As `pytest.mark.parametrize`, but in a loop within one test; what fails names its case.

    For tests without fixtures that a case would leave changed for the next. Stacked, the loops are nested. A function
    as `values` is called when the test runs.
    """
    names = (names,) if isinstance(names, str) and "," not in names else names
    names = tuple(one.strip() for one in names.split(",")) if isinstance(names, str) else names
    values = values if callable(values) else list(values)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def loop(*own: Any, **given: Any) -> None:
            found = list(values() if callable(values) else values)
            assert found, f"no values of {', '.join(names)}: nothing would be tested"
            for value in found:
                case = dict(zip(names, value if len(names) > 1 else (value,), strict=True))
                try:
                    test(*own, **given, **case)
                except BaseException as error:
                    error.add_note(f"the case: {', '.join(f'{name} = {one!r}' for name, one in case.items())}")
                    raise

        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in names]
        loop.__signature__ = signature.replace(parameters=kept)
        return loop

    return decorate
