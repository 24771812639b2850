"""Where parameters come from that are not initialised here: weights of others, and workdirs.

config.init_from names a file or folder of another project (`vlc_jax.weights`) or the workdir of
a run, whose newest state is taken; config.head_from a checkpoint of DCSM's authors.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from ml_collections import ConfigDict

from input_pipeline import TextVectors
from vlc_jax import build, sharding, specification, weights
from vlc_jax.build import State, Task
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import dcsm
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.workdir import read_json, saved_config


def imported(
    config: ConfigDict, task: Task, shapes: Any, path: str | None = None
) -> dict[str, Any]:
    """The parameters at `path`, else at config.init_from, numpy float32, a tree like `shapes`.

    shapes: of all parameters of the model. From where its head is not, the two towers are taken
    alone: a logit scale is made for one kind of score. From where texts are no vectors, and here
    they are, or the other way round, the image tower is taken alone. The head is that of
    config.head_from, if that is set and `path` is not.

    Raises UsageError if what is known of them (activation, epsilon, pixels, tokenizer) is not what
    the config has, WeightsError if the numbers do not fit the model.
    """
    params = _imported(config, task, shapes, Path(path or config.init_from))
    if config.head_from and path is None:
        params = {**params, **_head(config, task, shapes)}
    return params


def _imported(
    config: ConfigDict, task: Task, shapes: Mapping[str, Any], source: Path
) -> dict[str, Any]:
    if (source / "checkpoints").is_dir() or (source / "env.json").exists():
        return _of_workdir(source, config, task, shapes)
    specification.check_files(config, task, source)
    if specification.reads_vectors(task.model):
        return weights.load(source, {"image": shapes["image"]}, architecture(task.model))[0]
    params, _ = weights.load(source, _without_head(shapes), architecture(task.model))
    return _towers(params) if task.model.has_head else params


def imported_state(config: ConfigDict, task: Task, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """As many of the trained parameters, which have these shapes, as config.init_from holds."""
    whole = build.state_shapes(task.mesh, build.init_params(config, task.model))
    found = imported(config, task, whole)
    parts = {name: part for name, part in found.items() if name in shapes}
    return sharding.put_like(parts, {name: shapes[name] for name in parts})


def require_all(params: Mapping[str, Any], shapes: Mapping[str, Any], source: str) -> None:
    """Raises UsageError if `params` of `source` lack a part of the model."""
    lacking = sorted(shapes.keys() - params.keys())
    if lacking:
        raise UsageError(f"{source} has no {', '.join(lacking)} of this model: train it first")


def check_exists(config: ConfigDict, workdir: Path) -> None:
    """Raises UsageError if a run with no state yet is to start from nothing."""
    is_needed = config.init_from and not (workdir / "checkpoints").exists()
    if is_needed and not Path(config.init_from).exists():
        raise UsageError(f"config.init_from: no weights at {config.init_from}")


def _of_workdir(path: Path, config: ConfigDict, task: Task, shapes: Any) -> Any:
    saved = saved_config(path)
    tokenizer = build.tokenizer(saved)
    model = build.model(saved, tokenizer)
    mesh = sharding.make_mesh(data=-1, fsdp=1)  # every process reads all of it
    other = Task(mesh, tokenizer, model, build.normaliser(saved.input.normalisation))
    are_vectors = isinstance(tokenizer, TextVectors), specification.reads_vectors(task.model)
    if not any(are_vectors):
        specification.check_tokenizer(config, task, tokenizer.vocabulary(), path)
    specification.check_facts(config, task, specification.facts(saved, other), path)
    found = newest(saved, other, path)
    logging.info("weights of %s, step %d", path, found.step)
    params = jax.tree.map(np.asarray, found.params)
    if len(set(are_vectors)) > 1:
        params, shapes = {"image": params["image"]}, {"image": shapes["image"]}
    elif saved.model.name != config.model.name:
        params, shapes = _towers(params), _towers(shapes)
    try:
        return weights.fitted(params, shapes, architecture(task.model))
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _head(config: ConfigDict, task: Task, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The head at config.head_from, and the logit scale of its authors, who have none.

    Raises UsageError if the head is another one, or reads other texts than it was trained on.
    """
    if config.model.name != "dcsm":
        raise UsageError(
            f"config.head_from is a checkpoint of DCSM, config.model.name is {config.model.name!r}"
        )
    params, words = weights.dcsm.load(config.head_from, shapes["head"])
    functional, tokenizer = config.text.functional_words, task.tokenizer
    wanted = words or dcsm.WORDS
    has_vectors = "functional_words" in params
    if has_vectors and (tuple(functional.words), functional.position) != (wanted, "word"):
        raise UsageError(
            f"the vectors at {config.head_from} stand for words found by their number in the text: "
            f"set config.text.functional_words.position to 'word' and its words to {wanted}"
        )
    if tokenizer.pad_id != tokenizer.eos_id:
        raise UsageError(
            f"the head at {config.head_from} reads texts that are filled up with end tokens, here "
            f"token {tokenizer.pad_id} fills them: set config.text.tokenizer to 'hf', its path to "
            "the tokenizer.json of the towers, and its pad_token to the end token"
        )
    return {"head": params, "logit_scale": np.zeros((), np.float32)}


