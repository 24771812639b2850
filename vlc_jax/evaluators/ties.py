"""Tie policies: credit for equal scores.

strict       nothing: a correct option must beat every wrong one. A constant scorer gets 0.
first_index  the result of an argmax, which takes the first of equal options. Only for comparison
             with published numbers: if the correct option comes first, a constant scorer gets
             100 %.
last_index   the last of equal options, only for comparison, too: MMVP's code takes the second of
             two images that score alike.
half         the probability of being right if ties are broken at random: a constant scorer gets
             chance.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vlc_jax import errors

POLICIES = ("strict", "first_index", "last_index", "half")

Rule = Callable[[Float[np.ndarray, "cases options"]], Bool[np.ndarray, " cases"]]


def check(tie: str) -> None:
    """Raises UsageError for an unknown policy."""
    if tie not in POLICIES:
        raise errors.UsageError(f"tie must be one of {POLICIES}; got {tie!r}")


def credit(
    scores: Float[np.ndarray, "cases options"], rule: Rule, tie: str
) -> Float[np.ndarray, " cases"]:
    """Credit of each case in [0, 1] by a rule that compares scores of few options.

    rule: scores (cases, options) -> mask of right cases. It may only compare scores with each other
      by < and >, since it is also applied to ranks.
    """
    check(tie)
    if tie == "first_index":
        return rule(_ranks(scores)).astype(np.float64)
    if tie == "last_index":
        return rule(_ranks(scores[:, ::-1])[:, ::-1]).astype(np.float64)
    right = rule(scores).astype(np.float64)
    if tie == "half":
        tied = (np.diff(np.sort(scores, axis=1), axis=1) == 0).any(axis=1)
        right[tied] = _shared(scores[tied], rule)
    return right


def _ranks(scores: Float[np.ndarray, "cases options"]) -> Int[np.ndarray, "cases options"]:
    """Ranks in the order of an argmax: by score, equal scores by index; the best is the largest."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(scores.shape[1])[None, ::-1], axis=1)
    return ranks


class Standing(NamedTuple):
    """Position of the best correct option of each query, as counts of other options."""

    above: Int[np.ndarray, " queries"]
    """Wrong options with a higher score."""
    equal: Int[np.ndarray, " queries"]
    """Wrong options with the same score."""
    before: Int[np.ndarray, " queries"]
    """Wrong options with the same score and a lower index than the first such correct one."""
    after: Int[np.ndarray, " queries"]
    """Wrong options with the same score and a higher index than the last such correct one."""
    correct: Int[np.ndarray, " queries"]
    """Correct options with the same score, including itself; at least 1."""

    def among_best(self, k: int, tie: str) -> Float[np.ndarray, " queries"]:
        """Credit for a correct option among the k best; with "half" its probability in a random
        order of the tied options."""
        check(tie)
        if tie == "strict":
            return (self.above + self.equal < k).astype(np.float64)
        if tie == "first_index":
            return (self.above + self.before < k).astype(np.float64)
        if tie == "last_index":
            return (self.above + self.after < k).astype(np.float64)
        slots, tied = np.clip(k - self.above, 0, None), self.equal + self.correct
        missed = np.ones(len(self.above))
        for drawn in range(min(k, int(tied.max(initial=0)))):
            # no draws beyond the k best; once no wrong option is left, `missed` stays 0
            share = np.clip(self.equal - drawn, 0, None) / np.clip(tied - drawn, 1, None)
            missed *= np.where(drawn < slots, share, 1)
        return 1 - missed

    def rank(self, tie: str) -> Float[np.ndarray, " queries"]:
        """Rank of the best correct option, 1 is best; with "half" the expected one."""
        check(tie)
        lost = {
            "strict": self.equal,
            "first_index": self.before,
            "last_index": self.after,
            "half": self.equal / (self.correct + 1),
        }
        return 1.0 + self.above + lost[tie]

    def tied(self, k: int) -> Bool[np.ndarray, " queries"]:
        """Mask of queries for which a tie decides whether a correct option is among the k best."""
        return (self.equal > 0) & (self.above < k) & (self.above + self.equal + self.correct > k)


def standing(
    scores: Float[np.ndarray, "queries options"], correct: Int[np.ndarray, " queries"]
) -> Standing:
    """Standing of the option `correct` of each query; padding has the score -inf."""
    correct_scores = np.take_along_axis(scores, correct[:, None], axis=1)
    index = np.arange(scores.shape[1])[None]
    equal = (scores == correct_scores) & (index != correct[:, None])
    return Standing(
        (scores > correct_scores).sum(axis=1),
        equal.sum(axis=1),
        (equal & (index < correct[:, None])).sum(axis=1),
        (equal & (index > correct[:, None])).sum(axis=1),
        np.ones(len(scores), int),
    )


def _shared(scores: Float[np.ndarray, "cases options"], rule: Rule) -> Float[np.ndarray, " cases"]:
    """Share of the strict orders consistent with the scores that satisfy the rule."""
    orders = _orders(scores.shape[1])
    right, agree = rule(orders), np.ones((len(scores), len(orders)), bool)
    for i, j in itertools.permutations(range(scores.shape[1]), 2):
        above = scores[:, i] > scores[:, j]
        agree &= ~above[:, None] | (orders[:, i] > orders[:, j])[None]
    return (agree & right).sum(axis=1) / agree.sum(axis=1)


@functools.cache
def _orders(options: int) -> Float[np.ndarray, "orders options"]:
    return np.array([*itertools.permutations(range(options))], np.float64)
