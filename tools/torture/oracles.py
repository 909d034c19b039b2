"""What criteria and metrics have to give, written as plain loops in float64 from the formulas in docs/.

Nothing here calls vsehub. Scores s are (Q, M) arrays, queries x items; reference scores r are (R, M). Lists of items
are best first, of equal scores the lower position first.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

LEAST = 1e-6  # the least distance of local scaling, the least deviation of mutual proximity


@dataclass
class Answer:
    """Corrected scores and how far rounding may move them.

    values: (Q, M) what a dense correction gives. ranked: (Q, M) the same without what shifts or scales a query's scores
    alone. slack: (Q, M) a bound of the rounding error, divided by the machine epsilon; 0 where nothing is computed.
    size: the largest magnitude that is met on the way. wide: as slack, of what is computed in float64 whatever the
    scores are. steep: as slack, what is added where the scores themselves are inexact products of unit vectors.
    gap: the least difference of two scores whose order decides which formula a query gets.
    """

    values: np.ndarray
    ranked: np.ndarray
    slack: np.ndarray
    size: float
    wide: np.ndarray | float = 0.0
    steep: np.ndarray | float = 0.0
    gap: float = math.inf


def log_sum(values):
    """log Σ e^v; -inf of nothing."""
    top = max(values, default=-math.inf)
    if not math.isfinite(top):
        return math.nan if any(v != v for v in values) else top
    return top + math.log(sum(math.exp(v - top) for v in values))


def mean(values):
    return sum(values) / len(values)


def k_largest(values, k):
    return sorted(values, reverse=True)[:k]


def order(values):
    """Positions by falling value, of equal ones the lower first."""
    return sorted(range(len(values)), key=lambda m: -values[m])


def largest(*arrays):
    return max(float(np.abs(array).max()) for array in arrays)


def columns(r):
    return r.T.tolist()


def biased(s, scale, bias, slack, size):
    """a·s - b(item) as both values and what is ranked."""
    values = scale * s - np.array(bias)
    return Answer(values, values, np.full(s.shape, slack), size)


def nns(s, r):
    return Answer(s, s, np.zeros(s.shape), largest(s))


def csls(s, r, k):
    size = 4 * largest(s, r)
    items = [mean(k_largest(column, k)) for column in columns(r)]
    queries = [mean(k_largest(row, k)) for row in s.tolist()]
    answer = biased(s, 2.0, items, size, 4 * size)
    answer.values = answer.ranked - np.array(queries)[:, None]
    return answer


def nnn(s, r, k, weight):
    size = (1 + weight) * largest(s, r)
    return biased(s, 1.0, [weight * mean(k_largest(column, k)) for column in columns(r)], 2 * size, 12 * size)


def dn(s, r, weight):
    size = (1 + weight) * largest(s, r)
    return biased(s, 1.0, [weight * mean(column) for column in columns(r)], 4 * size, len(r) * size)


def inverted_softmax(s, r, beta, weight, transductive):
    """own: the queries are their own reference: at weight 1 the sum leaves each of them out, unless it is alone."""
    size = (1 + weight) * (beta * largest(s, r) + math.log(len(r)) + 1)
    answer = biased(s, beta, [weight * log_sum(column) for column in columns(beta * r)], 4 * size, 4 * size)
    if transductive and weight == 1 and len(s) > 1:
        logits = (beta * s).tolist()
        rows = [
            [log_sum([logits[p][m] for p in range(len(s)) if p != q]) for m in range(s.shape[1])] for q in range(len(s))
        ]
        answer.values = beta * s - np.array(rows)
    return answer


def dual_inverted_softmax(s, r, beta1, beta2, g):
    """g: (G, M) scores of the reference items with the items."""
    sums = ([log_sum(column) for column in columns(beta * side)] for beta, side in ((beta1, r), (beta2, g)))
    size = beta1 * largest(s, r) + beta2 * largest(s, g) + math.log(len(r) * len(g)) + 2
    return biased(s, beta1 + beta2, [x + y for x, y in zip(*sums, strict=True)], 8 * size, 8 * size)


def dual_softmax(s, r, beta):
    size = beta * largest(s, r)
    exponents = beta * s - np.array([log_sum(column) for column in columns(beta * r)])
    values = s * np.exp(exponents)
    relative = 8 * (math.log(len(r)) + 2)
    # Numbers beyond the range of float64 are no answer, whatever the scores' own type.
    beyond = math.inf if largest(values) > 1e300 or not np.isfinite(values).all() else 4 * size
    return Answer(values, values, np.abs(values) * relative, beyond, 8 * np.abs(values) * size)


def log_normal(z):
    """log of the share of a normal distribution below z."""
    if z > -30:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2)))
    t = 1 / (z * z)  # the asymptotic series of Mills' ratio
    return (
        -z * z / 2 - math.log(-z) - math.log(2 * math.pi) / 2 + math.log1p(-t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t))))
    )


def moments(values):
    middle = mean(values)
    return middle, max(LEAST, math.sqrt(mean([abs(v - middle) * abs(v - middle) for v in values])))


def mutual_proximity(s, r):
    rows, cols, most = [moments(row) for row in s.tolist()], [moments(column) for column in columns(r)], largest(s, r)
    values, slack = np.zeros(s.shape), np.zeros(s.shape)
    size = most if most < 1e150 else math.inf  # deviations come from squares
    for q, row in enumerate(s.tolist()):
        for m, score in enumerate(row):
            for middle, deviation in (rows[q], cols[m]):
                z = (score - middle) / deviation
                values[q, m] += log_normal(z)
                moved = (abs(score) + abs(middle)) / deviation + abs(z) * (2 + most / deviation)
                slack[q, m] += (abs(z) + 1) * moved + abs(log_normal(z))
                size = max(size, z * z, moved)
    return Answer(values, values, 2 * slack, size)


def local_scaling(s, r, k):
    def distance(values):
        return math.sqrt(max(2 - 2 * k_largest(values, k)[-1], LEAST**2))

    squared = np.maximum(2 - 2 * s, 0)
    items = np.array([distance(column) for column in columns(r)])
    queries = np.array([[distance(row)] for row in s.tolist()])
    ranked = -squared / items
    values = ranked / queries
    most = np.maximum(np.abs(values), np.abs(ranked))
    steep = 2 / items * np.maximum(1, 1 / queries) + most * (2 / items**2 + 2 / queries**2)
    return Answer(values, ranked, 8 * most, max(4 * largest(s, r), largest(values, ranked)), steep=steep)


def sinkhorn(s, r, temperature, rounds, weight=1.0, relative=False):
    items, queries = r.shape[1], len(r)
    scale, unit = 1 / temperature, weight
    if relative:
        spread = math.fsum(deviation(row) for row in r.tolist()) / queries
        if spread == 0:
            return biased(s, 1, [0.0] * items, 8 * weight * largest(s, r), 0)
        temperature *= spread
        scale, unit = 1, weight * temperature
    plan = (r / temperature).tolist()
    v = [0.0] * items
    for _ in range(rounds):
        u = [-math.log(queries) - log_sum([x + y for x, y in zip(row, v, strict=True)]) for row in plan]
        v = [
            -math.log(items) - log_sum([x + y for x, y in zip(column, u, strict=True)])
            for column in zip(*plan, strict=True)
        ]
    size = largest(s, r) / temperature + math.log(items * queries) + 1
    return biased(s, scale, [-unit * x for x in v], (4 * rounds + 16) * unit * size, 8 * unit * size)


def deviation(row):
    """The standard deviation of a row of scores, over its entries."""
    mean = math.fsum(row) / len(row)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in row) / len(row))


def gap_behind(scores, n):
    """The least difference between the n-th and the next largest of a row."""
    rows = [k_largest(row, n + 1) for row in scores.tolist()]
    return min((row[n - 1] - row[n] for row in rows if len(row) > n), default=math.inf)


def qb_norm(s, r, beta, k):
    hubs = {m for row in r.tolist() for m in order(row)[:k]}
    bias = np.array([log_sum(column) / beta for column in columns(beta * r)])
    values = np.array([row - bias if order(row.tolist())[0] in hubs else row for row in s])
    size = largest(s, r) + (math.log(len(r)) + 1) / beta
    gap = min(gap_behind(s, 1), gap_behind(r, k))
    return Answer(values, values, np.full(s.shape, 4 * size), max(4, 4 * beta) * size, gap=gap)


# Class of a criterion -> its formula (s, r, settings).
FORMULAS = {
    "NearestNeighbor": nns,
    "CSLS": csls,
    "NNN": nnn,
    "DistributionNormalization": dn,
    "DualSoftmax": dual_softmax,
    "MutualProximity": mutual_proximity,
    "LocalScaling": local_scaling,
    "Sinkhorn": sinkhorn,
    "DualBankSinkhorn": sinkhorn,  # without reference items
    "DualInvertedSoftmax": dual_inverted_softmax,
    "QBNorm": qb_norm,
    "InvertedSoftmax": inverted_softmax,
}


def places(queries, items, k, relaxation, capacity):
    """How many queries an item may have in relaxed greedy matching: λk, λkQ/M, half to even."""
    share = max(Fraction(1), Fraction(queries, items)) if capacity == "proportional" else Fraction(1)
    return round(Fraction(str(relaxation)) * k * share)


def greedy_pairs(s, k, relaxation, capacity):
    """EMNLP algorithm 1: all pairs from high to low; -inf never matches."""
    queries, items = s.shape
    free = [places(queries, items, k, relaxation, capacity)] * items
    wishes, accepted = [k] * queries, []
    most = min(queries, items) * k if capacity == "paper" else queries * items
    flat = s.ravel().tolist()
    for pair in order(flat):
        query, item = divmod(pair, items)
        if flat[pair] > -math.inf and wishes[query] and free[item] and len(accepted) < most:
            wishes[query] -= 1
            free[item] -= 1
            accepted.append((query, item))
    return accepted


def blocking_pair(s, pairs, k, room, slack):
    """A pair that both its sides prefer by more than the slack (Q, M) to what they were given; None where none does.

    Greedy matching is the one matching without such a pair. room: places of an item.
    """
    queries, items = s.shape
    matched, taken = [[] for _ in range(queries)], [[] for _ in range(items)]
    for query, item in pairs:
        matched[query].append(s[query, item])
        taken[item].append(s[query, item])
    accepted = set(pairs)
    for query in range(queries):
        for item in range(items):
            bar = s[query, item] - slack[query, item]
            if (query, item) not in accepted and not (
                (len(matched[query]) == min(k, items) and min(matched[query]) >= bar)
                or (len(taken[item]) == min(room, queries) and min(taken[item]) >= bar)
            ):
                return query, item
    return None


def matched_order(s, pairs):
    """Each query's items: those accepted, in order, then the others in plain order."""
    matched = [[item for query, item in pairs if query == row] for row in range(len(s))]
    return [first + [m for m in order(row) if m not in first] for first, row in zip(matched, s.tolist(), strict=True)]


