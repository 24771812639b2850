"""Are tokens other than the pooled ones reliable? Choices by the tokens of towers.

The contrastive loss trains the class token and the end-of-text token, or what is pooled of all; the
others go through a projection that is not trained on them, and heads read them nevertheless: a map
of their cosines ("Is CLIP ideal? No. Can we fix it? Yes!", ICCV 2025), or patches that a text
weighs (PACL). No paper that we know of says how to measure this; the definition here is ours: the
same choice as by the pooled features, with one or both of them replaced by other tokens.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from vlc_jax import errors
from vlc_jax.evaluators import stats, ties
from vlc_jax.evaluators.scorer import Scorer, take
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.record import DataError

CHUNK = 64  # cases whose tokens are in memory: 120 MB of images of a ViT-L/14 at 336 pixels
DIGITS = 9  # of a score
BEFORE_END = (1, 2, 3, 4)  # tokens before the end of text

Scores = dict[str, np.ndarray]  # kind -> scores (cases, options); of "image_each" with patches


def metrics(benchmark: Benchmark, scorer: Scorer, tie: str) -> dict[str, stats.Estimate]:
    """Accuracies of a multiple choice of captions by cosines of the towers, whatever the head.

    pooled_accuracy           pooled image, pooled text: what the others are to be compared with
    text_mean_accuracy        pooled image, mean over the tokens of a caption before its end (of
                              their cosines, as all means here)
    text_before_end_K_accuracy  pooled image, the K-th token before the end; of the cases all of
                              whose captions have one
    image_mean_accuracy       mean over patches, pooled text
    image_best_accuracy       the best patch for each caption, pooled text
    image_each_accuracy       one patch, pooled text: the mean accuracy over patches of a picture
    map_accuracy              mean over the tokens of a caption of the best patch for each (FILIP,
                              Yao et al. 2022): no pooled feature at all

    The class token is no patch. Chance is the mean of 1 / options.

    Raises:
      UsageError: a model without tokens of texts. DataError: a case with several images.
    """
    if scorer.image_tokens is None or scorer.text_tokens is None:
        raise errors.UsageError(
            f"tokens=True of benchmark {benchmark.name!r} needs tokens of images and texts, and "
            "this model's texts are vectors: leave it out"
        )
    for case in benchmark.cases:
        if len(case.images) > 1:
            raise DataError(
                f"tokens=True needs one image per case; case {case.id!r} of {benchmark.name!r} has "
                f"{len(case.images)}"
            )
    parts = list(_scores(benchmark, scorer))
    cases, found = benchmark.cases, {}
    chance = np.array([1 / len(case.captions) for case in cases])
    clusters = stats.images_of(cases)
    for name in parts[0]:
        scored = [_credits(part[name], tie) for part in parts]
        credit, tied = (np.concatenate(column) for column in zip(*scored, strict=True))
        rows = ~np.isnan(credit)
        if rows.any():
            found[f"{name}_accuracy"] = stats.proportion(
                credit[rows], float(chance[rows].mean()), tied[rows], clusters[rows]
            )
    return found


def _scores(benchmark: Benchmark, scorer: Scorer) -> Iterator[Scores]:
    """Scores of each kind, CHUNK cases at a time; of a missing option -inf, of a missing token of
    the first option NaN."""
    for start in range(0, len(benchmark.cases), CHUNK):
        cases = benchmark.cases[start : start + CHUNK]
        image = scorer.image_tokens([case.images[0] for case in cases])
        texts = list(dict.fromkeys(caption for case in cases for caption in case.captions))
        text = scorer.text_tokens(texts)
        stats.require_finite(image.tokens, benchmark.name)
        stats.require_finite(text.tokens[text.mask], benchmark.name)
        row = {caption: number for number, caption in enumerate(texts)}
        options = max(len(case.captions) for case in cases)
        part: Scores = {}
        for n, case in enumerate(cases):
            own = take(text, np.array([row[caption] for caption in case.captions]))
            one = of_case(image.pooled[n], image.tokens[n], own.pooled, own.tokens, own.mask)
            for name, scores in one.items():
                shape = (len(cases), options, *scores.shape[1:])
                filled = part.setdefault(name, np.full(shape, -np.inf))
                filled[n, : len(scores)] = scores
        yield part


def of_case(
    image: Float[np.ndarray, " embed"],
    patches: Float[np.ndarray, "patches embed"],
    texts: Float[np.ndarray, "options embed"],
    tokens: Float[np.ndarray, "options length embed"],
    mask: Bool[np.ndarray, "options length"],
) -> Scores:
    """Scores (options,) of one picture with its captions by each kind of token; those of "each"
    patch (options, patches); NaN where a caption has no such token.

    mask: True on the tokens of a caption, the last of which is its end.
    """
    image, patches, texts, tokens = (unit(each) for each in (image, patches, texts, tokens))
    end = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    before = np.arange(mask.shape[1]) < end[:, None]
    counts = np.maximum(before.sum(axis=1), 1)
    of_tokens, of_patches = tokens @ image, texts @ patches.T
    nearest = (tokens @ patches.T).max(axis=2)
    found = {
        "pooled": texts @ image,
        "text_mean": np.where(before, of_tokens, 0).sum(axis=1) / counts,
    }
    for back in BEFORE_END:
        at = np.clip(end - back, 0, None)
        one = np.take_along_axis(of_tokens, at[:, None], axis=1)[:, 0]
        found[f"text_before_end_{back}"] = np.where(end >= back, one, np.nan)
    found |= {
        "image_mean": of_patches.mean(axis=1),
        "image_best": of_patches.max(axis=1),
        "image_each": of_patches,
        "map": np.where(before, nearest, 0).sum(axis=1) / counts,
    }
    # equal captions must tie: sums of equal rows may differ in the 16th digit, float32 has seven
    return {name: np.round(scores, DIGITS) for name, scores in found.items()}


def _credits(
    scores: Float[np.ndarray, "cases options *patches"], tie: str
) -> tuple[Float[np.ndarray, " cases"], Bool[np.ndarray, " cases"]]:
    """Credit and tie of each case, the mean over patches and any of them; NaN where an option has
    no score."""
    scores = scores.reshape(*scores.shape[:2], -1)
    flat = np.moveaxis(scores, 2, 1).reshape(-1, scores.shape[1])
    standing = ties.standing(flat, np.zeros(len(flat), int))
    credit = standing.among_best(1, tie).reshape(len(scores), -1).mean(axis=1)
    tied = standing.tied(1).reshape(len(scores), -1).any(axis=1)
    return np.where(np.isnan(scores).any(axis=(1, 2)), np.nan, credit), tied
