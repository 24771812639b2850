"""Features of frozen towers, computed once: a head is then trained with no tower in memory.

  vlc-jax cache_features --config configs/dcsm.py \\
    --config.init_from=runs/clip --out features/dcsm
  python -m vlc_jax.main --config configs/dcsm.py --config.init_from=runs/clip \\
    --config.input.source=features --config.input.source_options="{'path': 'features/dcsm'}" \\
    --workdir runs/dcsm

Reads the training records of the config's source with the evaluation transform (no random crop),
and stores the features of the frozen towers that the config's head requests: of the image, and of
every text in the record. Texts generated at load time have no features: prepare them with the data.
With config.frozen=("image",), only images have features; the text tower is then trained, or
replaced by vectors. The same command continues an interrupted one. --runner NAME -- FLAGS computes
the files by workers of Apache Beam, as `vlc-jax prepare` does, one process per accelerator.
Exit code 0: done; 2: wrong request; 3: bad data; 130: interrupted, complete shards stay.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from vlc_jax.errors import UsageError, known, usage_errors
from vlc_jax.input_pipeline.commands import parts, shard_writer
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Source, has_text_only
from vlc_jax.setup import command_line as config_flag
from vlc_jax.setup import init_from, resolve
from vlc_jax.tools import command
from vlc_jax.tools.features_of import FeaturesOf
from vlc_jax.types.setup import Setup

OUT = flags.DEFINE_string("out", None, "folder of the features", required=True)
DTYPE = flags.DEFINE_string(
    "dtype", "bfloat16", f"of the numbers: {', '.join(stored_features.DTYPES)}"
)
RUNNER = flags.DEFINE_string("runner", None, "of Apache Beam; its flags follow --")
SHARD_SIZE = flags.DEFINE_integer("shard_size", 4096, "records per file")


def hard_images(source: Source) -> list[str]:
    """Ids of hard images that are not records of the source themselves."""
    known, named = set(), dict[str, None]()
    for index in range(len(source)):
        # a bad record is reported when its features are computed
        with contextlib.suppress(DataError):
            record = source[index]
            known.add(record.id)
            named |= dict.fromkeys(record.hard_images)
    return [name for name in named if name not in known]


def store(
    setup: Setup, out: Path, dtype: str, shard_size: int, engine: parts.Engine | None = None
) -> dict[str, Any]:
    """Writes or continues the folder of features `out`; returns its manifest. engine: of --runner.

    Raises UsageError if the towers of the config are not frozen, or records have no image.
    """
    known("dtype of features", dtype, stored_features.DTYPES)
    data = setup.training.data
    if has_text_only(data.source):
        raise UsageError(
            "records without an image have no features: set "
            "config.input.source_options.text_only=False, or take shards without --text-only"
        )
    if "image" not in setup.parameters.frozen:
        raise UsageError(
            "features need frozen towers: config.frozen must contain 'image', and 'text' if texts "
            f"have features, too; got {setup.parameters.frozen}"
        )
    if jax.process_count() > 1:
        raise UsageError("features are computed by a single process on all its devices")
    frozen, fingerprint = init_from.load_frozen(setup)
    names = hard_images(data.source) if data.hard_images else []
    with usage_errors():
        return shard_writer.write(
            FeaturesOf(setup, frozen, fingerprint, dtype, names),
            out,
            title="features",
            max_bad_share=data.max_bad_share,
            engine=engine,
            split="train",
            features={**data.feature_cache_key, "weights": fingerprint["weights"]},
            dtype=dtype,
            size=setup.evaluation.transform.size,
            format="features",
            shard_size=shard_size,
        )


def sentence(runner_flags: Sequence[str]) -> str:
    """Runs or resumes the command; returns the summary line."""
    engine = command.engine(RUNNER.value, [OUT.value], runner_flags)
    setup = resolve(config_flag.config())
    manifest = store(setup, Path(OUT.value), DTYPE.value, SHARD_SIZE.value, engine)
    size = sum(shard["bytes"] for shard in manifest["shards"])
    return f"{OUT.value}: features of {manifest['count']:,} records, {size / 2**30:.2f} GiB"


if __name__ == "__main__":
    sys.argv[1:], flags_of_runner = parts.split(sys.argv[1:])
    command.start(lambda: sentence(flags_of_runner))
