# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""What decides: intervals of medians that assume no distribution, and the verdicts made of them."""
import math
import statistics


def median_interval(values, confidence):
    """The order statistics between which the median lies with at least that confidence; infinite where there are too few values.

    The number of values below the median is binomial with 1/2, whatever the distribution."""
    n = len(values)
    ordered = sorted(values)
    below, rank = 0.0, 0  # P(fewer than rank + 1 values below the median)
    while rank < n // 2 and below + math.comb(n, rank) / 2**n <= (1 - confidence) / 2:
        below += math.comb(n, rank) / 2**n
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else (-math.inf, math.inf)


def change(ratios, confidence=0.99, least=0.02):
    """'faster', 'slower' or 'within noise' for ratios of speeds, new to old, of runs next to each other."""
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
    """Is the target reached? Gives the median, its interval and the answer.

    'at least', 'at most': the median decides. 'not below': what is no slower than something else must not be shown to be
    slower; the upper end of the interval decides. 'not above': likewise, and the lower end."""
    median = statistics.median(values)
    low, high = median_interval(values, confidence)
    if math.isinf(low):  # too few for the confidence: all there are
        low, high = min(values), max(values)
    answer = {"at least": median >= bound, "at most": median <= bound, "not below": high >= bound, "not above": low <= bound}[kind]
    return median, low, high, answer


TWO_THREADS = 1.9, 2.0  # times one, of a machine on which two threads can be compared with one


def quiet(pair):
    """The ratios of the turns in which the machine was quiet: right before and right after, two threads that only multiply and add were as
    fast as TWO_THREADS says. More than twice as fast means that one of them was disturbed alone."""
    low, high = TWO_THREADS
    return [ratio for ratio, *machine in zip(pair["ratio"], pair["machine_before"], pair["machine_after"])
            if all(low <= m <= high for m in machine)]


def exponent(points):
    """Of the power of x by which y grows: the median slope between any two points, in logarithms (Theil and Sen)."""
    slopes = [(math.log(y2) - math.log(y1)) / (math.log(x2) - math.log(x1))
              for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:]]
    return statistics.median(slopes)
