"""Parameters that are not initialised here: weights of other projects, and workdirs.

config.init_from names a file or folder of another project (`vlc_jax.weights`) or the workdir of
a run, whose latest valid checkpoint is taken; config.head_from a checkpoint of DCSM's authors, or
the folder of a captioner's language model.
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from flax import traverse_util

from vlc_jax import weights
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import dcsm
from vlc_jax.models.parameters import TOWERS
from vlc_jax.models.text import TextTower
from vlc_jax.models.text_vectors import VectorTower
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import is_workdir, saved_config, saved_fingerprints
from vlc_jax.setup import init_decoder, llava_config, weights_compatibility
from vlc_jax.setup.state import state_shapes
from vlc_jax.types import State

if TYPE_CHECKING:
    from vlc_jax.types.setup import Setup


class Origin(NamedTuple):
    """Sources of the parameters that are not initialised from the seed.

    path: config.init_from.   head_path: config.head_from.   model_name: config.model.name.
    metadata: of this config, with which that of the weights is compared.
    """

    path: str | None
    head_path: str | None
    model_name: str
    metadata: weights_compatibility.Metadata


class Latest(NamedTuple):
    """The latest parameters of a workdir, frozen ones and adapter merged, and their step.

    trained: the trained ones among them; None at step 0, when nothing was.
    batch_stats: running statistics of the model, {} without any.
    """

    params: Any
    step: int
    trained: Any | None
    batch_stats: Any

    @property
    def variables(self) -> dict[str, Any]:
        """Variables of Flax with which the model is applied."""
        return {"params": self.params, "batch_stats": self.batch_stats}


def load(
    setup: "Setup",
    shapes: Mapping[str, Any],
    path: str | None = None,
    *,
    is_placed: bool = False,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """The parameters at `path`, else at config.init_from, a tree like `shapes`, numpy arrays unless
    `is_placed`.

    They are float32, those of language models of the types in `shapes`.
    is_placed: arrays of language models, and of what is in one folder with them, go to the devices
      of `shapes` one by one, so that no two are in the memory of the host.
    only: paths of those of them that are kept; the others are read, checked and let go. None: all.
    shapes: of all parameters of the model. If the weights have another head, only the two towers
    are loaded: a logit scale is made for one kind of score. But heads with a decoder (captioner,
    vlm2vec) have the same parameters, which go from one to the other. If only one of the two models
    has a text tower, or reads precomputed text vectors, only the image tower is loaded, but that
    LLM2CLIP's adapter is the text tower of connector llm2clip. The head is that of
    config.head_from, if that is set and `path` is not.

    Raises UsageError if their metadata (activation, epsilon, pixels, tokenizer) contradict the
    config, WeightsError if the numbers do not fit the model.
    """
    keeping = init_decoder.Keeping(is_placed, only)
    params = _load(setup, shapes, Path(path or setup.origin.path), keeping)
    if setup.origin.head_path and path is None:
        if init_decoder.has_decoder(setup):
            head = init_decoder.load_language_model(setup, shapes, keeping)
        else:
            head = _load_head(setup, shapes)
        params = {**params, **head}
    return params


def _load(
    setup: "Setup", shapes: Mapping[str, Any], path: Path, keeping: init_decoder.Keeping
) -> dict[str, Any]:
    if is_workdir(path):
        return _load_workdir(setup, shapes, path)
    if llava_config.is_llava(path):
        return init_decoder.load_llava(setup, shapes, path, keeping)
    model = setup.model
    weights_compatibility.check_files(setup.origin.metadata, model, setup.tokenizer, path)
    if not weights_compatibility.has_text_tower(model) and not _has_adapter(model, path):
        # tokens before the last blocks and the projection: these are not wanted
        is_cut = model.head.requests[0].tokens == "raw"
        image = {"image": shapes["image"]}
        return weights.load(path, image, architecture(model), is_cut=is_cut)[0]
    params, _ = weights.load(path, _without_head(shapes), architecture(model))
    return _towers(params) if model.has_head else params


def _has_adapter(model: nn.Module, path: Path) -> bool:
    """True if texts are vectors that pass LLM2CLIP's adapter, and the weights at `path` have it."""
    is_wanted = isinstance(model.text, VectorTower) and model.text.connector == "llm2clip"
    return is_wanted and weights.read(path, only_shapes=True)[1] == "hf_llm2clip"


