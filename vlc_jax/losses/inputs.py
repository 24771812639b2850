"""The arguments of each formula of LOSSES, from the outputs of a model and the masks of pairs.

A function is named like its formula. `o` has the hard texts that the row's `needs` names; what else
a formula reads is checked here, and UsageError raised where a model lacks it.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from vlc_jax import errors, types
from vlc_jax.losses import masks, teacher, tiles

Inputs = Callable[[types.Outputs, masks.PairMasks], tuple[Any, ...]]


def embeddings(
    o: types.Outputs, m: masks.PairMasks, negative_text: jax.Array | None = None
) -> tuple[jax.Array, tiles.Texts, jax.Array]:
    """The arguments of the chunked and ring implementations."""
    return o.image.pooled, tiles.Texts(o.text.pooled, negative_text, m), o.logit_scale


def local(inputs: Inputs) -> Inputs:
    """The same inputs with a head's second scores in place of its scores."""

    def local_inputs(o: types.Outputs, m: masks.PairMasks) -> tuple[Any, ...]:
        if o.local is None:
            raise errors.UsageError(
                "a loss named ..._local needs scores of pooled patches beside those of the model: "
                "set config.model.name to 'pooled' or 'flair'"
            )
        return inputs(o._replace(**o.local), m)

    return local_inputs


def loss_fields(loss: str, formula: Callable[..., Any]) -> dict[str, Any]:
    """The row of another project's formula, whose positional parameters are fields of Outputs or
    pair_masks. Its mean runs over the examples with the hard texts that they name."""
    parameters = inspect.signature(formula).parameters.values()
    names = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    for name in names:
        errors.known("positional parameter", name, (*types.Outputs._fields, "pair_masks"))

    def inputs(o: types.Outputs, m: masks.PairMasks) -> tuple[Any, ...]:
        given = {**o._asdict(), "pair_masks": m}
        if lacking := [name for name in names if given[name] is None]:
            raise errors.UsageError(f"the loss {loss}: the model and batch have no {lacking[0]}")
        return tuple(given[name] for name in names)

    needs = tuple(kind for kind in ("negative", "positive") if kind in " ".join(names))
    return {
        "dense": formula,
        "inputs": inputs,
        "needs": needs,
        "mean_over": "examples_with_hard_texts" if needs else "batch",
        "contrasts_all": tuple(kind for kind in needs if f"{kind}_scores" in names),
    }


