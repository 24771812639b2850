"""What `--mode plan` compiles: the step of a config, and of settings near it."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from vlc_jax import devices
from vlc_jax.errors import UsageError, known
from vlc_jax.models import layers
from vlc_jax.setup import Setup, data, duration, model, resolve, validate


class Planned(NamedTuple):
    """A training step that is not run.

    flags: settings that differ from the config's, as the command line has them.
    batch: shapes of the global batch.   batch_size: rows of it.
    flops: analytic ones of a step, forward and backward, without what is computed twice.
    steps: of the whole run; None where that depends on the number of records.
    """

    flags: Mapping[str, Any]
    setup: Setup
    batch: Mapping[str, jax.ShapeDtypeStruct]
    batch_size: int
    flops: int
    steps: int | None


# What a setting of config.plan.search is in the config, and the values that are tried.
Values = Callable[[ConfigDict, int], Sequence[Any]]
SEARCHED: dict[str, tuple[str, Values]] = {
    "remat": ("model.remat", lambda config, count: layers.REMAT),
    "microbatch": (
        "microbatch",
        lambda config, count: [
            None,
            *(
                rows
                for share in (4, 16)
                if (rows := config.batch_size // config.sub_batches // share) >= count
                and rows % count == 0
            ),
        ],
    ),
    "fsdp": ("mesh.fsdp", lambda config, count: [n for n in (1, 8, 64) if count % n == 0]),
    "implementation": (
        "losses.{}.implementation",
        lambda config, count: ("dense", "ring") if count > 1 else ("dense", "chunked"),
    ),
    "batch_size": (
        "batch_size",
        lambda config, count: [
            n for share in (4, 2, 1) if (n := config.batch_size // share) % count == 0
        ],
    ),
}


def hardware(config: ConfigDict) -> list[Any]:
    """The devices to compile for. Raises UsageError for a topology that there is not."""
    topology = config.plan.topology
    return devices.there() if topology is None else devices.of_topology(topology)


def planned(config: ConfigDict) -> Iterator[Planned]:
    """The step of the config first, then those of config.plan.search.

    Raises UsageError for a config that could not be trained; settings of a search that could not
    are left out.
    """
    validate.check(config, "plan")
    found = hardware(config)
    # the command line gives "remat,microbatch" as one string
    names = [name for each in config.plan.search for name in each.split(",")]
    for name in names:
        known("setting of config.plan.search", name, SEARCHED)
    yield _planned(config, {}, found)
    options = [
        [(_field(config, name), value) for value in SEARCHED[name][1](config, len(found))]
        for name in names
    ]
    for settings in itertools.product(*options):
        changed = config.copy_and_resolve_references()
        flags = {name: value for name, value in settings if _value(config, name) != value}
        if not flags:  # the config itself
            continue
        with changed.unlocked():
            changed.update_from_flattened_dict(flags)
        try:
            yield _planned(changed.lock(), flags, found)
        except UsageError:  # a micro-batch that does not divide this batch, fsdp beside ring
            continue


def _planned(config: ConfigDict, flags: Mapping[str, Any], found: Sequence[Any]) -> Planned:
    setup = resolve(config, "plan", found)
    per_example = model.flops_per_example(config, setup.parameters)
    return Planned(
        flags=flags,
        setup=setup,
        batch=data.batch_shapes(config, setup.mesh),
        batch_size=config.batch_size,
        flops=per_example * config.batch_size,
        # epochs are of a source, which is not opened
        steps=duration.total_steps(config, 0) if config.epochs is None else None,
    )


def _field(config: ConfigDict, name: str) -> str:
    field = SEARCHED[name][0]
    return field.format(next(iter(config.losses))) if "{}" in field else field


def _value(config: ConfigDict, name: str) -> Any:
    for key in name.split("."):
        config = config[key]
    return config
