"""Setup of a run: everything that `vlc_jax.setup.resolve` makes from a config.

A leaf, so that whoever takes a Setup imports none of what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import jax
    import optax
    from flax import linen as nn
    from jax.sharding import Mesh

    from vlc_jax.input_pipeline.benchmarks import Benchmark
    from vlc_jax.models.parameters import Parameters
    from vlc_jax.setup.data import Tokenizer, TokenizerShape, TrainingData, Transform
    from vlc_jax.setup.init_from import Origin
    from vlc_jax.setup.optimizer import Schedule


class Optimization(NamedTuple):
    """Losses and optimizer of a training step.

    optimizer, schedule: the schedule is inside the optimizer, too; here for the metrics.
    losses: name of `losses.LOSSES` -> weight and options.
    sub_batches: the batch is split into that many contrastive sub-batches without shared negatives.
    rows_per_example: neighbouring rows that stay together then, an image and its hard images.
    microbatch: rows that the towers encode at a time, over all devices; None: all.
    logit_scale_max: clamp of the (linear) logit scale after each update; None: no clamp.
    seed: of dropout.
    """

    optimizer: optax.GradientTransformation
    schedule: Schedule
    losses: Mapping[str, Mapping[str, Any]]
    sub_batches: int
    rows_per_example: int
    microbatch: int | None
    logit_scale_max: float | None
    seed: int


class BenchmarkSetup(NamedTuple):
    """A benchmark of config.evals: its reader, and the options of its protocol.

    reader: a key of evaluators.EVALUATIONS and of vlc_jax.input_pipeline.benchmarks.READERS.
    options: all that config.evals says of it.
    reader_options: those of the reader, with what they leave to config.input (the source).
    """

    reader: str
    read: Callable[[], Benchmark]
    protocol_options: Mapping[str, Any]
    options: Mapping[str, Any]
    reader_options: Mapping[str, Any]


class Interpolation(NamedTuple):
    """WiSE-FT: evaluate (1 - alpha) other + alpha ours for each share; other None: nothing mixed.

    other: weights as config.init_from names them.
    """

    other: str | None
    shares: tuple[float, ...]


class EvaluationSetup(NamedTuple):
    """The benchmarks of a run, and how images and texts reach the model.

    every: steps between evaluations; None: after the last step only.
    seconds: after which an evaluation inside training begins no further benchmark; None: never.
    batch_size: images or texts per forward pass, over all devices.
    cache: folder of pooled features for later runs; None: none are kept.
    examples: cases per benchmark whose images are kept for the report.
    preview: cases per benchmark that are decoded before training.
    question: template of what is asked of every image; "": nothing.
    inputs: "image" and "text" -> what decides the model's input beside transform and tokenizer, for
      what is kept of features.
    """

    benchmarks: Mapping[str, BenchmarkSetup]
    transform: Transform
    question: str
    every: int | None
    seconds: float | None
    batch_size: int
    cache: str | None
    examples: int
    preview: int
    inputs: Mapping[str, Mapping[str, Any]]
    interpolation: Interpolation


class TrainingSetup(NamedTuple):
    """The training half of a run.

    checkpoint: every, keep_last and keep_every (steps), as config.checkpoint has them.
    log_every: steps between rows of metrics.jsonl.
    flops_per_example: of one row of the batch, forward and backward, with texts of full length.
    flops_of_length: the same for each length that texts may have (config.text.lengths).
    watchdog: seconds, and mean steps, without a finished step that are a hang; 0 seconds: never.
    """

    data: TrainingData
    steps: int
    log_every: int
    checkpoint: Mapping[str, int | None]
    flops_per_example: int
    flops_of_length: Mapping[int, int]
    watchdog: tuple[float, float]

    @property
    def batch_size(self) -> int:
        """Rows of the global batch."""
        return self.data.batch_size


class Setup(NamedTuple):
    """Everything a run needs, made from its config.

    config: the whole of it as a plain dict, for config.json and for provenance only; `auto` of
      model.dtype is resolved.
    tokenizer_path: its files, which an export copies; None for one without.
    normalise: uint8 pixels -> float32, on the devices.
    training: None where a run is not to be trained (--mode eval, tools that read weights).
    tokenizer, origin, evaluation: nothing but shapes, None and None in --mode plan.
    """

    config: Mapping[str, Any]
    mesh: Mesh
    tokenizer: Tokenizer | TokenizerShape
    tokenizer_path: str | None
    model: nn.Module
    normalise: Callable[[jax.Array], jax.Array]
    parameters: Parameters
    optimization: Optimization
    origin: Origin
    evaluation: EvaluationSetup
    training: TrainingSetup | None
