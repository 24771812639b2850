"""Losses: the table LOSSES of formulas, and `total`, their weighted sum."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh
from jaxtyping import Array, Bool, Float

from vlc_jax import errors, types
from vlc_jax.input_pipeline import lookup
from vlc_jax.losses import (
    caption,
    ce_clip,
    hn_focal,
    infonce,
    inputs,
    masks,
    matching,
    sigmoid,
    sparc,
    svlc,
    teacher,
    tiles,
)
from vlc_jax.losses.inputs import Inputs

Values = Callable[..., Float[Array, " batch"]]
HardText = Literal["negative", "positive"]


class Loss(NamedTuple):
    """A row of `LOSSES`: a formula, where its arrays come from, and the texts that it needs.

    dense: the formula, a function of arrays that gives one value per example. Its keyword-only
      parameters are the loss's own options in config.losses.NAME.
    inputs: (outputs, pair masks) -> the positional arguments of `dense`.
    tiled: the same values from embeddings, for models whose score is their dot product.
    embeddings: (outputs, pair masks) -> the positional arguments of `tiled`'s implementations.
    needs: the hard texts that the batch must have besides captions.
    mean_over: "batch", or "examples_with_hard_texts": examples that have every text in `needs`.
    contrasts_all: texts in `needs` that are scored with all images, not only with their own.
    check_options: raises UsageError for invalid values of the loss's own options; gets all of them.
    """

    dense: Values
    inputs: Inputs
    tiled: tiles.Tiled | None = None
    embeddings: Inputs | None = None
    needs: tuple[HardText, ...] = ()
    mean_over: Literal["batch", "examples_with_hard_texts"] = "batch"
    contrasts_all: tuple[HardText, ...] = ()
    check_options: Callable[..., None] = lambda **options: None

    @property
    def implementations(self) -> dict[str, Values]:
        """Name, as in config.losses.NAME.implementation -> function."""
        if self.tiled is None:
            return {"dense": self.dense}
        return {"dense": self.dense, "chunked": self.tiled.chunked, "ring": self.tiled.ring}

    def values(
        self, implementation: str, outputs: types.Outputs, pair_masks: masks.PairMasks, **options
    ) -> Float[Array, " batch"]:
        """The loss of each example."""
        inputs = self.inputs if implementation == "dense" else self.embeddings
        return self.implementations[implementation](*inputs(outputs, pair_masks), **options)


class Common(NamedTuple):
    """Options that every loss has, documented in `total`."""

    weight: float = -1.0
    loss: str = ""
    implementation: str = "dense"
    chunk: int | None = None
    duplicates: str = "keep"
    negative_range: tuple[int, int | None] = (0, None)
    rows: tuple[int, int] = (0, 1)
    missing: str = "mask"

    @property
    def for_masks(self) -> dict[str, Any]:
        """Options of `masks.pair_masks`."""
        names = ("duplicates", "negative_range", "rows", "missing")
        return {name: getattr(self, name) for name in names}


def _split(options: Mapping[str, Any]) -> tuple[Common, dict[str, Any]]:
    """The common options of an entry of config.losses, and those of its loss."""
    common = {name: value for name, value in options.items() if name in Common._fields}
    return Common(**common), {k: value for k, value in options.items() if k not in common}


_INFONCE = Loss(
    infonce.dense,
    lambda o, m: (o.scores, o.logit_scale, m),
    tiled=infonce.TILED,
    embeddings=inputs.embeddings,
    check_options=infonce.check,
)
_SIGMOID = Loss(
    sigmoid.dense,
    lambda o, m: (o.scores, o.logit_scale, inputs.logit_bias(o), m),
    tiled=sigmoid.TILED,
    embeddings=lambda o, m: (*inputs.embeddings(o, m), inputs.logit_bias(o)),
)
_PHRASES = Loss(
    sigmoid.phrases,
    lambda o, m: (o.positive_scores, o.logit_scale, inputs.logit_bias(o), m),
    needs=("positive",),
    contrasts_all=("positive",),
)
_OWN_POSITIVES = Loss(
    sigmoid.own_positives,
    lambda o, m: (o.scores, o.own_positive_scores, o.logit_scale, inputs.logit_bias(o), m),
    needs=("positive",),
)
_NEGATIVE = Loss(
    svlc.negative, inputs.negative, needs=("negative",), mean_over="examples_with_hard_texts"
)
_HN_FOCAL = _NEGATIVE._replace(dense=hn_focal.hn_focal, check_options=hn_focal.check)
_PARAPHRASE = Loss(
    svlc.paraphrase, inputs.paraphrase, needs=("positive",), mean_over="examples_with_hard_texts"
)
_ANALOGY = _PARAPHRASE._replace(
    dense=svlc.analogy, inputs=inputs.analogy, contrasts_all=("positive",)
)
_NEGATIVE_BAG = Loss(
    svlc.negative_bag,
    inputs.negative_bag,
    needs=("positive", "negative"),
    mean_over="examples_with_hard_texts",
)
# negclip and sigmoid_negatives are infonce and sigmoid with hard negatives contrasted with all
# images of the batch. svlc_negative and hn_focal can be added to any of the four. Names with _local
# are formulas on a head's second scores (types.Outputs.local).
_OWN: dict[str, Loss] = {
    "infonce": _INFONCE,
    "negclip": _INFONCE._replace(
        inputs=lambda o, m: (o.scores, o.logit_scale, m, o.negative_scores),
        embeddings=lambda o, m: inputs.embeddings(o, m, o.negative_text.pooled),
        needs=("negative",),
        contrasts_all=("negative",),
    ),
    "sigmoid": _SIGMOID,
    "sigmoid_negatives": _SIGMOID._replace(
        inputs=lambda o, m: (o.scores, o.logit_scale, inputs.logit_bias(o), m, o.negative_scores),
        embeddings=lambda o, m: (
            *inputs.embeddings(o, m, o.negative_text.pooled),
            inputs.logit_bias(o),
        ),
        needs=("negative",),
        contrasts_all=("negative",),
    ),
    # C2LIP
    "sigmoid_phrases": _PHRASES,
    "sigmoid_phrases_local": _PHRASES._replace(inputs=inputs.local(_PHRASES.inputs)),
    # FLAIR
    "sigmoid_positives": _PHRASES._replace(
        dense=sigmoid.positives,
        inputs=lambda o, m: (o.scores, o.positive_scores, o.logit_scale, inputs.logit_bias(o), m),
    ),
    "sigmoid_own_positives": _OWN_POSITIVES,
    "sigmoid_own_positives_local": _OWN_POSITIVES._replace(
        inputs=inputs.local(_OWN_POSITIVES.inputs)
    ),
    # SVLC and FSC-CLIP
    "svlc_negative": _NEGATIVE,
    "hn_focal": _HN_FOCAL,
    "hn_focal_local": _HN_FOCAL._replace(inputs=inputs.local(_HN_FOCAL.inputs)),
    "analogy": _ANALOGY,
    "analogy_symmetric": _ANALOGY._replace(dense=svlc.analogy_symmetric),
    # READ-CLIP
    "paraphrase": _PARAPHRASE._replace(check_options=svlc.check_margin),
    # CE-CLIP
    "cross_modal_rank": Loss(
        ce_clip.cross_modal_rank,
        inputs.cross_modal_rank,
        needs=("negative",),
        check_options=ce_clip.check,
    ),
    "intra_modal": Loss(ce_clip.intra_modal, inputs.intra_modal, needs=("negative",)),
    # DeGLA
    "text_grounded": _NEGATIVE._replace(
        dense=teacher.text_grounded, inputs=inputs.text_grounded, check_options=teacher.check_scale
    ),
    "distill": Loss(teacher.distill, inputs.distill, check_options=teacher.check),
    # SigLIP 2: SILC and TIPS
    "self_distill": Loss(teacher.self_distill, inputs.self_distill, check_options=teacher.check),
    "masked_patches": Loss(
        teacher.masked_patches, inputs.masked_patches, check_options=teacher.check
    ),
    # DAC
    "dac_mil": _ANALOGY._replace(dense=svlc.mil, inputs=inputs.mil),
    "dac_negative_bag": _NEGATIVE_BAG,
    # CS-CLIP
    "units": _NEGATIVE_BAG._replace(
        dense=svlc.units, inputs=inputs.units, contrasts_all=("positive",)
    ),
    # CLIC
    "clic": _PHRASES._replace(dense=svlc.clic, inputs=inputs.clic),
    "clic_negative": _NEGATIVE_BAG._replace(dense=svlc.clic_negative, inputs=inputs.clic_negative),
    "clic_distance": _PARAPHRASE._replace(dense=svlc.clic_distance, inputs=inputs.clic_distance),
    "sparc_local": Loss(sparc.local, inputs.sparc_local),
    "caption": Loss(caption.caption, inputs.caption, check_options=caption.check),
    "itc": Loss(matching.itc, inputs.itc),
    "itm": Loss(matching.itm, inputs.itm),
}

LOSSES = errors.Table(
    "LOSSES",
    _OWN,
    "a function of fields of vlc_jax.types.Outputs, or a vlc_jax.losses.Loss",
    lambda x: isinstance(x, Loss) or (callable(x) and not isinstance(x, type)),
    lambda name, x: x if isinstance(x, Loss) else Loss(**inputs.loss_fields(name, x)),
)
# Losses that keep a teacher between steps, and those of them that keep a centre, too.
TEACHERS = ("distill", "self_distill", "masked_patches")
CENTRED = TEACHERS[1:]
# Names that losses cannot have, of other metrics of a step.
METRICS = ("loss", "logit_scale", "threshold", "grad_norm", "learning_rate", "is_finite", "stop")


def total(
    config_losses: Mapping[str, Mapping[str, Any]],
    outputs: types.Outputs,
    batch: Mapping[str, Array] | None = None,
    mesh: Mesh | None = None,
) -> tuple[Float[Array, ""], dict[str, tuple[Array, Array]]]:
    """The scalar to minimise, and {name: (sum over the counted examples, their number)}.

    config_losses: name of `LOSSES` -> options, of which only the first is required:
      weight: factor of the mean, from 0 on.
      loss: name of `LOSSES`, for an entry with another name: one loss, twice.
      implementation: dense (when absent) | chunked | ring.   chunk: images at a time, for chunked.
      duplicates: keep (when absent) | mask (losses/masks.py).
      negative_range: (first, last + 1 or None) of an example's hard negatives; all when absent.
      rows: (start, step), every step-th row of the batch from `start`; all when absent. With one
        hard image per record, (0, 2) are the records and (1, 2) their hard images.
      missing: mask (when absent) | keep, of missing hard negatives (losses/masks.py).
      The others are the loss's own.
    batch: "mask", False on padding, "negative_mask" and "positive_mask", False on missing hard
      texts; all True where the batch has none. "id", of images, is for duplicates="mask", which
      also reads the texts, and for itc and itm.
      Each loss is a mean over the real examples, or over the real examples that have the hard
      negatives or positives it needs (`Loss.mean_over`).
    mesh: for ring, outside of jax.set_mesh; the batch is sharded over all its axes.

        total({"infonce": {"weight": 1.0}}, outputs)

    Raises UsageError for an unknown loss, implementation or option, for hard texts that a loss
    needs and the batch lacks, and for another number of images than texts.
    """
    compute = functools.partial(_total, config_losses, mesh)
    batch = masks.completed(batch or {}, outputs)
    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        # a mask of pairs has the batch on both axes, which no explicit sharding allows
        compute = jax.sharding.auto_axes(compute, out_sharding=jax.P())
    return compute(outputs, batch)


def _total(
    config_losses: Mapping[str, Mapping[str, Any]],
    mesh: Mesh | None,
    outputs: types.Outputs,
    batch: Mapping[str, Array],
) -> tuple[Float[Array, ""], dict[str, tuple[Array, Array]]]:
    check(config_losses)
    value, parts = jnp.zeros(()), {}
    for name, options in config_losses.items():
        per_example, is_counted = _per_example(name, options, outputs, batch, mesh)
        parts[name] = (jnp.where(is_counted, per_example, 0.0).sum(), is_counted.sum())
        # at least 1: a batch in which no example has such texts costs 0, not 0 / 0
        value += options["weight"] * parts[name][0] / jnp.maximum(parts[name][1], 1)
    return value, parts


def thresholds(
    config_losses: Mapping[str, Mapping[str, Any]],
    outputs: types.Outputs,
    batch: Mapping[str, Array] | None = None,
) -> Float[Array, " negatives"] | None:
    """Thresholds of the loss `cross_modal_rank` for the next step; None without that loss.

    Arguments as of `total`; `outputs.thresholds` are those of this step.
    """
    options = options_of("cross_modal_rank", config_losses)
    if options is None:
        return None
    common, own = _split(options)
    pair_masks = masks.pair_masks(masks.completed(batch or {}, outputs), **common.for_masks)
    given = inputs.cross_modal_rank(outputs, pair_masks)
    return ce_clip.gaps(*given, pair_masks.mask, as_released=own["as_released"])


def centres(
    config_losses: Mapping[str, Mapping[str, Any]],
    outputs: types.Outputs,
    batch: Mapping[str, Array] | None = None,
) -> dict[str, Float[Array, " prototypes"]]:
    """Centres of the losses `self_distill` and `masked_patches` for the next step, by their names.

    Arguments as of `total`; `outputs.centres` are those of this step.
    """
    found = {}
    for name in CENTRED:
        if (options := options_of(name, config_losses)) is not None:
            rows = options.get("rows", (0, 1))
            pair_masks = masks.pair_masks(masks.completed(batch or {}, outputs), rows=rows)
            momentum, given = options["centre_momentum"], inputs.centred(outputs, name)
            found[name] = teacher.next_centre(*given, pair_masks.mask, momentum)
    return found


def teacher_decay(config_losses: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Decay per step of the teacher; None without a loss that keeps one. Raises UsageError for
    losses with different decays."""
    options = {name: options_of(name, config_losses) for name in TEACHERS}
    decays = {name: entry["decay"] for name, entry in options.items() if entry is not None}
    if len({*decays.values()}) > 1:
        raise errors.UsageError(
            f"losses share one teacher, so their decay is the same; got {decays}"
        )
    return next(iter(decays.values()), None)


