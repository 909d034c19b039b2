"""Many small cases as one test: pytest's own work on each parameter set takes longer than most of them do."""

import functools
import inspect


def looped(names, values):
    """As `pytest.mark.parametrize`, but in a loop within one test; what fails names its case.

    names: one, or a tuple. For tests without fixtures that a case would leave changed for the next. Stacked, the loops
    are nested.
    """
    values, names = list(values), (names,) if isinstance(names, str) else names
    assert values, f"no values of {', '.join(names)}: nothing would be tested"

    def decorate(test):
        @functools.wraps(test)
        def loop(*arguments, **keywords):
            for value in values:
                case = dict(zip(names, value if len(names) > 1 else (value,), strict=True))
                try:
                    test(*arguments, **keywords, **case)
                except BaseException as error:
                    error.add_note(f"the case: {case}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in names]
        loop.__signature__ = signature.replace(parameters=others)
        return loop

    return decorate
