# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Decisions: distribution-free intervals of medians, and verdicts based on them."""
import math
import statistics


def median_interval(values, confidence):
    """Returns the order statistics that hold the median with at least that confidence, or infinities for few values.

    The number of values below the median is binomial with 1/2, whatever the distribution."""
    n = len(values)
    ordered = sorted(values)
    below, rank = 0.0, 0  # P(fewer than rank + 1 values below the median)
    while rank < n // 2 and below + math.comb(n, rank) / 2**n <= (1 - confidence) / 2:
        below += math.comb(n, rank) / 2**n
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else (-math.inf, math.inf)


def change(ratios, confidence=0.99, least=0.02):
    """Returns 'faster', 'slower' or 'within noise' for ratios of speeds, new to old, of adjacent runs."""
    low, high = median_interval(ratios, confidence)
    median = statistics.median(ratios)
    if low > 1 and median >= 1 + least:
        return "faster"
    if high < 1 and median <= 1 / (1 + least):
        return "slower"
    return "within noise"


def tally(verdicts):
    return ", ".join(f"{verdicts.count(v)} {v}" for v in ("faster", "slower", "within noise"))


def reached(values, bound, kind, confidence=0.95):
    """Returns the median, its interval and True if the target is reached.

    The median decides 'at least' and 'at most'. The upper end of the interval decides 'not below', so that code fails
    only if it is shown to be slower. The lower end decides 'not above'."""
    median = statistics.median(values)
    low, high = median_interval(values, confidence)
    if math.isinf(low):  # too few values for the confidence: their extremes
        low, high = min(values), max(values)
    answer = {"at least": median >= bound, "at most": median <= bound, "not below": high >= bound,
              "not above": low <= bound}[kind]
    return median, low, high, answer


TWO_THREADS = 1.9, 2.0  # times one thread, on a machine quiet enough to compare


def quiet(pair):
    """Returns the ratios of turns on a quiet machine.

    Two threads of multiply-adds run right before and right after the turn, and both speeds lie within TWO_THREADS.
    More than twice the speed means that the single thread was disturbed."""
    low, high = TWO_THREADS
    return [ratio for ratio, *machine in zip(pair["ratio"], pair["machine_before"], pair["machine_after"])
            if all(low <= m <= high for m in machine)]


def exponent(points):
    """Returns the power of x by which y grows: the median log-log slope of all pairs of points (Theil and Sen)."""
    slopes = [(math.log(y2) - math.log(y1)) / (math.log(x2) - math.log(x1))
              for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:]]
    return statistics.median(slopes)
