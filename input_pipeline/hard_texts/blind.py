"""Blind classifier: which of several texts is the caption, judged without the image.

Logistic regression of scikit-learn on differences of text features (Bradley-Terry), fitted on other
folds of the same texts, as "train on the test set" (Brown et al. 2025, arXiv:2511.04655) prescribes
for the audit of a benchmark: a score that it reaches can be had from texts alone by a model that
was trained on such texts. It is linear and has seen no other text, so it is a lower bound.
"""

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

FOLDS = 5
# cases that a fold is fitted on, at most: a larger set takes minutes and gains a point
MOST = 4_800
# cases whose features are in memory together
CHUNK = 5_000
# inverse regularisation; tf-idf rows have norm 1, their differences much less
STRENGTH = 5.0
# letters per unit of the length feature, so that it is as large as the others
LETTERS = 100.0


def option_scores(
    options: Sequence[Sequence[str]], groups: Sequence[Hashable], seed: int = 0
) -> list[np.ndarray]:
    """Blind scores of the texts of each case, (texts of the case,), float64.

    options: texts of each case, the correct one first.
    groups: of each case, such as its image; cases of one group are in one fold.
    seed: of folds and draws.

    A case is scored by weights that were fitted on the other folds. The result depends on neither
    threads nor the order of groups; equal texts of a case have equal scores. Raises ValueError for
    a case of fewer than two texts and for another number of groups.
    """
    if len(options) != len(groups):
        raise ValueError(f"each case has a group; got {len(options)} cases, {len(groups)} groups")
    sizes = np.array([len(texts) for texts in options], np.int64)
    if small := np.flatnonzero(sizes < 2).tolist():
        raise ValueError(f"a case needs two texts; case {small[0]} has {sizes[small[0]]}")
    if not options:
        return []
    fold_of, draw = folds(groups, seed), np.random.default_rng(seed).permutation(len(sizes))
    drawn = [draw[fold_of[draw] != fold][:MOST] for fold in range(FOLDS)]
    # words outside these texts have no weight
    pool = np.unique(np.concatenate(drawn))
    features_of = Features([text for index in pool for text in options[index]])
    features = features_of([text for index in pool for text in options[index]])
    first = np.cumsum(sizes[pool]) - sizes[pool]
    weights = np.zeros((features.shape[1], FOLDS))
    for fold, cases in enumerate(drawn):
        if len(cases):
            rows = np.searchsorted(pool, cases)
            weights[:, fold] = fit(features, first[rows], sizes[cases])
    scores: list[np.ndarray] = []
    for start in range(0, len(options), CHUNK):
        stop = min(start + CHUNK, len(options))
        part = features_of([text for texts in options[start:stop] for text in texts]) @ weights
        fold = np.repeat(fold_of[start:stop], sizes[start:stop])
        part = part[np.arange(len(part)), fold]
        scores += np.split(part, np.cumsum(sizes[start:stop])[:-1])
    return scores


def vector_scores(
    vectors: np.ndarray, sizes: np.ndarray, groups: Sequence[Hashable], seed: int = 0
) -> list[np.ndarray]:
    """`option_scores` of stored vectors, such as features of images, (options of all cases, width).

    sizes: options of each case, (cases,); the first is the correct one. Columns are scaled to unit
    variance first.
    """
    vectors = np.asarray(vectors, np.float64)
    vectors = (vectors - vectors.mean(axis=0)) / np.maximum(vectors.std(axis=0), 1e-12)
    # of norm 1 in the mean, as those of texts
    features = vectors / np.sqrt(vectors.shape[1])
    first, fold_of = np.cumsum(sizes) - sizes, folds(groups, seed)
    draw = np.random.default_rng(seed).permutation(len(sizes))
    scores, fold_of_row = np.zeros(len(features)), np.repeat(fold_of, sizes)
    for fold in range(FOLDS):
        others, rows = draw[fold_of[draw] != fold][:MOST], fold_of_row == fold
        if len(others) and rows.any():
            scores[rows] = features[rows] @ fit(features, first[others], sizes[others])
    return np.split(scores, first[1:])


def credit(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Share of each case that is right, (cases,): 1 if the first score is the largest alone, an
    equal part if it ties with others for it, else 0."""
    return np.array([(s[0] == s.max()) / (s == s.max()).sum() for s in scores])


def folds(groups: Sequence[Hashable], seed: int = 0) -> np.ndarray:
    """Fold of each case, (cases,), from 0 to FOLDS - 1: groups are dealt out in the order of a hash
    of seed and name, so that folds are equally large and independent of the order of cases."""
    names = [str(group) for group in groups]
    key = {name: hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in set(names)}
    fold = {name: rank % FOLDS for rank, name in enumerate(sorted(key, key=key.__getitem__))}
    return np.array([fold[name] for name in names], np.int64)


class Features:
    """Text features, fitted on texts: tf-idf of words and pairs of words, tf-idf of 2 to 4 letters
    in a row (both with case, letters with punctuation and spaces), and the length.

    No label enters the vocabulary and the document frequencies.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        # a text of its own: scikit-learn refuses a vocabulary without a word
        words = TfidfVectorizer(lowercase=False, token_pattern=r"\b\w+\b", ngram_range=(1, 2))
        letters = TfidfVectorizer(lowercase=False, analyzer="char", ngram_range=(2, 4))
        self._parts = [part.fit([*texts, "a text"]) for part in (words, letters)]

    def __call__(self, texts: Sequence[str]) -> sparse.csr_array:
        """(texts, features)"""
        length = np.array([[len(text) / LETTERS] for text in texts])
        parts = [part.transform(texts) for part in self._parts]
        return sparse.csr_array(sparse.hstack([*parts, length], format="csr"))


def fit(
    features: sparse.csr_array | np.ndarray, first: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Weights of a case's correct row minus each of its wrong rows, (features,); cases count alike.

    first: row of the correct text of each case; the `sizes - 1` rows after it are wrong.
    """
    wrong = np.concatenate([np.arange(f + 1, f + n) for f, n in zip(first, sizes, strict=True)])
    difference = features[np.repeat(first, sizes - 1)] - features[wrong]
    # the solver needs two classes: without an intercept, (x, 1) and (-x, -1) are the same example
    sign = np.where(np.arange(len(wrong)) % 2, -1.0, 1.0)
    if len(wrong) == 1:
        return np.asarray(sparse.csr_array(difference).todense())[0]
    # liblinear: one thread with sums in a fixed order, so the same bits everywhere
    model = LogisticRegression(
        C=STRENGTH, solver="liblinear", fit_intercept=False, max_iter=1_000, random_state=0
    )
    weight = np.repeat(1 / (sizes - 1), sizes - 1)
    # one format, whose sums have a fixed order
    signed = sparse.csr_array(sparse.diags_array(sign) @ sparse.csr_array(difference))
    model.fit(signed, sign, sample_weight=weight)
    return model.coef_[0]
