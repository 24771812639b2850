"""Multiple choice by unpooled tokens: are tokens other than the pooled ones reliable?

The contrastive loss trains the class token and the end-of-text token, or a pooling of all. The
other tokens go through a projection that is not trained on them, and yet some heads read them: a
map of their cosines ("Is CLIP ideal? No. Can we fix it? Yes!", ICCV 2025), or patches weighted by a
text (PACL). We know of no published measure. Ours is the accuracy of the same choice with one or
both pooled features replaced by other tokens.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from vlc_jax import errors
from vlc_jax.evaluators import stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked
from vlc_jax.evaluators.scorer import Scorer, take
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.case import Benchmark

# cases in memory: 120 MB of image tokens of a ViT-L/14 at 336 pixels
CHUNK = 64
# of a score, see the end of case_scores
DIGITS = 9
BEFORE_END = (1, 2, 3, 4)  # tokens before the end of text

# kind -> (cases, options); "image_each": (cases, options, patches)
Scores = dict[str, np.ndarray]


def metrics(benchmark: Benchmark, scorer: Scorer, tie: str) -> dict[str, stats.Estimate]:
    """Accuracies of choosing among captions by cosines of the towers, whatever the head.

    pooled_accuracy           pooled image, pooled text: the reference
    text_mean_accuracy        pooled image, mean of cosines over a caption's tokens before its end
    text_before_end_K_accuracy  pooled image, K-th token before the end; over cases whose captions
                              all have one
    image_mean_accuracy       mean of cosines over patches, pooled text
    image_best_accuracy       best patch for each caption, pooled text
    image_each_accuracy       one patch, pooled text: mean accuracy over the patches of an image
    map_accuracy              mean over a caption's tokens of the best patch's cosine (FILIP, Yao et
                              al. 2022): no pooled feature

    The class token is not a patch. Chance is the mean of 1 / options.
    """
    parts = list(_scores(benchmark, scorer))
    cases, estimates = benchmark.cases, {}
    chance = np.array([1 / len(case.captions) for case in cases])
    clusters = stats.images_of(cases)
    for name in parts[0]:
        scored = [_credits(part[name], tie) for part in parts]
        credit, tied = (np.concatenate(column) for column in zip(*scored, strict=True))
        rows = ~np.isnan(credit)
        if rows.any():
            estimates[f"{name}_accuracy"] = stats.proportion(
                credit[rows], float(chance[rows].mean()), tied[rows], clusters[rows]
            )
    return estimates


def check(benchmark: Benchmark, scorer: Scorer) -> None:
    """Raises UsageError for a model without text tokens, DataError for a case with several images.

    Before any score is computed.
    """
    if scorer.image_tokens is None or scorer.text_tokens is None:
        raise errors.UsageError(
            f"tokens=True of benchmark {benchmark.name!r} needs tokens of images and texts, and "
            "this model gives none, such as one whose texts are vectors: leave it out"
        )
    rule = "tokens=True needs one image per case"
    check_cases(benchmark, rule, lambda case: len(case.images) == 1)


def _scores(benchmark: Benchmark, scorer: Scorer) -> Iterator[Scores]:
    """Scores of each kind, CHUNK cases at a time; -inf for padding, NaN for a missing token."""
    for cases in chunked(benchmark.cases, CHUNK):
        image = scorer.image_tokens([case.images[0] for case in cases])
        texts = list(dict.fromkeys(caption for case in cases for caption in case.captions))
        text = scorer.text_tokens(texts)
        stats.require_finite(image.tokens, benchmark.name)
        stats.require_finite(text.tokens[text.mask], benchmark.name)
        row = {caption: number for number, caption in enumerate(texts)}
        options = max(len(case.captions) for case in cases)
        part: Scores = {}
        for n, case in enumerate(cases):
            captions = take(text, np.array([row[caption] for caption in case.captions]))
            features = captions.pooled, captions.tokens, captions.mask
            one = case_scores(image.pooled[n], image.tokens[n], *features)
            for name, scores in one.items():
                shape = (len(cases), options, *scores.shape[1:])
                filled = part.setdefault(name, np.full(shape, -np.inf))
                filled[n, : len(scores)] = scores
        yield part


def case_scores(
    image: Float[np.ndarray, " embed"],
    patches: Float[np.ndarray, "patches embed"],
    texts: Float[np.ndarray, "options embed"],
    tokens: Float[np.ndarray, "options length embed"],
    mask: Bool[np.ndarray, "options length"],
) -> Scores:
    """Scores (options,) of one image with its captions by each kind of token; "image_each" is
    (options, patches). NaN if a caption has no such token.

    mask: True on the tokens of a caption; the last one is its end.
    """
    image, patches, texts, tokens = (unit(each) for each in (image, patches, texts, tokens))
    # the last True of a row
    end = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    before = np.arange(mask.shape[1]) < end[:, None]
    counts = np.maximum(before.sum(axis=1), 1)
    token_cosines, patch_cosines = tokens @ image, texts @ patches.T
    nearest = (tokens @ patches.T).max(axis=2)
    scores = {
        "pooled": texts @ image,
        "text_mean": np.where(before, token_cosines, 0).sum(axis=1) / counts,
    }
    for back in BEFORE_END:
        at = np.clip(end - back, 0, None)
        one = np.take_along_axis(token_cosines, at[:, None], axis=1)[:, 0]
        scores[f"text_before_end_{back}"] = np.where(end >= back, one, np.nan)
    scores |= {
        "image_mean": patch_cosines.mean(axis=1),
        "image_best": patch_cosines.max(axis=1),
        "image_each": patch_cosines,
        "map": np.where(before, nearest, 0).sum(axis=1) / counts,
    }
    # Rounded so that equal captions tie: sums of equal rows may differ in the 16th digit, and
    # float32 has only seven.
    return {name: np.round(values, DIGITS) for name, values in scores.items()}


def _credits(
    scores: Float[np.ndarray, "cases options *patches"], tie: str
) -> tuple[Float[np.ndarray, " cases"], Bool[np.ndarray, " cases"]]:
    """Credit (mean over patches) and tie (any patch) of each case; NaN if an option has none."""
    scores = scores.reshape(*scores.shape[:2], -1)
    flat = np.moveaxis(scores, 2, 1).reshape(-1, scores.shape[1])
    standing = ties.standing(flat, np.zeros(len(flat), int))
    credit = standing.among_best(1, tie).reshape(len(scores), -1).mean(axis=1)
    tied = standing.tied(1).reshape(len(scores), -1).any(axis=1)
    return np.where(np.isnan(scores).any(axis=(1, 2)), np.nan, credit), tied