def _without_head(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in params.items() if name != "head"}


def _towers(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in ("image", "text") if name in params}


def _warn(event: str, **facts: Any) -> None:
    if event == "corrupt_checkpoint":
        logging.warning("%s %s", event, facts)


class Newest(NamedTuple):
    """The newest parameters of a workdir, an adapter merged, their step, and what was trained of
    them: all, an adapter, or, at step 0, nothing (None).
    """

    params: Any
    step: int
    trained: Any | None


def newest(
    config: ConfigDict,
    task: Task,
    workdir: Path,
    on_event: Callable[..., None] = _warn,
) -> Newest:
    """What the newest undamaged state of a workdir holds; if nothing was ever saved, what
    config.init_from holds. Nothing in the workdir is changed.

    Raises UsageError when there is neither.
    """
    frozen, fingerprint = frozen_params(config, task)
    state = _restored(config, task, workdir, frozen, on_event)
    if state is not None:
        _check_unchanged(workdir, fingerprint)
        _check_vectors(config, task, workdir)
        merge = jax.jit(lambda *trees: build.merged(config, *trees))
        params = merge(frozen, state.params) if frozen else state.params
        return Newest(params, int(state.step), state.params)
    if not config.init_from:
        raise UsageError(f"no checkpoint in {workdir}: train first, or set config.init_from")
    if config.lora.targets:
        return Newest(frozen, 0, None)
    shapes = build.state_shapes(task.mesh, build.init_params(config, task.model))
    params = imported(config, task, shapes)
    require_all(params, shapes, config.init_from)
    return Newest(sharding.put_like(params, shapes), 0, None)


def _restored(
    config: ConfigDict, task: Task, workdir: Path, frozen: Any, on_event: Callable[..., None]
) -> State | None:
    folder = workdir / "checkpoints"
    if not folder.exists():
        return None
    steps = config.optimizer.warmup_steps + 1  # any number: the schedule is not in the state
    init = build.init_state(config, task.model, steps, frozen)
    shapes = build.state_shapes(task.mesh, init, frozen)
    return Checkpoints(folder, on_event=on_event).restore(shapes, set_aside=False)


def frozen_params(config: ConfigDict, task: Task) -> tuple[Any, dict[str, str]]:
    """The parameters that stay as they are, config.frozen or those that an adapter is trained on,
    and their fingerprint; empty without any.
    """
    if not config.lora.targets and not config.frozen:
        return {}, {}
    shapes = build.state_shapes(task.mesh, build.init_params(config, task.model))
    if config.lora.targets:
        _check_adapter(config, task, shapes)
    params = imported(config, task, shapes)
    if config.frozen:
        shapes = {name: shapes[name] for name in config.frozen if name in shapes}
    require_all(params, shapes, config.init_from)
    params = {name: params[name] for name in shapes}
    digest = hashlib.sha256()
    for name, array in sorted(weights.flatten(params).items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).data)
    return sharding.put_like(params, shapes), {"weights": digest.hexdigest()[:16]}


def _check_adapter(config: ConfigDict, task: Task, shapes: Any) -> None:
    if not config.init_from:
        raise UsageError("config.lora adapts pretrained weights: set config.init_from")
    if not 0 < config.lora.alpha < float("inf"):
        raise UsageError(f"config.lora.alpha must be a positive number; got {config.lora.alpha}")
    build.init_state(config, task.model, config.optimizer.warmup_steps + 1, shapes)  # or refuses


def _check_unchanged(workdir: Path, fingerprint: Mapping[str, str]) -> None:
    path = workdir / "env.json"
    saved = read_json(path).get("input", {}).get("weights") if path.exists() else None
    if fingerprint and saved not in (None, fingerprint["weights"]):
        raise WeightsError(
            f"what is in {workdir} was trained on other weights ({saved}) than those at "
            f"config.init_from now ({fingerprint['weights']}): restore them"
        )


def _check_vectors(config: ConfigDict, task: Task, workdir: Path) -> None:
    """Another path was asked for; at the same path there must be the same vectors."""
    path = workdir / "env.json"
    saved = read_json(path).get("input", {}).get("vectors") if path.exists() else None
    is_same_path = config.text.vectors.path == saved_config(workdir).text.vectors.path
    if saved and is_same_path and task.tokenizer.fingerprint != saved:
        raise WeightsError(
            f"what is in {workdir} was trained on other vectors ({saved[:16]}) than those in "
            f"{config.text.vectors.path} now ({task.tokenizer.fingerprint[:16]}): restore them, or "
            "name a file with more texts by --config.text.vectors.path and --allow_config_change"
        )


def architecture(model: nn.Module) -> weights.Architecture:
    """What formats of weights must know of a model beside its shapes."""
    return weights.Architecture(
        patch_size=model.image.patch_size or 0,
        heads={"image": model.image.heads, "text": getattr(model.text, "heads", 1)},
        may_cut_text=specification.may_cut_text(model),
    )