def best_total(s):
    """The largest sum of an assignment in which an item serves at most ceil(Q/M) queries."""
    queries, items = s.shape
    best = {(math.ceil(queries / items),) * items: 0.0}
    for row in s.tolist():
        after = {}
        for left, total in best.items():
            for item, score in enumerate(row):
                if left[item]:
                    key = (*left[:item], left[item] - 1, *left[item + 1 :])
                    after[key] = max(after.get(key, -math.inf), total + score)
        best = after
    return max(best.values())


# Metrics


def occurrences(lists, items, k):
    counts = [0] * items
    for ranking in lists:
        for item in ranking[:k]:
            counts[item] += 1
    return counts


def bad_occurrences(lists, items, k, positives):
    """Counts of the items that are no positive; queries without a positive are judged by nothing."""
    judged = [(ranking[:k], mine) for ranking, mine in zip(lists, positives, strict=True) if mine]
    return [sum(m in ranking and m not in mine for ranking, mine in judged) for m in range(items)]


def skewness(counts):
    middle = mean(counts)
    variance = mean([(n - middle) ** 2 for n in counts])
    return mean([(n - middle) ** 3 for n in counts]) / variance**1.5 if max(counts) > min(counts) else 0.0


def robin_hood(counts):
    middle = mean(counts)
    return sum(abs(n - middle) for n in counts) / (2 * sum(counts)) if any(counts) else 0.0