def negative(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `negative`."""
    return o.own_scores, o.own_negative_scores, o.logit_scale, masks.own_negatives(m)


def analogy(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `analogy` and `analogy_symmetric`."""
    return o.positive_scores, *paraphrase(o, m)


def paraphrase(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `paraphrase`."""
    # cosines for every head: its own score compares an image with a text, never two texts
    texts = o.text.pooled, o.positive_text.pooled
    scores = jnp.einsum("ie,tpe->itp", *texts, precision="highest")
    return scores, o.logit_scale, masks.positives(m)


def mil(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `mil`."""
    return o.positive_scores, o.logit_scale, masks.positives(m)


def negative_bag(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `negative_bag`."""
    scores = o.own_positive_scores, o.own_negative_scores
    return *scores, o.logit_scale, masks.own_positives(m), masks.own_negatives(m)


def units(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `units`."""
    scores = o.positive_scores, o.own_negative_scores
    return *scores, o.logit_scale, masks.unshared_positives(m), masks.own_negatives(m)


def clic(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `clic`: caption and hard positives, all of them true of the image."""
    scores = jnp.concatenate([o.scores[:, :, None], o.positive_scores], axis=2)
    parts = masks.captions(m, m)[:, :, None], masks.unshared_positives(m)
    return scores, o.logit_scale, jnp.concatenate(parts, axis=2)


def clic_negative(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `clic_negative`; texts as for `clic`."""
    scores = jnp.concatenate([o.own_scores[:, None], o.own_positive_scores], axis=1)
    mask = jnp.concatenate([m.mask[:, None], masks.own_positives(m)], axis=1)
    return scores, o.own_negative_scores, o.logit_scale, mask, masks.own_negatives(m)


def clic_distance(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `clic_distance`."""
    return o.text.pooled, o.positive_text.pooled[:, 0], masks.own_positives(m)[:, 0]


def cross_modal_rank(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `cross_modal_rank` and `gaps`. Raises UsageError without thresholds."""
    if o.thresholds is None:
        raise errors.UsageError(
            "the loss cross_modal_rank needs the thresholds of the step before: in a loop of your "
            "own, add jnp.zeros(negatives) to the first outputs, outputs._replace(thresholds=...), "
            "and losses.thresholds(config_losses, outputs, batch) to the next"
        )
    scores = o.own_scores, o.own_negative_scores
    return *scores, o.logit_scale, o.thresholds, masks.own_negatives(m)


def intra_modal(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `intra_modal`."""
    texts = o.text.pooled, o.negative_text.pooled
    return *texts, o.own_scores, o.logit_scale, masks.own_negatives(m)


def text_grounded(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `text_grounded`. Raises UsageError without a teacher."""
    texts = o.text.pooled, _teacher(o).text.pooled, o.negative_text.pooled
    return *texts, masks.own_negatives(m)


def distill(o: types.Outputs, m: masks.PairMasks) -> tuple[Any, ...]:
    """The arguments of `distill`. Raises UsageError without a teacher."""
    negatives = masks.own_negatives(m) if o.negative_text is not None else None
    return _features(o), _features(_teacher(o)), negatives


def _features(o: types.Outputs) -> teacher.Features:
    negative_text = None if o.negative_text is None else o.negative_text.pooled
    return teacher.Features(o.image.pooled, o.text.pooled, negative_text)


def self_distill(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `self_distill`. Raises UsageError without crops, teacher or centre."""
    del m
    logits = _view_logits(o).crops
    return logits, _view_logits(_teacher(o)).image, _centre(o, "self_distill")


def masked_patches(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `masked_patches`. Raises UsageError without masks, teacher or centre."""
    del m
    logits = _view_logits(o).masked
    return logits, _view_logits(_teacher(o)).patches, _centre(o, "masked_patches")


def centred(o: types.Outputs, name: str) -> tuple[jax.Array, jax.Array]:
    """The centre of a loss, and the teacher's logits of which the next one takes the mean: for
    `masked_patches` of all patches, masked or not, as in iBOT's released code."""
    logits = _view_logits(_teacher(o))
    return _centre(o, name), logits.image if name == "self_distill" else logits.mean_patch


def _view_logits(o: types.Outputs) -> types.ViewLogits:
    if o.view_logits is None:
        raise errors.UsageError(
            "the losses self_distill and masked_patches need crops and masks of the images, and "
            "logits over prototypes: set config.model.name='self_distilled' (in a loop of your "
            "own, give the batch the keys crops and masked_patches)"
        )
    return o.view_logits


def _centre(o: types.Outputs, name: str) -> jax.Array:
    if o.centres is None:
        raise errors.UsageError(
            f"the loss {name} needs the centre of the step before: in a loop of your own, add "
            f"{{'{name}': jnp.zeros(prototypes)}} to the first outputs, outputs._replace(centres="
            "...), and losses.centres(config_losses, outputs, batch) to the next"
        )
    return o.centres[name]


def _teacher(o: types.Outputs) -> types.Outputs:
    if o.teacher is None:
        raise errors.UsageError(
            "the losses distill, text_grounded, self_distill and masked_patches need a teacher, "
            "which all but text_grounded keep: set config.losses.distill, with weight 0 for the "
            "teacher alone (in a loop of your own, add the teacher's outputs: "
            "outputs._replace(teacher=...))"
        )
    return o.teacher


def sparc_local(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `local`. Raises UsageError for a model without token groups."""
    if o.token_groups is None:
        raise errors.UsageError(
            "the loss sparc_local needs patches grouped for tokens: set config.model.name='sparc'"
        )
    return o.token_groups, o.text.tokens, o.text.mask & m.mask[:, None], o.logit_scale


def caption(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """Raises UsageError for scores that are no log probabilities."""
    if o.text.ids is None:
        raise errors.UsageError(
            "the loss caption needs log probabilities as scores: set config.model.name='captioner'"
        )
    return o.own_scores, o.text.mask.sum(axis=1), m.mask


def itc(o: types.Outputs, m: masks.PairMasks) -> tuple[Any, ...]:
    """The arguments of `itc`."""
    # not o.scores, which of BLIP and X-VLM may be those of ITM
    scores = jnp.einsum("ie,te->it", o.image.pooled, o.text.pooled, precision="highest")
    return scores, o.logit_scale, m


def itm(o: types.Outputs, m: masks.PairMasks) -> tuple[jax.Array, ...]:
    """The arguments of `itm`. Raises UsageError for a model that draws no pairs."""
    if o.matching is None:
        raise errors.UsageError(
            "the loss itm needs pairs drawn by the model: set config.model.name to 'blip' or "
            "'xvlm' and config.model.head.scores to any but 'itc' (in a loop of your own, pass "
            "rngs={'dropout': key} to model.apply)"
        )
    return o.matching.log_odds, masks.drawn(m, o.matching.text, o.matching.image)


def logit_bias(o: types.Outputs) -> types.Scalar:
    """The logit bias. Raises UsageError for a model without one."""
    if o.logit_bias is None:
        raise errors.UsageError(
            "the sigmoid loss needs a model with a logit bias: set config.model.logit_bias_init, "
            "such as -10.0; weights without a bias start there, too (SigLIP starts at -10, with a "
            "logit_scale_init of 10)"
        )
    return o.logit_bias
