"""Setups that `--mode plan` compiles: that of a config, and of settings near it."""

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from vlc_jax.devices import runtime, sharding
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.models import layers
from vlc_jax.models.parameters import TOWERS, Parameters
from vlc_jax.setup import data, duration, model, resolve, validate
from vlc_jax.types.setup import Setup


class Planned(NamedTuple):
    """A training step that is not run, or with `is_scored` the scores of a batch of pairs.

    flags: settings that differ from the config's, as the command line has them.
    batch: shapes of the global batch.   batch_size: rows of it.
    flops: analytic ones of a step, forward and backward, without what is computed twice; 0 of
      scores, whose program says them.
    steps: of the whole run; None where that depends on the number of records.
    """

    flags: Mapping[str, Any]
    setup: Setup
    batch: Mapping[str, jax.ShapeDtypeStruct]
    batch_size: int
    flops: int
    steps: int | None
    is_scored: bool = False


# What a setting of config.plan.search is in the config, and the values that are tried.
Values = Callable[[ConfigDict, Sequence[Any]], Sequence[Any]]
SEARCHED: dict[str, tuple[str, Values]] = {
    "remat": (
        "model.remat",
        lambda config, found: [
            name for name in layers.REMAT if name != "offload" or runtime.has_pinned_host(found[0])
        ],
    ),
    "fsdp": (
        "mesh.fsdp",
        lambda config, found: [n for n in (1, 8, 64) if len(found) % n == 0],
    ),
    "implementation": (
        "losses.{}.implementation",
        lambda config, found: ("dense", "ring") if len(found) > 1 else ("dense", "chunked"),
    ),
}
# Settings of config.plan.search of which the largest that fits is looked for.
LARGEST = ("microbatch", "batch_size")
SCORED = ("image", "question", "text", "text_marks")  # what scores read of a batch
FEATURE_DTYPE = "bfloat16"  # of stored features where no file says, the default of cache_features
END = 64  # times the batch of the config, at which that search ends where nothing limits it
CLOSE = 1.1  # what fits and what does not are no further apart
# Gives steps, and takes whether the last one fits.
Steps = Generator[Planned, bool | None, None]
Sizes = Generator[Planned, bool | None, tuple[Mapping[str, Any], bool]]


def topologies(config: ConfigDict) -> list[str]:
    """The slices of config.plan.topology. Raises UsageError for several of them and a search."""
    names = (config.plan.topology or "").split(",")
    if len(names) > 1 and config.plan.search:
        raise UsageError("config.plan.search is for one slice: config.plan.topology names several")
    return names


def of_topologies(config: ConfigDict) -> Iterator[tuple[str, Planned | UsageError]]:
    """Each slice of config.plan.topology with the config's step on it, or why there is none."""
    validate.check(config, "plan")
    for name in topologies(config):
        found = runtime.of_topology(name)  # one that there is not ends the plan
        try:
            yield name, _planned(config, {}, found)
        except UsageError as error:  # a batch that the devices do not divide
            yield name, error


def planned(config: ConfigDict) -> Steps:
    """The step of the config first, then those of config.plan.search: all combinations of
    SEARCHED, and for each the largest micro-batch, then the largest batch, that fits.

    Raises UsageError for a config that could not be trained; settings of a search that could not
    are left out.
    """
    validate.check(config, "plan")
    topology = config.plan.topology
    found = runtime.there() if topology is None else runtime.of_topology(topology)
    # the command line gives "remat,microbatch" as one string
    names = [name for each in config.plan.search for name in each.split(",")]
    for name in names:
        known("setting of config.plan.search", name, (*SEARCHED, *LARGEST))
    if names and _is_scored(config):
        raise UsageError("config.plan.search is for training: config.plan.step=score has nothing")
    config_fits = yield _planned(config, {}, found)
    options = [
        [(_field(config, name), value) for value in SEARCHED[name][1](config, found)]
        for name in names
        if name in SEARCHED
    ]
    for settings in itertools.product(*options):
        flags = {name: value for name, value in settings if _value(config, name) != value}
        fits = config_fits if not flags else (yield from _try(config, flags, found))
        if fits is None:  # cannot be trained
            continue
        if "microbatch" in names:
            flags, fits = yield from _largest_microbatch(config, flags, found, fits)
        if "batch_size" in names:
            yield from _largest_batch(config, flags, found, fits)


def _try(
    config: ConfigDict, flags: Mapping[str, Any], found: Sequence[Any]
) -> Generator[Planned, bool | None, bool | None]:
    """Gives the step with these settings; whether it fits, None for one that cannot be trained."""
    changed = config.copy_and_resolve_references()
    with changed.unlocked():
        changed.update_from_flattened_dict(flags)
    try:
        step = _planned(changed.lock(), flags, found)
    except UsageError:  # a micro-batch that does not divide this batch, fsdp beside ring
        return None
    return bool((yield step))


def _largest_microbatch(
    config: ConfigDict, flags: Mapping[str, Any], found: Sequence[Any], fits: bool
) -> Sizes:
    """Bisects the micro-batches that divide the rows; the settings with the largest that fits."""
    rows, count = config.batch_size // config.sub_batches, len(found)
    if config.microbatch is None and fits:  # all rows at once
        return flags, fits
    sizes: list[int | None] = [n for n in range(count, rows, count) if rows % n == 0]
    sizes.append(None)
    start = sizes.index(config.microbatch) if config.microbatch in sizes else len(sizes) - 1
    low, high = (start, len(sizes)) if fits else (-1, start)
    while high - low > 1:
        middle = (low + high) // 2
        changed = {**flags, "microbatch": sizes[middle]}
        low, high = (middle, high) if (yield from _try(config, changed, found)) else (low, middle)
    if low in (-1, start):
        return flags, fits
    return {**flags, "microbatch": sizes[low]}, True


