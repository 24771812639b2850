"""Where parameters come from that are not initialised here: weights of others, and workdirs.

config.weights.path names a file or folder of another project (`vlc_jax.weights`) or the workdir of
a run, whose newest state is taken.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from input_pipeline import image as image_ops
from vlc_jax import build, sharding, weights
from vlc_jax.build import State
from vlc_jax.checkpoint import Checkpoints
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.workdir import read_json


def imported(config: ConfigDict, model: nn.Module, shapes: Any, path: str | None = None) -> Any:
    """The parameters at `path`, else at config.weights.path, numpy float32, a tree like `shapes`.

    Raises UsageError if what is known of them (activation, epsilon, pixel statistics) is not what
    the config has, WeightsError if the numbers do not fit the model.
    """
    path = Path(path or config.weights.path)
    if (path / "checkpoints").is_dir():
        return _of_workdir(path, config, model, shapes)
    check_facts(config, model, weights.facts.read(path), path)
    params, _ = weights.load(path, shapes, architecture(model))
    return params


def _of_workdir(path: Path, config: ConfigDict, model: nn.Module, shapes: Any) -> Any:
    saved = ConfigDict(read_json(path / "config.json"))
    with build.usage_errors():
        other = build.model(saved, model.text.eos_id)
    check_facts(config, model, facts_of(saved, other), path)
    params, _ = newest(saved, sharding.make_mesh(data=-1, fsdp=1), other, path)
    try:
        return weights.fitted(jax.tree.map(np.asarray, params), shapes, architecture(model))
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def newest(
    config: ConfigDict,
    mesh: Mesh,
    model: nn.Module,
    workdir: Path,
    on_event: Callable[..., None] = lambda event, **facts: None,
) -> tuple[Any, int]:
    """Parameters and step of the newest undamaged state of a workdir, an adapter merged; if nothing
    was ever saved, what config.weights.path holds, as step 0.

    Raises UsageError when there is neither.
    """
    frozen, fingerprint = frozen_params(config, mesh, model)
    state = newest_state(config, mesh, model, workdir, frozen, on_event)
    if state is not None:
        _check_unchanged(workdir, fingerprint)
        merge = jax.jit(lambda *trees: build.merged(config, *trees))
        return merge(frozen, state.params) if frozen else state.params, int(state.step)
    if not config.weights.path:
        raise UsageError(f"no checkpoint in {workdir}: train first, or set config.weights.path")
    if frozen:
        return frozen, 0
    shapes = build.state_shapes(mesh, build.init_params(config, model))
    return sharding.put_like(imported(config, model, shapes), shapes), 0


def newest_state(
    config: ConfigDict,
    mesh: Mesh,
    model: nn.Module,
    workdir: Path,
    frozen: Any,
    on_event: Callable[..., None] = lambda event, **facts: None,
) -> State | None:
    """The newest undamaged state of a workdir; None if nothing was ever saved."""
    folder = workdir / "checkpoints"
    if not folder.exists():
        return None
    steps = config.optimizer.warmup_steps + 1  # any number: the schedule is not in the state
    shapes = build.state_shapes(mesh, build.init_state(config, model, steps, frozen), frozen)
    return Checkpoints(folder, on_event=on_event).restore(shapes)


def frozen_params(config: ConfigDict, mesh: Mesh, model: nn.Module) -> tuple[Any, dict[str, str]]:
    """The parameters that an adapter is trained on, and their fingerprint; empty without one."""
    if not config.lora.targets:
        return {}, {}
    if not config.weights.path:
        raise UsageError("config.lora adapts pretrained weights: set config.weights.path")
    shapes = build.state_shapes(mesh, build.init_params(config, model))
    params = imported(config, model, shapes)
    digest = hashlib.sha256()
    for name, array in sorted(weights.flatten(params).items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).data)
    return sharding.put_like(params, shapes), {"weights": digest.hexdigest()[:16]}


def _check_unchanged(workdir: Path, fingerprint: Mapping[str, str]) -> None:
    path = workdir / "env.json"
    saved = read_json(path)["input"].get("weights") if path.exists() else None
    if fingerprint and saved not in (None, fingerprint["weights"]):
        raise WeightsError(
            f"the adapter in {workdir} was trained on other weights ({saved}) than those at "
            f"config.weights.path now ({fingerprint['weights']}): restore them"
        )


def architecture(model: nn.Module) -> weights.Architecture:
    """What formats of weights must know of a model beside its shapes."""
    return weights.Architecture(
        patch_size=model.image.patch_size or 0,
        heads={"image": model.image.heads, "text": model.text.heads},
        may_cut_text=model.text.is_causal and model.text.pooling == "eos",
    )


def facts_of(config: ConfigDict, model: nn.Module) -> dict[str, Any]:
    """What weights trained with this config would say of themselves, see `weights.facts`."""
    mean, std = image_ops.NORMALISATIONS[config.input.normalisation]
    return {
        "image_activation": model.image.activation,
        "text_activation": model.text.activation,
        "image_epsilon": model.image.epsilon,
        "text_epsilon": model.text.epsilon,
        "mean": mean,
        "std": std,
        "interpolation": "bicubic",
    }


def check_facts(config: ConfigDict, model: nn.Module, facts: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError naming each fact of the weights that the config contradicts."""
    ours = facts_of(config, model)
    differing = [
        f"{name} is {facts[name]}, here {ours[name]}"
        for name in ours.keys() & facts.keys()
        if not _is_same(facts[name], ours[name])
    ]
    if differing:
        raise UsageError(
            f"the files beside {path} say that {'; '.join(sorted(differing))}: set "
            "config.model.activation, .epsilon or config.input.normalisation accordingly"
        )


def _is_same(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else bool(np.allclose(a, b, rtol=1e-4, atol=0))
