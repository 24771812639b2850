"""Adversarial filtering: a subset of hard texts that a blind classifier cannot tell from captions.

As AFLite (Le Bras et al. 2020) and SugarCrepe (Hsieh et al. 2023) do for benchmarks: a classifier
of the texts alone is fitted on some folds and applied to the others; the pairs that it recognizes
most clearly are dropped, and it is fitted again on other folds.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from vlc_jax.input_pipeline.hard_texts import blind

ROUNDS = 100
# Share of the excess that a round changes: the classifier weakens with each, and in the end fewer
# are changed. A half keeps 50 % of the texts of crepe_swap instead of 52 %, a tenth takes longer.
STEP = 0.2
# The filter aims this much below its target: other folds see a point or two more than its own,
# which got some of the dropped pairs right by chance. Near chance it takes half the distance.
MARGIN = 0.02
# Pairs that a fold is fitted on, at most; more than of a benchmark, since training texts are many.
MOST = 20_000
# Fewer pairs say little. Of a set in which all texts give themselves away a few pairs remain: none
# is kept.
FEW = 50
# Added to a seed: folds that judge are none of those that filter.
FRESH = 10_000


class Round(NamedTuple):
    """A round of filtering: pairs left and their separability, and what it then changes.

    choices: (pair, candidate) of the pairs that it changes; candidate -1: dropped.
    """

    number: int  # from 1
    left: int
    separability: float
    choices: list[tuple[int, int]]


class Pairs:
    """Captions with candidates for one hard text each, as features of the blind classifier.

    options: the caption and its candidates, at least one.   groups: of each caption, such as its
    image; captions of one group are in one fold.
    """

    def __init__(self, options: Sequence[Sequence[str]], groups: Sequence[Hashable]) -> None:
        self._features = blind.text_features([text for each in options for text in each])
        self._sizes = np.array([len(each) for each in options], np.int64)
        self._first = np.cumsum(self._sizes) - self._sizes
        self._groups = np.array([str(group) for group in groups])

    def __len__(self) -> int:
        return len(self._groups)

    def margins(self, choice: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the captions whose candidate is chosen, and the margins of these pairs: score
        of the caption minus score of the text, float64, by weights that were fitted on the other
        folds of the pairs. Above 0: the caption is recognized.

        choice: candidate of each caption, from 0; -1: none.
        """
        return self._margins(choice, self._scores(choice, seed))

    def _margins(self, choice: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = np.flatnonzero(choice >= 0)
        first = self._first[left]
        return left, scores[first] - scores[first + 1 + choice[left]]

    def _scores(self, choice: np.ndarray, seed: int) -> np.ndarray:
        """Score of every text, (texts,); 0 for those of captions without a choice."""
        left = np.flatnonzero(choice >= 0)
        fold_of = blind.folds(self._groups[left].tolist(), seed)
        draw = np.random.default_rng(seed).permutation(len(left))
        # the caption and the chosen text of each, one below the other
        rows = np.stack([self._first[left], self._first[left] + 1 + choice[left]], axis=1)
        pairs, scores = self._features[rows.ravel()], np.zeros(self._features.shape[0])
        for fold in range(blind.FOLDS):
            others = draw[fold_of[draw] != fold][:MOST]
            mine = left[fold_of == fold]
            if len(others) and len(mine):
                ends = self._first[mine] + self._sizes[mine]
                texts = np.concatenate([*map(np.arange, self._first[mine], ends)])
                weights = blind.fit(pairs, 2 * others, np.full(len(others), 2))
                scores[texts] = self._features[texts] @ weights
        return scores

    def credit(self, choice: np.ndarray, seed: int = 0) -> np.ndarray:
        """1 for each chosen pair whose caption is recognized, .5 for a tie, else 0, (pairs,), by
        folds that `balanced` does not use with this seed."""
        return _credit(self.margins(choice, FRESH + seed)[1])

    def separability(self, choice: np.ndarray, seed: int = 0) -> float:
        """Mean of `credit`."""
        return float(self.credit(choice, seed).mean())

    def balanced(
        self, target: float, seed: int = 0, after: Callable[[Round], None] = lambda _: None
    ) -> np.ndarray:
        """The candidate of each caption, from 0, int64 (captions,); -1: it keeps none.

        Starts with the first candidates. Of the pairs that are recognized most clearly each gets
        its untried candidate that is recognized least, if less than all of these pairs, or is
        dropped.

        target: largest separability of the pairs that are kept.   after: called after each round.
        The result is a function of the texts, target and seed. Raises ValueError for a target that
        is not above .5, which is chance, and below 1.
        """
        check_target(target)
        choice, number, is_done = np.zeros(len(self), np.int64), 0, False
        # a candidate is tried once, or two of them would take turns for ever
        tried = {(index, 0) for index in range(len(self))}
        while not is_done and number < ROUNDS and (choice >= 0).sum() >= FEW:
            number += 1
            scores = self._scores(choice, seed + number)
            left, margins = self._margins(choice, scores)
            most = _excess(margins, target)
            cut = margins[most].min(initial=np.inf)
            changed = [
                (index, self._best(index, scores, cut, tried)) for index in left[most].tolist()
            ]
            for index, candidate in changed:
                choice[index] = candidate
                tried.add((index, candidate))
            after(Round(number, len(left), float(_credit(margins).mean()), changed))
            is_done = not changed
        return choice if is_done or number == ROUNDS else np.full(len(self), -1)

    def _best(self, index: int, scores: np.ndarray, cut: float, tried: set[tuple[int, int]]) -> int:
        """The untried candidate with the highest score, if its margin is below `cut`; else -1."""
        first = self._first[index]
        of_texts = scores[first + 1 : first + self._sizes[index]]
        new = [k for k in range(len(of_texts)) if (index, k) not in tried]
        best = max(new, key=lambda k: of_texts[k], default=-1)
        return best if best >= 0 and scores[first] - of_texts[best] < cut else -1


def check_target(target: float) -> None:
    """Raises ValueError for a target that cannot be reached or asks for nothing."""
    if not 0.5 < target < 1:
        raise ValueError(
            f"balance is a share above .5, which is chance, and below 1; got {target:g}"
        )


def _excess(margins: np.ndarray, target: float) -> np.ndarray:
    """Positions of the pairs that a round changes: the most clearly recognized ones, a part of
    those that are too many for the target."""
    right, wrong = int((margins > 0).sum()), int((margins < 0).sum())
    ties = len(margins) - right - wrong
    aim = target - min(MARGIN, (target - 0.5) / 2)
    odds = aim / (1 - aim)
    excess = right + ties / 2 - odds * (wrong + ties / 2)
    # stable: of equal margins the first pairs go
    most = np.argsort(-margins, kind="stable")
    return most[: max(0, int(np.ceil(STEP * excess)))]


def _credit(margins: np.ndarray) -> np.ndarray:
    return (margins > 0) + 0.5 * (margins == 0)


def described(pairs: Sequence[Sequence[str]], groups: Sequence[Hashable], seed: int = 0) -> str:
    """Separability of the pairs, as "blind 84.4 % (chance 50)"; "" if they are few."""
    if len(pairs) < FEW:
        return ""
    share = Pairs(pairs, groups).separability(np.zeros(len(pairs), np.int64), seed)
    return f"blind {100 * share:.1f} % (chance 50)"