def _largest_batch(
    config: ConfigDict, flags: Mapping[str, Any], found: Sequence[Any], fits: bool
) -> Sizes:
    """Doubles or halves the batch, then bisects; the settings with the largest that fits."""
    microbatch = flags.get("microbatch", config.microbatch) or 1
    unit = math.lcm(len(found), microbatch, 1 + config.input.hard_images) * config.sub_batches
    size = config.batch_size
    low, high = (size, END * size + unit) if fits else (0, size)
    is_bounded = not fits  # whether something was seen not to fit
    while high - low > unit and high > CLOSE * low:
        if not is_bounded:
            size = min(2 * low, END * config.batch_size) // unit * unit
        elif low == 0:
            size = high // 2 // unit * unit or unit
        else:
            size = (low + high) // 2 // unit * unit
        if size in (low, high):
            break
        if (yield from _try(config, {**flags, "batch_size": size}, found)):
            low = size
        else:
            high, is_bounded = size, True
    return ({**flags, "batch_size": low} if low else flags), bool(low)


def _planned(config: ConfigDict, flags: Mapping[str, Any], found: Sequence[Any]) -> Planned:
    setup = resolve(config, "plan", found)
    batch, rows = batch_shapes(config, setup.mesh, setup.parameters), config.batch_size
    if is_scored := _is_scored(config):
        batch, rows = _scored_rows(batch, config.eval.batch_size), config.eval.batch_size
        flops = 0
    else:
        flops = model.flops_per_example(config, setup.parameters) * rows
    return Planned(
        flags=flags,
        setup=setup,
        batch=batch,
        batch_size=rows,
        flops=flops,
        # epochs are of a source, which is not opened
        steps=duration.total_steps(config, 0) if config.epochs is None else None,
        is_scored=is_scored,
    )


def _is_scored(config: ConfigDict) -> bool:
    known("config.plan.step", config.plan.step, ("train", "score"))
    return config.plan.step == "score"


def _scored_rows(
    batch: Mapping[str, jax.ShapeDtypeStruct], rows: int
) -> dict[str, jax.ShapeDtypeStruct]:
    kept = {key: x for key, x in batch.items() if key in SCORED}
    return {
        key: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=x.sharding)
        for key, x in kept.items()
    }


def batch_shapes(
    config: ConfigDict, mesh: Mesh, parameters: Parameters
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and shardings of a global training batch as `BatchIterator` gives it.

    Stored features are those that the frozen towers of the model would give, in FEATURE_DTYPE.
    """
    rows, size, tokenizer = config.batch_size, config.input.image_size, data.tokenizer_shape(config)
    negatives, positives = config.input.negatives, config.input.positives
    texts = {"": None, "positive_": positives.count}
    texts["negative_"] = negatives.count + negatives.of_positives * positives.count
    shapes = {"image": ((rows, size, size, 3), "uint8"), "id": ((rows, 2), "uint32")}
    shapes |= {"mask": ((rows,), "bool"), "stop": ((rows,), "bool")}
    is_vector = isinstance(tokenizer, TextVectors)
    for kind, count in texts.items():
        if count == 0:
            continue
        length = tokenizer.width if is_vector else tokenizer.context_length
        shape = (rows, length) if count is None else (rows, count, length)
        shapes[f"{kind}text"] = (shape, "float32" if is_vector else "int32")
        if not is_vector and tokenizer.has_marks:
            shapes[f"{kind}text_marks"] = (shape, "int8")
        if count is not None:
            shapes[f"{kind}mask"] = ((rows, count), "bool")
    if config.input.question:
        shapes["question"] = ((rows, tokenizer.context_length), "int32")
    if config.input.source == "llava" and config.input.llava.text_only:
        shapes["has_image"] = ((rows,), "bool")
    if config.input.source == "features":
        del shapes["image"]
        shapes |= _feature_shapes(config, parameters, texts=shapes)
    where = sharding.batch_sharding(mesh)
    return {
        key: jax.ShapeDtypeStruct(shape, dtype, sharding=where)
        for key, (shape, dtype) in shapes.items()
    }


def _feature_shapes(
    config: ConfigDict, parameters: Parameters, texts: Mapping[str, Any]
) -> dict[str, tuple[tuple[int, ...], str]]:
    size = config.input.image_size
    batch = {key: jax.ShapeDtypeStruct(*shape) for key, shape in texts.items() if "text" in key}
    batch["image"] = jax.ShapeDtypeStruct((config.batch_size, size, size, 3), "float32")
    towers = partial(parameters.model.apply, method="tower_features")
    found = jax.eval_shape(towers, {"params": parameters.shapes}, batch)
    stored = [name for name in TOWERS if name in config.frozen]
    return {
        key: (x.shape, FEATURE_DTYPE) for key, x in found.items() if any(n in key for n in stored)
    }


def _field(config: ConfigDict, name: str) -> str:
    field = SEARCHED[name][0]
    return field.format(next(iter(config.losses))) if "{}" in field else field


def _value(config: ConfigDict, name: str) -> Any:
    for key in name.split("."):
        config = config[key]
    return config