def _load_workdir(setup: "Setup", shapes: Mapping[str, Any], path: Path) -> dict[str, Any]:
    from vlc_jax.setup import resolve  # which imports this file

    theirs = resolve(saved_config(path), "weights")
    if jax.process_count() == 1:  # a decoder may only fit where it is split as in this run
        theirs = theirs._replace(mesh=setup.mesh)
    ours, model = setup.origin.metadata, setup.model
    # first: a tokenizer or an activation that differs may only follow from another variant
    sizes = weights_compatibility.sizes(theirs.model)
    weights_compatibility.check_sizes(ours, model, sizes, path, theirs.origin.metadata.variant)
    text_towers = {type(theirs.model.text), type(model.text)}
    if text_towers == {TextTower}:
        vocabulary = theirs.tokenizer.vocabulary()
        weights_compatibility.check_tokenizer(ours, model, setup.tokenizer, vocabulary, path)
    weights_compatibility.check_metadata(ours, model, theirs.origin.metadata.values, path)
    latest = load_latest(theirs, path)
    logging.info("weights of %s, step %d", path, latest.step)
    params = jax.tree.map(np.asarray, latest.params)
    if len(text_towers) > 1:
        params, shapes = {"image": params["image"]}, {"image": shapes["image"]}
    elif theirs.origin.model_name != setup.origin.model_name:
        if init_decoder.has_decoder(theirs) and init_decoder.has_decoder(setup):
            params["logit_scale"] = init_decoder.own_logit_scale(setup)
        else:
            params, shapes = _towers(params), _towers(shapes)
    try:
        return weights.fitted(params, shapes, architecture(model))
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _load_head(setup: "Setup", shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Head parameters from config.head_from; the logit scale is set to 1, the authors use none.

    Raises UsageError if the head is another one, or reads other texts than it was trained on.
    """
    path, tokenizer = setup.origin.head_path, setup.tokenizer
    if setup.origin.model_name != "dcsm":
        raise UsageError(
            "config.head_from is a checkpoint of DCSM, config.model.name is "
            f"{setup.origin.model_name!r}"
        )
    # the running moments too: no archive has them, and a head without any is refused
    moments = setup.parameters.init_batch_stats().get("head", {})
    params, words = weights.dcsm.load(path, {**shapes["head"], **moments})
    wanted = words or dcsm.WORDS
    functional = getattr(tokenizer, "words", ()), getattr(tokenizer, "position", None)
    if "functional_words" in params and functional != (wanted, "word"):
        raise UsageError(
            f"the vectors at {path} stand for words found by their number in the text: "
            f"set config.text.functional_words.position to 'word' and its words to {wanted}"
        )
    if tokenizer.pad_id != tokenizer.eos_id:
        raise UsageError(
            f"the head at {path} reads texts that are filled up with end tokens, here "
            f"token {tokenizer.pad_id} fills them: set config.text.tokenizer to 'hf', its path to "
            "the tokenizer.json of the towers, and its pad_token to the end token"
        )
    if not setup.model.text.padding_mask:
        raise UsageError(
            f"the head at {path} reads padding tokens that attend to the text alone: set "
            "config.model.text.padding_mask"
        )
    return {"head": params, "logit_scale": np.zeros((), np.float32)}  # a logarithm


def load_frozen(setup: "Setup") -> tuple[Any, dict[str, str]]:
    """The frozen parameters (with LoRA every base parameter) and their fingerprints: "weights" of
    the towers, on which stored features depend, "frozen" of all else.

    Towers come from config.init_from; what else is frozen and not there is initialised from the
    seed. Both empty where nothing is frozen.
    """
    parameters = setup.parameters
    if not parameters.has_frozen:
        return {}, {}
    shapes = sharding.place_shapes(setup.mesh, parameters.shapes)
    frozen_shapes = parameters.split(shapes)[1]
    if not setup.origin.path:
        frozen = jax.tree.map(np.asarray, jax.jit(lambda: parameters.split(parameters.init())[1])())
    else:
        # of several processes none has all of a placed array, which the fingerprint reads
        is_placed, only = jax.process_count() == 1, weights.flatten(frozen_shapes).keys()
        loaded = load(setup, shapes, is_placed=is_placed, only=only)
        frozen = _complete(setup, loaded, frozen_shapes)
    towers = frozen if parameters.lora else _towers(frozen)
    others = {name: part for name, part in frozen.items() if name not in towers}
    parts = {"weights": towers, "frozen": others}
    fingerprints = {name: digest(part) for name, part in parts.items() if part}
    return sharding.put_like(frozen, frozen_shapes), fingerprints


def digest(params: Mapping[str, Any]) -> str:
    """Hash of parameters and their names."""
    found = hashlib.sha256()
    for name, array in sorted(weights.flatten(params).items()):
        found.update(name.encode())
        # a copy on the devices: an array keeps what it was asked for in the memory of the host
        on_host = np.ascontiguousarray(array.copy() if isinstance(array, jax.Array) else array)
        found.update(on_host.reshape(-1).view(np.uint8).data)  # as bytes: bfloat16 has no buffer
    return found.hexdigest()[:16]


def _complete(setup: "Setup", loaded: Mapping[str, Any], shapes: Mapping[str, Any]) -> Any:
    """`loaded` restricted to `shapes`, missing leaves drawn from the seed.

    Raises UsageError for a missing tower, with LoRA for any missing part.
    """
    parts = shapes if setup.parameters.lora else {k: v for k, v in shapes.items() if k in TOWERS}
    require_all(loaded, parts, setup.origin.path)
    found = traverse_util.flatten_dict(loaded, sep="/")
    wanted = traverse_util.flatten_dict(shapes, sep="/")
    kept = {path: found[path] for path in wanted if path in found}
    if len(kept) < len(wanted):
        missing = [path for path in wanted if path not in kept]

        def draw() -> dict[str, jax.Array]:  # the compiler leaves out all others
            drawn = traverse_util.flatten_dict(setup.parameters.init(), sep="/")
            return {path: drawn[path] for path in missing}

        kept |= {path: np.asarray(array) for path, array in jax.jit(draw)().items()}
    return traverse_util.unflatten_dict({path: kept[path] for path in wanted}, sep="/")


def load_trained(setup: "Setup", shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The trained parameters found at config.init_from; those missing there are left out.

    shapes: of all trained parameters.
    """
    wanted = traverse_util.flatten_dict(shapes, sep="/")
    placed = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
    loaded = load(setup, placed, only=wanted.keys())  # the others are there, frozen
    found = traverse_util.flatten_dict(loaded, sep="/")
    common = [path for path in wanted if path in found]
    kept, like = (
        traverse_util.unflatten_dict({path: tree[path] for path in common}, sep="/")
        for tree in (found, wanted)
    )
    return sharding.put_like(kept, like)


def load_latest(
    setup: "Setup",
    workdir: Path,
    on_event: "Callable[..., None] | None" = None,
) -> Latest:
    """Parameters of the latest valid checkpoint of a workdir; if nothing was ever saved, those of
    config.init_from. Nothing in the workdir is changed.

    Raises UsageError when there is neither.
    """
    frozen, fingerprint = load_frozen(setup)
    state = _restore(setup, workdir, frozen, on_event or _warn)
    if state is not None:
        _check_unchanged(workdir, fingerprint)
        _check_vectors(setup, workdir)
        params = state.params
        if setup.parameters.has_frozen:
            params = jax.jit(setup.parameters.merge)(frozen, state.params)
        return Latest(params, int(state.step), state.params, state.batch_stats)
    if not setup.origin.path:
        raise UsageError(f"no checkpoint in {workdir}: train first, or set config.init_from")
    if setup.parameters.lora:
        return Latest(frozen, 0, None, load_batch_stats(setup))
    return Latest(load_complete(setup), 0, None, load_batch_stats(setup))


def load_complete(setup: "Setup", path: str | None = None) -> dict[str, Any]:
    """All parameters of the model, on the devices; `path`: as in `load`.

    Raises UsageError if a part of the model is not there.
    """
    shapes = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
    params = load(setup, shapes, path, is_placed=True)
    require_all(params, shapes, path or setup.origin.path)
    return sharding.put_like(params, shapes)


def load_batch_stats(setup: "Setup", path: str | None = None) -> dict[str, Any]:
    """Running statistics of a workdir with the same head, on the devices; of other weights those
    before the first step. `path`: as in `load`.

    Raises WeightsError if the workdir's head has no such statistics.
    """
    moments = jax.eval_shape(setup.parameters.init_batch_stats)
    shapes = sharding.place_shapes(setup.mesh, moments)
    if not jax.tree.leaves(shapes):
        return {}
    first, path = setup.parameters.init_batch_stats(), Path(path or setup.origin.path)
    if is_workdir(path):
        from vlc_jax.setup import resolve  # which imports this file

        theirs = resolve(saved_config(path), "weights")
        if theirs.origin.model_name == setup.origin.model_name:
            loaded = load_latest(theirs, path).batch_stats
            if jax.tree.structure(loaded) != jax.tree.structure(first):
                needed = ", ".join(weights.flatten(first))
                raise WeightsError(f"{path} has no running statistics of this head: {needed}")
            first = loaded
    return sharding.put_like(jax.tree.map(np.asarray, first), shapes)


def _restore(
    setup: "Setup", workdir: Path, frozen: Any, on_event: "Callable[..., None]"
) -> State | None:
    folders = steps_of(workdir)
    if not folders.exists():
        return None
    shapes = state_shapes(setup, frozen)
    return Checkpoints(folders, on_event=on_event).restore(shapes, set_aside=False)


def check_exists(setup: "Setup", workdir: Path) -> None:
    """Raises UsageError if a run with no state yet is to start from nothing."""
    path = setup.origin.path
    is_needed = path and not steps_of(workdir).exists()
    if is_needed and not Path(path).exists():
        raise UsageError(f"config.init_from: no weights at {path}")


def require_all(params: Mapping[str, Any], shapes: Mapping[str, Any], source: str) -> None:
    """Raises UsageError if `params` of `source` lack a part of the model."""
    lacking = sorted(shapes.keys() - params.keys())
    if lacking:
        raise UsageError(f"{source} has no {', '.join(lacking)} of this model: train it first")


def _check_unchanged(workdir: Path, fingerprint: Mapping[str, str]) -> None:
    """Raises WeightsError if the frozen parameters are not those that the run was trained with."""
    saved = saved_fingerprints(workdir)
    for name, value in fingerprint.items():
        if saved.get(name) not in (None, value):
            raise WeightsError(
                f"what is in {workdir} was trained on other weights ({saved[name]}) than those at "
                f"config.init_from now ({value}): restore them"
            )


def _check_vectors(setup: "Setup", workdir: Path) -> None:
    """Raises WeightsError if the file of text vectors changed since training. Another path is
    allowed: the user chose it."""
    saved = saved_fingerprints(workdir).get("vectors")
    path = setup.config["text"].get("vectors", {}).get("path")
    is_same_path = path == saved_config(workdir).text.vectors.path
    if saved and is_same_path and setup.tokenizer.fingerprint != saved:
        raise WeightsError(
            f"what is in {workdir} was trained on other vectors ({str(saved)[:16]}) than those in "
            f"{path} now ({setup.tokenizer.fingerprint[:16]}): restore them, or "
            "name a file with more texts by --config.text.vectors.path and --allow_config_change"
        )


def architecture(model: nn.Module) -> weights.Architecture:
    """Properties of a model, beside its shapes, that formats of weights need."""
    return weights.Architecture(
        patch_size=model.image.patch_size or 0,
        heads={"image": model.image.heads, "text": getattr(model.text, "heads", 1)},
        may_cut_text=weights_compatibility.may_cut_text(model),
    )


def _without_head(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in params.items() if name != "head"}


def _towers(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in TOWERS if name in params}


def _warn(event: str, **facts: Any) -> None:
    if event == "corrupt_checkpoint":
        logging.warning("%s %s", event, facts)
