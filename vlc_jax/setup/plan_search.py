"""Setups that `--mode plan` compiles: the config's, and variations by --plan_search."""

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
from vlc_jax.models import layers
from vlc_jax.models.parameters import TOWERS, Parameters
from vlc_jax.models.tower import image_shape
from vlc_jax.setup import data, duration, resolve, validate, weights_config
from vlc_jax.types.setup import Setup


class Planned(NamedTuple):
    """A training step to compile but not to run, or with `is_scored` the scoring of a batch.

    flags: settings that differ from the config's: field -> value.
    batch: shapes of the global batch.   batch_size: rows of it.
    steps: of the whole run; None if it depends on the number of records.
    """

    flags: Mapping[str, Any]
    setup: Setup
    batch: Mapping[str, jax.ShapeDtypeStruct]
    batch_size: int
    steps: int | None
    is_scored: bool = False


# Setting of --plan_search -> (config field, values to try).
Values = Callable[[ConfigDict, Sequence[Any]], Sequence[Any]]
SEARCHED: dict[str, tuple[str, Values]] = {
    "remat": (
        "model.remat",
        lambda config, devices: [
            name
            for name in layers.REMAT
            if name != "offload" or runtime.has_pinned_host(devices[0])
        ],
    ),
    "fsdp": ("mesh.fsdp", lambda config, devices: [n for n in (1, 8, 64) if len(devices) % n == 0]),
    "implementation": (
        "losses.{}.implementation",
        lambda config, devices: ("dense", "ring") if len(devices) > 1 else ("dense", "chunked"),
    ),
}
# Settings of --plan_search whose largest fitting value is searched.
LARGEST = ("microbatch", "batch_size")
SCORED = ("image", "question", "text", "text_marks")  # keys of a batch that scoring reads
FEATURE_DTYPE = "bfloat16"  # of stored features, the default of cache_features
END = 64  # upper bound of the searched batch size, as a multiple of the config's
CLOSE = 1.1  # the search stops at this ratio of the smallest failing and the largest fitting batch
# Yields steps; each is answered by whether it fits.
Steps = Generator[Planned, bool | None, None]
Sizes = Generator[Planned, bool | None, tuple[Mapping[str, Any], bool]]


def topology_plans(
    config: ConfigDict, names: Sequence[str], is_scored: bool = False
) -> Iterator[tuple[str, Planned | UsageError]]:
    """Yields (topology, step of the config on it), or the UsageError that rules the step out."""
    validate.check(config, "plan")
    for name in names:
        devices = runtime.topology_devices(name)  # outside the try: an unknown name ends the plan
        try:
            yield name, _planned(config, {}, devices, is_scored)
        except UsageError as error:  # such as a batch that the devices do not divide
            yield name, error


def planned(
    config: ConfigDict,
    topology: str | None = None,
    search: Sequence[str] = (),
    is_scored: bool = False,
) -> Steps:
    """Yields the config's step on a TPU slice, or on this machine, then the steps of a search.

    The search takes all combinations of SEARCHED, and for each the largest micro-batch that fits,
    then the largest batch. is_scored: as in `Planned`.
    Raises UsageError for a config that cannot be trained; such settings of a search are skipped.
    """
    validate.check(config, "plan")
    devices = runtime.all_devices() if topology is None else runtime.topology_devices(topology)
    for name in search:
        known("setting of --plan_search", name, (*SEARCHED, *LARGEST))
    if search and is_scored:
        raise UsageError("--plan_search is for training: --plan_step=score has nothing to search")
    config_fits = yield _planned(config, {}, devices, is_scored)
    options = [
        [(_field(config, name), value) for value in SEARCHED[name][1](config, devices)]
        for name in search
        if name in SEARCHED
    ]
    for settings in itertools.product(*options):
        flags = {name: value for name, value in settings if _value(config, name) != value}
        fits = config_fits if not flags else (yield from _try(config, flags, devices))
        if fits is None:  # cannot be trained
            continue
        if "microbatch" in search:
            flags, fits = yield from _largest_microbatch(config, flags, devices, fits)
        if "batch_size" in search:
            yield from _largest_batch(config, flags, devices, fits)


def _try(
    config: ConfigDict, flags: Mapping[str, Any], devices: Sequence[Any]
) -> Generator[Planned, bool | None, bool | None]:
    """Yields the step with these settings; returns whether it fits, None if it is invalid."""
    changed = config.copy_and_resolve_references()
    with changed.unlocked():
        changed.update_from_flattened_dict(flags)
    try:
        step = _planned(changed.lock(), flags, devices)
    except UsageError:  # such as a micro-batch that does not divide this batch, or fsdp with ring
        return None
    return bool((yield step))


