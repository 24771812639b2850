"""A config becomes the things of a run, once: `resolve(config) -> Setup`.

With main and run/workdir this folder is the only one that sees a ConfigDict; everything else gets
the ready things of a Setup, or keyword arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import Mesh
from ml_collections import ConfigDict

from vlc_jax import devices, sharding
from vlc_jax.parameters import Parameters
from vlc_jax.setup import (
    addresses,
    data,
    duration,
    init_from,
    validate,
    weights_compatibility,
    weights_config,
)
from vlc_jax.setup import model as model_setup
from vlc_jax.setup.data import BenchmarkSetup, TrainingData
from vlc_jax.setup.model import Optimization
from vlc_jax.state import State

Mode = Literal["train", "eval", "weights", "plan"]


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
    transform: data.Transform
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
    tokenizer: data.Tokenizer | data.TokenizerShape
    tokenizer_path: str | None
    model: nn.Module
    normalise: Callable[[jax.Array], jax.Array]
    parameters: Parameters
    optimization: Optimization
    origin: init_from.Origin
    evaluation: EvaluationSetup
    training: TrainingSetup | None

    def init_state(self, frozen: Any) -> State:
        """The state before the first step; an adapter is made for the `frozen` parameters."""
        params = self.parameters.init_trained(frozen)
        return State(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=self.optimization.optimizer.init(params),
            batch_stats=self.parameters.init_batch_stats(),
        )

    def state_shapes(self, frozen: Any) -> State:
        """Shapes, dtypes and shardings of `init_state`; nothing is allocated."""
        return sharding.place_shapes(self.mesh, jax.eval_shape(self.init_state, frozen))

    def starting_from(self, name: str, path: str) -> "Setup":
        """The same run with config.init_from set to `name`, of which `path` is the local folder."""
        origin = self.origin._replace(path=path, pretraining=None)
        return self._replace(config={**self.config, "init_from": name}, origin=origin)


def fetch_inputs(config: ConfigDict, mode: Mode) -> None:
    """Copies what the config names in object stores to this host, for `resolve` to find there.

    Raises UsageError for a config that would be refused anyway, before anything is copied.
    """
    validate.check(config, mode)
    addresses.localised(config)


def resolve(
    config: ConfigDict, mode: Mode = "train", hardware: Sequence[Any] | None = None
) -> Setup:
    """Makes everything a run needs; no parameters are computed or loaded, no benchmark is read.

    mode: "train" opens the training records, "eval" needs none. "weights", for the parameters of a
    workdir, takes the devices there are, whatever that run had, every process holding all of them.
    "plan", for shapes alone, reads no file; `hardware` are devices that need not be there.
    Raises UsageError when parts of the config do not fit together, DataError for training records
    that cannot be opened.
    """
    config = weights_config.completed(config)
    validate.check(config, mode)
    if mode == "weights":
        mesh = sharding.make_mesh()
    else:
        if hardware is None:
            devices.require_platform(config.platform)
        mesh = sharding.make_mesh(**config.mesh, batch_size=config.batch_size, hardware=hardware)
        if mode in ("train", "plan"):
            validate.check_microbatch(config, sharding.row_groups(mesh))
            if config.model.remat == "offload":
                devices.require_pinned_host(sharding.one_device(mesh))
    platform = devices.platform_name(None if hardware is None else hardware[0])
    config = _with_dtype(config, platform)
    original = config
    if mode == "plan":
        tokenizer = data.tokenizer_shape(config)
    else:
        config = addresses.localised(config)
        tokenizer = data.make_tokenizer(config)
    model = model_setup.make_model(config, tokenizer)
    # weights are also read elsewhere than they were trained
    wanted = "auto" if mode == "weights" else config.model.attention
    model = model_setup.with_attention(model, wanted, platform)
    validate.check_tensor(mesh.shape.get("tensor", 1), model)
    if mode != "plan":
        validate.check_model(config, mode, tokenizer, model)
    parameters = model_setup.make_parameters(config, model)
    training, steps = None, config.optimizer.warmup_steps + 1  # any: no shape depends on it
    if mode == "train":
        training = _training(config, tokenizer, parameters)
        steps = training.steps
    return Setup(
        config=original.to_dict(),
        mesh=mesh,
        tokenizer=tokenizer,
        tokenizer_path=None if mode == "plan" else data.tokenizer_options(config).get("path"),
        model=model,
        normalise=model_setup.normaliser(config.input.normalisation),
        parameters=parameters,
        optimization=model_setup.make_optimization(config, parameters, steps),
        origin=None if mode == "plan" else _origin(config, original.pretrain, model, tokenizer),
        evaluation=None if mode == "plan" else _evaluation(config),
        training=training,
    )


def _with_dtype(config: ConfigDict, platform: str) -> ConfigDict:
    """The config with the type that config.model.dtype=auto is on a platform.

    config.json gets the type itself: a run that goes on elsewhere is refused, not computed in
    another one.
    """
    if not any(part and part.model.dtype == "auto" for part in (config, config.pretrain)):
        return config  # a SavedConfig, which a copy would not be
    config = config.copy_and_resolve_references()
    for part in (config, config.pretrain):
        if part and part.model.dtype == "auto":
            part.model.dtype = devices.matrix_dtype(platform)
    return config


def of_model(config: ConfigDict, model: nn.Module, steps: int) -> Setup:
    """The half of a Setup that a train step needs, for a model that was made without a config.

    It has no tokenizer, data or benchmarks: for speed/ and tests.
    """
    parameters = model_setup.make_parameters(config, model)
    return Setup(
        config=config.to_dict(),
        mesh=sharding.make_mesh(**config.mesh, batch_size=config.batch_size),
        tokenizer=None,
        tokenizer_path=None,
        model=model,
        normalise=model_setup.normaliser(config.input.normalisation),
        parameters=parameters,
        optimization=model_setup.make_optimization(config, parameters, steps),
        origin=None,
        evaluation=None,
        training=None,
    )


def _training(
    config: ConfigDict, tokenizer: data.Tokenizer, parameters: Parameters
) -> TrainingSetup:
    records = data.training_data(config, tokenizer, parameters.model)
    validate.check_text_only(config, records.source, tokenizer, parameters.model)
    return TrainingSetup(
        data=records,
        steps=duration.total_steps(config, len(records.source)),
        log_every=config.log_every,
        checkpoint=config.checkpoint.to_dict(),
        flops_per_example=model_setup.flops_per_example(config, parameters),
        flops_of_length={
            length: model_setup.flops_per_example(config, _of_length(parameters, length))
            for length in config.text.lengths
        },
        watchdog=(config.watchdog.seconds, config.watchdog.steps),
    )


def _of_length(parameters: Parameters, length: int) -> Parameters:
    """Parameters of the model for shorter texts, for its FLOPs."""
    model = parameters.model
    return parameters._replace(model=model.clone(text=model.text.clone(context_length=length)))


def _evaluation(config: ConfigDict) -> EvaluationSetup:
    other, question = config.interpolate.get("other"), config.input.question
    text = {"text": config.text.to_dict()}
    asked = {"question": question, **text} if question else {}
    return EvaluationSetup(
        benchmarks=data.benchmarks(config),
        transform=data.image_transform(config, is_training=False),
        question=question,
        every=config.eval.every,
        seconds=config.eval.seconds,
        cache=config.eval.cache,
        batch_size=config.eval.batch_size,
        examples=config.eval.examples,
        preview=config.input.preview,
        inputs={
            "image": {"normalisation": config.input.normalisation, **asked},
            "text": text,
        },
        interpolation=Interpolation(other, validate.interpolation_shares(config)),
    )


def _origin(
    config: ConfigDict, pretraining: ConfigDict | None, model: nn.Module, tokenizer: data.Tokenizer
) -> init_from.Origin:
    is_first = bool(config.pretrain) and not config.init_from
    return init_from.Origin(
        path=config.init_from,
        head_path=config.head_from,
        model_name=config.model.name,
        metadata=weights_compatibility.metadata(config, model, tokenizer),
        pretraining=partial(resolve, pretraining, "train") if is_first else None,
    )
