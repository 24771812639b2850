"""The losses that SVLC (Doveh et al. 2023, section 3.2; SivanDoveh/TSVLC) and DAC (by the same
authors, 2023, section 3.3) add to CLIP's, and those of CS-CLIP and CLIC.

SVLC's are `negative` and `analogy`, of which `paraphrase` is READ-CLIP's variant. In all, s is the
logit scale, x_i an image, t_i its caption, n_ik and p_ik its hard negatives and hard positives, all
of unit length. Hard Positive Truth (Kamath et al. 2024, appendix D.1) trains with SVLC's two, one
text of each kind per example.

DAC's are `mil` and `negative_bag`, for a bag of sentences per image: the hard positives of an
example. a_ijk is the logit scale times the cosine similarity of image i and sentence k of example
j. DAC adds them to CLIP's loss and to `negative`, all with weight 1.

CS-CLIP's is `units` (Kargi et al. 2026, "Half-truths break similarity-based retrieval"; the loss
"negclip_hard" in the config of kargibora/CS-CLIP), on entities and relations of a caption: the hard
positives. The foil of unit k is the k-th of as many hard negatives, the last ones
(config.input.negatives.of_positives = 1). CS-CLIP adds it to NegCLIP's loss with weight 0.5.

CLIC's are `clic`, `clic_negative` and `clic_distance` (Peleg et al. 2025, equations 4 to 6), with
weights 0.5, 0.5 and 1, of an image with several texts p_ik that are all true of it: p_i1 is the
caption, the others are the hard positives.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import errors
from vlc_jax.losses.masks import MASKED_LOGIT, or_ones
from vlc_jax.types import Scalar


def check_margin(margin: float) -> None:
    """Raises UsageError unless the margin of `paraphrase` is a difference of cosines."""
    if not 0 <= margin <= 2:
        raise errors.UsageError(f"margin of paraphrase is a number in [0, 2]; got {margin}")


def negative(
    own_scores: Float[Array, " batch"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """The negative loss: cross-entropy of an image's caption against its own hard negatives.

        loss_i = log(exp(s x_i.t_i) + sum_k exp(s x_i.n_ik)) - s x_i.t_i

    `mask` is False on missing hard negatives; None: none is missing. With one hard negative the
    loss is softplus(s (x_i.n_i - x_i.t_i)), without any it is 0.
    """
    mask = or_ones(mask, own_negative_scores)
    caption = logit_scale * own_scores.astype(jnp.float32)
    logits = jnp.where(mask, logit_scale * own_negative_scores.astype(jnp.float32), MASKED_LOGIT)
    return jax.nn.softplus(jax.nn.logsumexp(logits, axis=1) - caption)


def analogy(
    image_scores: Float[Array, "batch batch positives"],
    text_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """The analogy loss: each hard positive is retrieved by its image and by its caption.

        loss_i = 1/2 [logsumexp_j(s x_i.p_j) - s x_i.p_i] + 1/2 [logsumexp_j(s t_i.p_j) - s t_i.p_i]

    `image_scores[i, j, k]` is image i against hard positive k of example j, `text_scores[i, j, k]`
    caption i against it. With several hard positives per example, the formula is applied for each
    k, and loss_i is the mean over the hard positives of example i. `mask` None: none is missing.
    """
    mask = or_ones(mask, image_scores)
    losses = [_one_direction(scores, logit_scale, mask) for scores in (image_scores, text_scores)]
    return _mean((losses[0] + losses[1]) / 2, mask)


def analogy_symmetric(
    image_scores: Float[Array, "batch batch positives"],
    text_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """The analogy loss (`analogy`), each term averaged with the same term of the transposed scores.

    In the transposed term the rows are hard positives, without the missing ones; the columns are
    the images and captions of all examples.
    """
    mask = or_ones(mask, image_scores)
    losses = [_both_directions(scores, logit_scale, mask) for scores in (image_scores, text_scores)]
    return _mean((losses[0] + losses[1]) / 2, mask)


def paraphrase(
    text_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
    *,
    margin: float = 0.0,
) -> Float[Array, " batch"]:
    """READ-CLIP's alignment of sentences (Kwon et al. 2025): a positive retrieves its caption.

        loss_i = logsumexp_j(s p_i.t_j) - s p_i.t_i

    The half of `analogy` between texts, with captions and hard positives exchanged. `text_scores`,
    several hard positives and `mask` as there.

    margin: m, a difference of cosines. Above 0 the loss is a hinge, without the logit scale:

        loss_i = sum_j max(0, m + p_i.t_j - p_i.t_i)    over j != i

    Raises UsageError as `check_margin` does.
    """
    check_margin(margin)
    mask = or_ones(mask, text_scores)
    if margin:
        # [j, i, k]: caption j, hard positive k of example i
        gaps = text_scores.astype(jnp.float32) - _diagonal(text_scores)[None].astype(jnp.float32)
        is_other = mask & ~jnp.eye(len(mask), dtype=bool)[:, :, None]
        hinges = jnp.where(is_other, jax.nn.relu(margin + gaps), 0.0)
        return _mean(hinges.sum(axis=0), mask)
    return _mean(_one_direction(text_scores, logit_scale, mask, axis=0), mask)


def mil(
    scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """MIL-NCE (Miech et al. 2020, equation 1) as DAC uses it: at least one sentence of a bag fits.

        loss_i = log(sum_jk exp(a_ijk) + sum_jk exp(a_jik)) - log(sum_k exp(a_iik))

    It is 0 for an example without a sentence. `mask` None: no sentence is missing.
    """
    mask = or_ones(mask, scores)
    logits = jnp.where(mask, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
    # as in the authors' code, the bag of example i is in both sums, so that loss_i >= ln 2
    rows = jax.nn.logsumexp(logits, axis=(1, 2))
    columns = jax.nn.logsumexp(logits, axis=(0, 2))
    own_bag = jax.nn.logsumexp(jnp.diagonal(logits).T, axis=1)
    has_bag = jnp.diagonal(mask).any(axis=0)
    return jnp.where(has_bag, jnp.logaddexp(rows, columns) - own_bag, 0.0)


def negative_bag(
    own_scores: Float[Array, "batch positives"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch positives"] | None = None,
    negative_mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """Cross-entropy of an image's bag against its own hard negatives.

        loss_i = log(sum_k exp(a_iik) + sum_k exp(a-_ik)) - log(sum_k exp(a_iik))

    Missing texts are left out; the authors' code replaces the negative of a sentence without one by
    the embedding of an empty text. The loss is 0 for an example without a bag or without negatives.
    Masks None: no text is missing.
    """
    mask = or_ones(mask, own_scores)
    negative_mask = or_ones(negative_mask, own_negative_scores)

    def logsumexp(scores: jax.Array, mask: jax.Array) -> jax.Array:
        logits = jnp.where(mask, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
        return jax.nn.logsumexp(logits, axis=1)

    bag = logsumexp(own_scores, mask)
    negative = logsumexp(own_negative_scores, negative_mask)
    has_both = mask.any(axis=1) & negative_mask.any(axis=1)
    return jnp.where(has_both, jax.nn.softplus(negative - bag), 0.0)


def units(
    scores: Float[Array, "batch batch positives"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
    negative_mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """CLIP's loss on the k-th units of all examples, with the own foil f_ik as a further text.

        loss_ik = 1/2 [log(sum_j exp(s x_i.u_jk) + exp(s x_i.f_ik)) + log(sum_j exp(s x_j.u_ik))]
                  - s x_i.u_ik

    loss_i is the mean over the units of example i that have a foil, 0 without any; the authors take
    the mean over examples first, and draw as many units for each. The sums run over the examples
    that have a k-th unit with a foil. `mask` is False on pairs of an image and a unit that do not
    count, `negative_mask` on missing foils; None: all are there.
    """
    mask, has_foil = or_ones(mask, scores), or_ones(negative_mask, own_negative_scores)
    count = scores.shape[2]
    has_unit = _diagonal(mask) & has_foil[:, -count:]
    is_pair = mask & has_unit[:, None] & has_unit[None]
    logits = jnp.where(is_pair, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
    foil = logit_scale * own_negative_scores[:, -count:].astype(jnp.float32)
    foil = jnp.where(has_unit, foil, MASKED_LOGIT)
    rows = jnp.logaddexp(jax.nn.logsumexp(logits, axis=1), foil)
    columns = jax.nn.logsumexp(logits, axis=0)
    return _own_mean((rows + columns) / 2 - _diagonal(logits), has_unit)


def clic(
    scores: Float[Array, "batch batch texts"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch texts"] | None = None,
) -> Float[Array, " batch"]:
    """CLIP's loss for each of an image's texts, the k-th ones of all examples together.

        loss_i = mean_k 1/2 [logsumexp_j(s x_i.p_jk) + logsumexp_j(s x_j.p_ik)] - s x_i.p_ik

    The mean is over the texts that example i has. `mask` None: no text is missing.
    """
    mask = or_ones(mask, scores)
    return _mean(_both_directions(scores, logit_scale, mask), mask)


def clic_negative(
    own_scores: Float[Array, "batch texts"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch texts"] | None = None,
    negative_mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """`negative` for each of an image's texts, against the same hard negatives.

        loss_i = mean_k log(exp(s x_i.p_ik) + sum_l exp(s x_i.n_il)) - s x_i.p_ik

    The mean is over the texts that example i has. Masks None: no text is missing.
    """
    texts = own_scores.T
    losses = [negative(own, own_negative_scores, logit_scale, negative_mask) for own in texts]
    return _own_mean(jnp.stack(losses, axis=1), or_ones(mask, own_scores))


def clic_distance(
    text: Float[Array, "batch embed"],
    positive_text: Float[Array, "batch embed"],
    mask: Bool[Array, " batch"] | None = None,
) -> Float[Array, " batch"]:
    """Squared distance |p_i1 - p_i2|^2 of caption and first hard positive; 0 without one."""
    # float32: near 0 bfloat16 has no digits left of the difference
    squares = (text.astype(jnp.float32) - positive_text.astype(jnp.float32)) ** 2
    distance = jnp.sum(squares, axis=1)
    return jnp.where(or_ones(mask, distance), distance, 0.0)


def _both_directions(scores: jax.Array, logit_scale: Scalar, mask: jax.Array) -> jax.Array:
    """The mean of `_one_direction` of the scores and of the transposed scores."""
    rows, columns = (_one_direction(scores, logit_scale, mask, axis) for axis in (1, 0))
    return (rows + columns) / 2


def _one_direction(
    scores: jax.Array, logit_scale: Scalar, mask: jax.Array, axis: int = 1
) -> jax.Array:
    """logsumexp_j(s_ijk) - s_iik for each i and k; any finite number where s_iik is masked.

    axis: that of j; 0: of the transposed scores.
    """
    logits = logit_scale * scores.astype(jnp.float32)
    sums = jax.nn.logsumexp(jnp.where(mask, logits, MASKED_LOGIT), axis=axis)
    return sums - _diagonal(logits)


def _diagonal(x: jax.Array) -> jax.Array:
    """x[i, i, k] as (i, k)."""
    # jnp.diagonal puts the axis of i last
    return jnp.diagonal(x).T


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    """`_own_mean` with the diagonal of a mask of all pairs."""
    return _own_mean(losses, _diagonal(mask))


def _own_mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of losses[i, k] over the texts k that example i has; 0 without any."""
    total = jnp.sum(jnp.where(mask, losses, 0.0), axis=1)
    return total / jnp.maximum(jnp.sum(mask, axis=1), 1)
