"""Adversarial filtering: a subset of hard texts that a blind classifier cannot tell from captions.

As AFLite (Le Bras et al. 2020) and SugarCrepe (Hsieh et al. 2023) do for benchmarks: a classifier
of the texts alone is fitted on some folds and applied to the others; the pairs that it recognizes
most clearly are dropped, and it is fitted again on other folds.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

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


class Filter(NamedTuple):
    """The rounds of a filter of some pairs, which other pairs go through.

    weights: of one fold of each round, (features, rounds).   cuts: the least margin that a round
    changes, inf: none.   keeps: False: too few pairs were left, and no pair keeps a text.
    """

    features_of: blind.Features | None
    weights: sparse.csc_array | None
    cuts: Sequence[float]
    keeps: bool

    def choice(self, options: Sequence[Sequence[str]]) -> np.ndarray:
        """The candidate of each caption, as of `Pairs.balanced`, of options that were not fitted.

        options: the caption and its candidates, at least one.
        """
        if not self.keeps or not options:
            return np.full(len(options), -1)
        choices = _Choices(options)
        texts = self.features_of([text for each in options for text in each])
        scores = sparse.csr_array(texts @ self.weights).toarray()
        for number, cut in enumerate(self.cuts):
            left, margins = choices.margins(scores[:, number])
            choices.change(left[margins >= cut], scores[:, number], cut)
        return choices.choice


DROPS_ALL = Filter(None, None, (), keeps=False)


class Pairs:
    """Captions with candidates for one hard text each, as features of the blind classifier.

    options: the caption and its candidates, at least one.   groups: of each caption, such as its
    image; captions of one group are in one fold.
    """

    def __init__(self, options: Sequence[Sequence[str]], groups: Sequence[Hashable]) -> None:
        self._options = options
        texts = [text for each in options for text in each]
        self._features_of = blind.Features(texts)
        self._features = self._features_of(texts)
        self._groups = np.array([str(group) for group in groups])

    def __len__(self) -> int:
        return len(self._groups)

    def margins(self, choice: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the captions whose candidate is chosen, and the margins of these pairs: score
        of the caption minus score of the text, float64, by weights that were fitted on the other
        folds of the pairs. Above 0: the caption is recognized.

        choice: candidate of each caption, from 0; -1: none.
        """
        choices = _Choices(self._options, choice)
        return choices.margins(self._scores(choices, seed)[0])

    def _scores(self, choices: "_Choices", seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Score of every text, (texts,); 0 for those of captions without a choice. And weights
        that scored some of them, (features,)."""
        first, choice = choices.first, choices.choice
        left = np.flatnonzero(choice >= 0)
        fold_of = blind.folds(self._groups[left].tolist(), seed)
        draw = np.random.default_rng(seed).permutation(len(left))
        # the caption and the chosen text of each, one below the other
        rows = np.stack([first[left], first[left] + 1 + choice[left]], axis=1)
        pairs, scores = self._features[rows.ravel()], np.zeros(self._features.shape[0])
        weights = np.zeros(self._features.shape[1])
        for fold in range(blind.FOLDS):
            others = draw[fold_of[draw] != fold][:MOST]
            mine = left[fold_of == fold]
            if len(others) and len(mine):
                texts = np.concatenate([*map(np.arange, first[mine], choices.ends[mine])])
                weights = blind.fit(pairs, 2 * others, np.full(len(others), 2))
                scores[texts] = self._features[texts] @ weights
        return scores, weights

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
        """The candidate of each caption, from 0, int64 (captions,); -1: it keeps none."""
        return self.filtered(target, seed, after)[0]

    def filtered(
        self, target: float, seed: int = 0, after: Callable[[Round], None] = lambda _: None
    ) -> tuple[np.ndarray, Filter]:
        """The candidate of each caption, as of `balanced`, and the filter for other captions.

        Starts with the first candidates. Of the pairs that are recognized most clearly each gets
        its untried candidate that is recognized least, if less than all of these pairs, or is
        dropped.

        target: largest separability of the pairs that are kept.   after: called after each round.
        The result is a function of the texts, target and seed. Raises ValueError for a target that
        is not above .5, which is chance, and below 1.
        """
        check_target(target)
        choices, is_done = _Choices(self._options), False
        round_weights: list[sparse.csc_array] = []
        cuts: list[float] = []
        while not is_done and len(cuts) < ROUNDS and (choices.choice >= 0).sum() >= FEW:
            scores, weights = self._scores(choices, seed + len(cuts) + 1)
            left, margins = choices.margins(scores)
            most = _excess(margins, target)
            cuts.append(float(margins[most].min(initial=np.inf)))
            round_weights.append(sparse.csc_array(weights[:, None]))
            changed = choices.change(left[most], scores, cuts[-1])
            after(Round(len(cuts), len(left), float(_credit(margins).mean()), changed))
            is_done = not changed
        keeps = is_done or len(cuts) == ROUNDS
        choice = choices.choice if keeps else np.full(len(self), -1)
        # of no round, too
        columns = [sparse.csc_array((self._features.shape[1], 0)), *round_weights]
        stacked = sparse.csc_array(sparse.hstack(columns, format="csc"))
        return choice, Filter(self._features_of, stacked, cuts, keeps)


class _Choices:
    """The candidate of each caption while pairs are filtered.

    first, ends: rows of the texts of each caption among all texts, the caption itself the first.
    """

    def __init__(self, options: Sequence[Sequence[str]], choice: np.ndarray | None = None) -> None:
        sizes = np.array([len(each) for each in options], np.int64)
        self.ends = np.cumsum(sizes)
        self.first = self.ends - sizes
        self.choice = np.zeros(len(options), np.int64) if choice is None else choice
        # a candidate is tried once, or two of them would take turns for ever
        self._is_tried = np.zeros(sizes.sum(), bool)
        self._is_tried[self.first + 1] = True

    def margins(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the captions with a choice, and the margins of these pairs."""
        left = np.flatnonzero(self.choice >= 0)
        first = self.first[left]
        return left, scores[first] - scores[first + 1 + self.choice[left]]

    def change(self, indices: np.ndarray, scores: np.ndarray, cut: float) -> list[tuple[int, int]]:
        """Gives each of these captions its untried candidate with the highest score, if its margin
        is below `cut`, or drops it; returns captions and candidates, -1: dropped."""
        changed = []
        for index in indices.tolist():
            first, end = self.first[index], self.ends[index]
            new = [row for row in range(first + 1, end) if not self._is_tried[row]]
            best = max(new, key=scores.__getitem__, default=-1)
            is_better = best >= 0 and scores[first] - scores[best] < cut
            self.choice[index] = best - first - 1 if is_better else -1
            self._is_tried[best] |= is_better
            changed.append((index, int(self.choice[index])))
        return changed


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