def gini(counts):
    total = sum(counts)
    return sum(abs(n - m) for n in counts for m in counts) / (2 * len(counts) * total) if total else 0.0


def atkinson(counts):
    return 1 - mean([math.sqrt(n) for n in counts]) ** 2 / mean(counts) if any(counts) else 0.0


def occurrence_figures(counts, k):
    """The figures of N_k by their keys, without those of bad hubs."""
    items, total = len(counts), sum(counts)
    figures = {
        f"skew_{k}": skewness(counts),
        f"robin_hood_{k}": robin_hood(counts),
        f"gini_{k}": gini(counts),
        f"atkinson_{k}": atkinson(counts),
        f"antihub_rate_{k}": sum(n == 0 for n in counts) / items,
        f"hub_occurrence_{k}": sum(n for n in counts if n >= 2 * k) / total if total else 0.0,
        f"largest_hub_{k}": max(counts),
    }
    if k == 1:
        figures |= {f"share_{n}": sum(c == n for c in counts) / items for n in (0, 1)}
        figures |= {f"share_{n}": sum(c >= n for c in counts) / items for n in (2, 5, 10)}
    return figures


def bad_figures(bad, k, slots):
    return {
        f"bad_share_{k}": sum(bad) / slots if slots else 0.0,
        f"bad_skew_{k}": skewness(bad),
        f"largest_bad_hub_{k}": max(bad),
    }


