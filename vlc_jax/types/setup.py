"""Setup of a run: everything that `vlc_jax.setup.resolve` builds from a config.

Types are imported for type checking only, so that a user of Setup does not import its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    import jax
    import optax
    from flax import linen as nn
    from jax.sharding import Mesh

    from vlc_jax.input_pipeline.benchmarks import Benchmark
    from vlc_jax.models.parameters import Parameters
    from vlc_jax.setup.data import Tokenizer, TrainingData, Transform
    from vlc_jax.setup.init_from import Origin
    from vlc_jax.setup.model import Schedule


class Optimization(NamedTuple):
    """Losses and optimizer of a training step.

    schedule: also inside the optimizer; kept for the metrics.
    losses: name of `losses.LOSSES` -> weight and options.
    sub_batches: number of contrastive sub-batches, which share no negatives.
    rows_per_example: neighbouring rows that stay in one sub-batch, an image and its hard images.
    microbatch: rows that the towers encode at a time, over all devices; None: all.
    logit_scale_max: clamp of the (linear) logit scale after each update; None: no clamp.
    seed: of dropout.
    spike_guard: (factor, steps): a step is skipped if its gradient norm is above `factor` times the
      running median; after `steps` of them in a row the run ends. (): no guard.
    teacher_decay: decay per step of the teacher, a moving average of the trained parameters, of the
      losses `distill`, `self_distill` and `masked_patches`; None: no teacher.
    num_thresholds: of the loss `cross_modal_rank`, one per hard negative of an example; 0: without
      that loss.
    centres: name of a loss with a centre -> its prototypes; {}: without such a loss.
    """

    optimizer: optax.GradientTransformation
    schedule: Schedule
    losses: Mapping[str, Mapping[str, Any]]
    sub_batches: int
    rows_per_example: int
    microbatch: int | None
    logit_scale_max: float | None
    seed: int
    spike_guard: tuple[float, int] | tuple[()] = ()
    teacher_decay: float | None = None
    num_thresholds: int = 0
    centres: Mapping[str, int] = {}


class BenchmarkSetup(NamedTuple):
    """A benchmark of config.evals: its reader, and the options of its protocol.

    reader: a key of READERS in input_pipeline/benchmarks.
    options: all its options in config.evals.
    reader_options: options of the reader, completed from config.input (the source).
    """

    reader: str
    read: Callable[[], Benchmark]
    protocol_options: Mapping[str, Any]
    options: Mapping[str, Any]
    reader_options: Mapping[str, Any]


class Interpolation(NamedTuple):
    """WiSE-FT: evaluates (1 - alpha) * other + alpha * ours for each share alpha.

    other: path of weights, as in config.init_from; None: no interpolation.
    """

    other: str | None
    shares: tuple[float, ...]


class EvaluationSetup(NamedTuple):
    """The benchmarks of a run, and the preprocessing of their images and texts.

    every: steps between evaluations; None: after the last step only.
    seconds: time budget of an intermediate evaluation, after which no further benchmark starts;
      None: no limit.
    batch_size: images or texts per forward pass, over all devices.
    cache: folder of pooled features for later runs; None: in the workdir, until an evaluation is
      finished; "": no files.
    examples: cases per benchmark whose images are saved for the report.
    preview: cases per benchmark that are decoded before training.
    question: template of the question about every image; "": no question.
    inputs: "image" and "text" -> config values besides transform and tokenizer that change the
      model's input; part of the feature cache's key.
    training_images: the image files of the training table (`setup.data.training_images`).
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
    training_images: Callable[[], Iterable[Path]] = tuple


class TrainingSetup(NamedTuple):
    """The training half of a run.

    checkpoint: every, keep_last and keep_every (steps) of config.checkpoint.
    log_every: steps between rows of metrics.jsonl.
    watchdog: (seconds, multiple of the mean step time) without a finished step that count as a
      hang; 0 seconds: no watchdog.
    """

    data: TrainingData
    steps: int
    log_every: int
    checkpoint: Mapping[str, int | None]
    watchdog: tuple[float, float]

    @property
    def batch_size(self) -> int:
        """Rows of the global batch."""
        return self.data.batch_size


class Setup(NamedTuple):
    """Everything a run needs, built from its config.

    config: the whole config as a plain dict, for config.json and provenance only; model.dtype=auto
      is resolved.
    tokenizer_path: the tokenizer's files, which an export copies; None if it has none.
    normalise: uint8 pixels -> float32, on the devices.
    training: None outside training (--mode eval, tools that read weights).
    tokenizer, origin, evaluation: in --mode plan a TokenizerShape, None and None; all None for the
      train step of a ready-made model (`setup.step_setup`).
    """

    config: Mapping[str, Any]
    mesh: Mesh
    model: nn.Module
    normalise: Callable[[jax.Array], jax.Array]
    parameters: Parameters
    optimization: Optimization
    # None where nobody reads them (see above): readers need no check
    tokenizer: Tokenizer = None  # type: ignore
    tokenizer_path: str | None = None
    origin: Origin = None  # type: ignore
    evaluation: EvaluationSetup = None  # type: ignore
    training: TrainingSetup | None = None
