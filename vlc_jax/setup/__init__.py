"""Builds everything a run needs from its config, once: `resolve(config) -> Setup`.

Only this folder, main and run/workdir see a ConfigDict; all other code takes the objects of a
Setup, or keyword arguments.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from flax import linen as nn
from jax.sharding import Mesh
from ml_collections import ConfigDict

from vlc_jax.devices import runtime, sharding
from vlc_jax.models.parameters import Parameters
from vlc_jax.run.workdir import SavedConfig
from vlc_jax.setup import (
    addresses,
    config_of_run,
    data,
    duration,
    init_from,
    validate,
    weights_compatibility,
    weights_config,
)
from vlc_jax.setup import model as model_setup
from vlc_jax.types.setup import EvaluationSetup, Interpolation, Setup, TrainingSetup

Mode = Literal["train", "eval", "weights", "plan"]


def fetch_inputs(config: ConfigDict, mode: Mode) -> None:
    """Copies the config's files in object stores to this host, where `resolve` reads them.

    Raises UsageError for an invalid config before anything is copied.
    """
    validate.check(config, mode)
    addresses.localised(config)


def resolve(
    config: ConfigDict, mode: Mode = "train", hardware: Sequence[Any] | None = None
) -> Setup:
    """Builds everything a run needs; computes and loads no parameters, reads no benchmark.

    mode: "train" opens the training records, "eval" needs none. "weights", for the parameters of a
    workdir, uses the present devices, whatever that run had; each process holds all parameters.
    "plan", for shapes alone, reads no file; its `hardware` may be devices that are not attached.
    Raises UsageError when parts of the config contradict each other, DataError for training records
    that cannot be opened.
    """
    runtime.keep_libtpu_quiet()
    runtime.check_cache()
    if isinstance(config, SavedConfig):
        config_of_run.check(config.to_dict(), config._path)
    if mode != "plan":
        addresses.check(config)
    config = weights_config.completed(config)
    validate.check(config, mode)
    mesh = _mesh(config, mode, hardware)
    platform = runtime.platform_name(None if hardware is None else hardware[0])
    config = _with_dtype(config, platform)
    original = config
    if mode == "plan":
        tokenizer = data.tokenizer_shape(config)
    else:
        # to load a run's parameters, its data need not be on this host
        config = addresses.localised(config, only_model=mode == "weights")
        original = addresses.hashed(original, only_model=mode == "weights")
        tokenizer = data.make_tokenizer(config)
    model = model_setup.make_model(config, tokenizer)
    # weights may be read on another platform than they were trained on
    implementation = "auto" if mode == "weights" else config.model.attention
    model = model_setup.with_attention(model, implementation, platform)
    validate.check_tensor(mesh.shape.get("tensor", 1), model)
    if mode != "plan":
        validate.check_model(config, mode, tokenizer, model)
    parameters = model_setup.make_parameters(config, model)
    # any number of steps that the schedule accepts: no shape depends on it
    training, steps = None, config.optimizer.warmup_steps + 1
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
        origin=None if mode == "plan" else _origin(config, model, tokenizer),
        evaluation=None if mode == "plan" else _evaluation(config, mode, training),
        training=training,
    )


def _mesh(config: ConfigDict, mode: Mode, hardware: Sequence[Any] | None) -> Mesh:
    """The mesh, after the checks that need one; that of all present devices for "weights"."""
    if mode == "weights":
        return sharding.make_mesh()
    mesh = sharding.make_mesh(**config.mesh, batch_size=config.batch_size, hardware=hardware)
    if mode in ("train", "plan"):
        validate.check_microbatch(config, sharding.row_groups(mesh))
        if config.model.remat == "offload":
            runtime.require_pinned_host(sharding.one_device(mesh))
    return mesh


def _with_dtype(config: ConfigDict, platform: str) -> ConfigDict:
    """The config with config.model.dtype=auto replaced by the platform's dtype.

    config.json stores the resolved dtype: resuming on another platform is then refused, instead of
    continuing in another dtype.
    """
    if not any(part and part.model.dtype == "auto" for part in (config, config.pretrain)):
        return config  # uncopied: a copy of a SavedConfig is a plain ConfigDict
    config = config.copy_and_resolve_references()
    for part in (config, config.pretrain):
        if part and part.model.dtype == "auto":
            part.model.dtype = runtime.matrix_dtype(platform)
    return config


def step_setup(config: ConfigDict, model: nn.Module, steps: int) -> Setup:
    """A Setup without tokenizer, data and benchmarks, for a train step of a ready-made model.

    For speed/ and tests.
    """
    parameters = model_setup.make_parameters(config, model)
    return Setup(
        config=config.to_dict(),
        mesh=sharding.make_mesh(**config.mesh, batch_size=config.batch_size),
        model=model,
        normalise=model_setup.normaliser(config.input.normalisation),
        parameters=parameters,
        optimization=model_setup.make_optimization(config, parameters, steps),
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
        watchdog=(config.watchdog.seconds, config.watchdog.steps),
    )


def _evaluation(config: ConfigDict, mode: Mode, training: TrainingSetup | None) -> EvaluationSetup:
    other, question = config.interpolate.get("other"), config.input.question
    text = {"text": config.text.to_dict()}
    question_inputs = {"question": question, **text} if question else {}
    return EvaluationSetup(
        # those of a run may be another project's, which a loaded model need not have
        benchmarks={} if mode == "weights" else data.benchmarks(config),
        transform=data.image_transform(config, is_training=False),
        question=question,
        every=config.eval.every,
        seconds=config.eval.seconds,
        cache=config.eval.cache,
        batch_size=config.eval.batch_size,
        examples=config.eval.examples,
        preview=config.input.preview,
        inputs={
            "image": {"normalisation": config.input.normalisation, **question_inputs},
            "text": text,
        },
        interpolation=Interpolation(other, validate.interpolation_shares(config)),
        training_images=partial(data.training_images, config, training and training.data.source),
    )


def _origin(config: ConfigDict, model: nn.Module, tokenizer: data.Tokenizer) -> init_from.Origin:
    return init_from.Origin(
        path=config.init_from,
        head_path=config.head_from,
        model_name=config.model.name,
        metadata=weights_compatibility.metadata(config, model, tokenizer),
    )