def options_of(loss: str, config_losses: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Options of the entry with this loss, with the defaults of its own; None without an entry."""
    options = entry_of(loss, config_losses)
    return None if options is None else _option_defaults(LOSSES[loss]) | dict(options)


def entry_of(loss: str, config_losses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Options of the entry of config.losses with a loss that keeps something between steps; None
    without one. Raises UsageError for two, which would share it."""
    entries = [x for name, x in config_losses.items() if x.get("loss", name) == loss]
    if len(entries) > 1:
        raise errors.UsageError(
            f"the loss {loss} keeps one state between steps, so config.losses has one entry of it; "
            f"got {len(entries)}"
        )
    return entries[0] if entries else None


def check(
    config_losses: Mapping[str, Mapping[str, Any]], rows_per_example: int | None = None
) -> None:
    """Raises UsageError for a loss, option or value that `total` refuses, whatever the batch.

    rows_per_example: 1 + its hard images, to compare with `rows`; None: not known.
    """
    for name, options in config_losses.items():
        if not hasattr(options, "keys"):  # a ConfigDict is no Mapping
            raise errors.UsageError(
                f"the loss {name} has a table of options, {{'weight': 1.0}}; got {options!r:.50}"
            )
        loss = row(name, options)
        if name in METRICS:
            raise errors.UsageError(
                f"{name!r} is another metric of a step: give this entry of config.losses a name "
                f"besides {', '.join(METRICS)}"
            )
        defaults = _option_defaults(loss)
        for option in options:
            errors.known(f"option of the loss {name}", option, (*Common._fields, *defaults))
        with errors.usage_errors():
            lookup.check_types("loss", name, loss.dense, options)
        common, own = _split(options)
        if not isinstance(common.weight, int | float) or not 0 <= common.weight < float("inf"):
            raise errors.UsageError(
                f"the loss {name} needs a weight from 0 on; got {dict(options)}"
            )
        kind = errors.known(
            f"implementation of the loss {name}", common.implementation, loss.implementations
        )
        if (common.chunk is None) == (kind == "chunked"):
            raise errors.UsageError(
                "chunk, the images at a time, goes with implementation 'chunked' and with no "
                f"other; the loss {name} has implementation {kind!r} and chunk {common.chunk}"
            )
        masks.check(**common.for_masks, rows_per_example=rows_per_example)
        # distill reads negatives where there are some
        reads_negatives = "negative" in loss.needs or options.get("loss", name) == "distill"
        unread = [key for key in ("negative_range", "missing") if key in options]
        if unread and not reads_negatives:
            raise errors.UsageError(
                f"the loss {name} reads no hard negatives: leave its {unread[0]} out"
            )
        loss.check_options(**defaults | own)
    for keeps in ("cross_modal_rank", *TEACHERS):
        entry_of(keeps, config_losses)
    if not any(options["weight"] for options in config_losses.values()):
        raise errors.UsageError(
            "training needs a loss with a weight above 0, such as config.losses = {'infonce': "
            f"{{'weight': 1.0}}}}; got {dict(config_losses)}"
        )


def row(name: str, options: Mapping[str, Any]) -> Loss:
    """The row of LOSSES of an entry of config.losses. Raises UsageError for an unknown one."""
    return LOSSES[errors.known("loss", options.get("loss", name), LOSSES)]


def _option_defaults(loss: Loss) -> dict[str, Any]:
    """Default values of the loss's own options, the keyword-only parameters of its formula."""
    parameters = inspect.signature(loss.dense).parameters.values()
    return {x.name: x.default for x in parameters if x.kind is x.KEYWORD_ONLY}


def _per_example(
    name: str,
    options: Mapping[str, Any],
    outputs: types.Outputs,
    batch: Mapping[str, Array],
    mesh: Mesh | AbstractMesh | None,
) -> tuple[Float[Array, " batch"], Bool[Array, " batch"]]:
    """The loss of each example, and the mask of the examples that enter its mean."""
    loss, (common, own) = row(name, options), _split(options)
    for text in loss.needs:
        if getattr(outputs, f"{text}_text") is None:
            raise errors.UsageError(
                f"the loss {name} needs hard {text}s and the batch has none: set "
                f"config.input.{text}s.count to at least 1 (in a loop of your own, pass "
                f"{text}_ids to model.apply)"
            )
    if common.implementation == "chunked":
        own["chunk"] = common.chunk
    if common.implementation == "ring":
        context = jax.sharding.get_abstract_mesh()
        # shard_map takes no other mesh inside set_mesh
        mesh = mesh if context.empty else context
        if mesh is None:
            raise errors.UsageError(f"a ring {name} runs over a mesh; use 'dense' or 'chunked'")
        own |= {"mesh": mesh, "axes": types.batch_axes(mesh)}
    pair_masks = masks.pair_masks(batch, **common.for_masks)
    values = loss.values(common.implementation, outputs, pair_masks, **own)
    if values.shape != pair_masks.mask.shape:
        raise errors.UsageError(
            f"the loss {name} gives one value per example, {pair_masks.mask.shape}; got an array "
            f"{values.shape}"
        )
    kinds = loss.needs if loss.mean_over == "examples_with_hard_texts" else ()
    return values, masks.with_texts(pair_masks, kinds)