def rank(row, mine):
    """1-based, every negative that scores as the best positive ahead of it; 0 without a positive."""
    if not mine:
        return 0
    best = max(row[m] for m in mine)
    return 1 + sum(row[m] >= best for m in range(len(row)) if m not in mine)


def precision_at_r(listed, mine):
    """AP@R and R-Precision of a list."""
    if not mine:
        return 0.0, 0.0
    hits = [m in mine for m in listed[: len(mine)]]
    return mean([hit * mean(hits[: i + 1]) for i, hit in enumerate(hits)]), mean(hits)


def negatives_first(row, mine):
    """Items by falling score, of equal scores those that are no positive first."""
    return sorted(range(len(row)), key=lambda m: (-row[m], m in mine))


def recall_figures(scores, positives):
    """The figures of one direction over the queries that have a positive. positives: a set of items a query."""
    measured = [(row, mine) for row, mine in zip(scores, positives, strict=True) if mine]
    ranks = sorted(rank(row, mine) for row, mine in measured)
    at_r = [precision_at_r(negatives_first(row, mine), mine) for row, mine in measured]
    middle = (ranks[(len(ranks) - 1) // 2] - 1 + ranks[len(ranks) // 2] - 1) / 2
    return {f"r{k}": 100 * mean([place <= k for place in ranks]) for k in (1, 5, 10)} | {
        "medr": math.floor(middle) + 1,
        "meanr": mean(ranks),
        "map_r": 100 * mean([purity[0] for purity in at_r]),
        "r_precision": 100 * mean([purity[1] for purity in at_r]),
    }
