"""In words: a verdict, the chosen criterion, a calibration, and what rounding changes."""


def parameters(ranking: dict) -> str:
    """A criterion's parameters as text; empty if they are nested."""
    given = (ranking.get("parameters") or {}).items()
    return ", ".join(f"{name} {value}" for name, value in given if not isinstance(value, dict | list))


def verdict_text(verdict: dict) -> str:
    """The level, the skewness, and each check that is beyond a threshold, all with their levels by chance.

    "warn: skewness of N_10 2.4, by chance 0.3 (warn above 1.4 beyond chance)".
    """
    told = []
    for one in verdict["checks"]:
        if one["level"] != "ok":
            limit = f"{one['level']} above {one[one['level']]:g} beyond chance"
            told.append(f"{one['meaning']} {one['value']:.2g}, by chance {one['chance']:.2g} ({limit})")
        elif one["name"] == "skewness":
            told.append(f"{one['meaning']} {one['value']:.2g}, by chance {one['chance']:.2g}")
    return f"{verdict['level']}: {'; '.join(told)}"


def choice_text(choice: dict) -> list[tuple[str, str]]:
    """What `criterion=auto` chose, by which queries, and what it gains on others: (name, text)."""
    settings = parameters(choice)
    told = choice["criterion"] + (f" ({settings})" if settings else "")
    if choice["queries"] == 0:
        told += ": the default, since no answers are known to choose by"
    else:
        tried = len(choice["tried"])
        told += f", of {tried} criteria and settings, by the mean reciprocal rank of {choice['queries']:,} queries"
        told += f" in {choice['folds']} folds, since the reference holds them" if choice["folds"] else ""
    facts = [("chosen", told)]
    if gain := choice.get("gain"):
        facts.append(("gain in R@1", gain_text(gain, "" if choice["queries"] == 0 else "other ")))
    return facts


def gain_text(gain: dict, others: str = "") -> str:
    """A gain in R@1 over plain search, with its 95 % interval. others: before the word "queries"."""
    grouped = f" of {gain['groups']:,} items" if gain["groups"] < gain["queries"] else ""
    return (
        f"{gain['r1']:+.1f} points [{gain['low']:+.1f}, {gain['high']:+.1f}] over {gain['queries']:,} {others}"
        f"queries{grouped}, p {gain['p']:.2g}"
    )


def calibration_text(calibration: dict) -> str:
    """The threshold of each rate of false accepts, and what it accepts of the queries whose answers are there."""
    rates = [
        f"above {one['threshold']:.4g} for {one['false_accept']:g} false accepts (of queries with answers "
        f"{one['accepted']:.1%})"
        for one in calibration["rates"]
    ]
    return f"first score {', '.join(rates)}; by {calibration['queries']:,} calibration queries"


def rounding_text(name: str, rounding: dict) -> str:
    """What bf16 changes in the ranking of that name, measured on a sample of its queries."""
    recall = "" if rounding["recall"] is None else f"; R@1, R@5 and R@10 change by {rounding['recall']:.2f} at most"
    return (
        f"bf16, {name}: of {rounding['queries']:,} queries that float32 ranked too, {rounding['first']:.1%} have "
        f"another first item; of their {rounding['k']} best, {1 - rounding['overlap']:.1%} are others{recall}"
    )


def queries_left_out(truth: dict, choice: dict | None) -> list[str]:
    """The queries whose recalls are not measured: those that the criterion was chosen by, and those without a pair."""
    aside = (choice or {}).get("set_aside") or 0
    without = (truth.get("queries_without") or 0) - aside
    told = [f"{aside:,} more were kept to choose the criterion by"] if aside else []
    return told + ([f"{without:,} queries without a pair are left out of the recalls"] if without > 0 else [])