def _largest_microbatch(
    config: ConfigDict, flags: Mapping[str, Any], devices: Sequence[Any], fits: bool
) -> Sizes:
    """Bisects the micro-batches that divide the rows; returns the settings of the largest fit."""
    rows, count = config.batch_size // config.sub_batches, len(devices)
    if config.microbatch is None and fits:  # all rows at once
        return flags, fits
    sizes: list[int | None] = [n for n in range(count, rows, count) if rows % n == 0]
    sizes.append(None)
    start = sizes.index(config.microbatch) if config.microbatch in sizes else len(sizes) - 1
    low, high = (start, len(sizes)) if fits else (-1, start)
    while high - low > 1:
        middle = (low + high) // 2
        changed = {**flags, "microbatch": sizes[middle]}
        low, high = (middle, high) if (yield from _try(config, changed, devices)) else (low, middle)
    if low in (-1, start):
        return flags, fits
    return {**flags, "microbatch": sizes[low]}, True


def _largest_batch(
    config: ConfigDict, flags: Mapping[str, Any], devices: Sequence[Any], fits: bool
) -> Sizes:
    """Doubles or halves the batch, then bisects; returns the settings of the largest fit."""
    microbatch = flags.get("microbatch", config.microbatch) or 1
    unit = math.lcm(len(devices), microbatch, 1 + config.input.hard_images) * config.sub_batches
    size = config.batch_size
    low, high = (size, END * size + unit) if fits else (0, size)
    is_bounded = not fits  # whether `high` is a size that does not fit
    while high - low > unit and high > CLOSE * low:
        if not is_bounded:
            size = min(2 * low, END * config.batch_size) // unit * unit
        elif low == 0:
            size = high // 2 // unit * unit or unit
        else:
            size = (low + high) // 2 // unit * unit
        if size in (low, high):
            break
        if (yield from _try(config, {**flags, "batch_size": size}, devices)):
            low = size
        else:
            high, is_bounded = size, True
    return ({**flags, "batch_size": low} if low else flags), bool(low)


def _planned(
    config: ConfigDict, flags: Mapping[str, Any], devices: Sequence[Any], is_scored: bool = False
) -> Planned:
    config = weights_config.completed(config)
    setup = resolve(config, "plan", devices)
    batch, rows = batch_shapes(config, setup.mesh, setup.parameters), config.batch_size
    if is_scored:
        batch, rows = _scored_rows(batch, config.eval.batch_size), config.eval.batch_size
    return Planned(
        flags=flags,
        setup=setup,
        batch=batch,
        batch_size=rows,
        # the length of an epoch is unknown: a plan does not open the source
        steps=duration.total_steps(config, 0) if config.epochs is None else None,
        is_scored=is_scored,
    )


def _scored_rows(
    batch: Mapping[str, jax.ShapeDtypeStruct], rows: int
) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        key: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=x.sharding)
        for key, x in batch.items()
        if key in SCORED
    }


def batch_shapes(
    config: ConfigDict, mesh: Mesh, parameters: Parameters
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes, dtypes and shardings of a global training batch of `BatchIterator`.

    Stored features have the shapes of the frozen towers' features, in FEATURE_DTYPE.
    """
    rows, tokenizer = config.batch_size, data.tokenizer_shape(config)
    negatives, positives = config.input.negatives, config.input.positives
    texts = {"": None, "positive_": positives.count}
    texts["negative_"] = negatives.count + negatives.of_positives * positives.count
    shapes = {
        "image": ((rows, *image_shape(parameters.model.image)), "uint8"),
        "id": ((rows, 2), "uint32"),
    }
    shapes |= {"mask": ((rows,), "bool"), "stop": ((rows,), "bool")}
    is_vector = tokenizer.width is not None
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
    if config.input.source == "llava" and config.input.source_options.get("text_only"):
        shapes["has_image"] = ((rows,), "bool")
    if views := data.views(config, parameters.model):
        shapes |= {key: ((rows, *shape), dtype) for key, (shape, dtype) in views.shapes.items()}
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
    shape = (config.batch_size, *image_shape(parameters.model.image))
    batch = {key: jax.ShapeDtypeStruct(*shape) for key, shape in texts.items() if "text" in key}
    batch["image"] = jax.ShapeDtypeStruct(shape, "float32")
    towers = partial(parameters.model.apply, method="tower_features")
    features = jax.eval_shape(towers, {"params": parameters.shapes}, batch)
    stored = [name for name in TOWERS if name in config.frozen]
    return {
        key: (x.shape, FEATURE_DTYPE)
        for key, x in features.items()
        if any(name in key for name in stored)
    }


def _field(config: ConfigDict, name: str) -> str:
    field = SEARCHED[name][0]
    return field.format(next(iter(config.losses))) if "{}" in field else field


def _value(config: ConfigDict, name: str) -> Any:
    for key in name.split("."):
        config = config[key]
    return config
