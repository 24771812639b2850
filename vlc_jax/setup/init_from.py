"""Loads parameters from weights of other projects and from workdirs.

config.init_from names a file or folder of another project (`vlc_jax.weights`), or the workdir of
a run, whose latest valid checkpoint is loaded. config.head_from names a checkpoint of DCSM's
authors, or the folder of a captioner's language model.
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from flax import traverse_util

from vlc_jax import weights
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.stores import hub
from vlc_jax.models import dcsm, vit
from vlc_jax.models.blip import BLIP
from vlc_jax.models.parameters import TOWERS
from vlc_jax.models.text_ids import NoTexts
from vlc_jax.models.text_vectors import VectorTower
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import is_workdir, saved_config, saved_fingerprints
from vlc_jax.setup import (
    init_adapter,
    init_decoder,
    llava_config,
    qwen3_vl_config,
    weights_compatibility,
)
from vlc_jax.setup.state import state_shapes
from vlc_jax.types import State
from vlc_jax.types.setup import Setup


class Origin(NamedTuple):
    """Sources of the parameters that are not initialised from the seed.

    path: config.init_from.   head_path: config.head_from.   model_name: config.model.name.
    metadata: of this config, to be compared with the metadata of the weights.
    """

    path: str | None
    head_path: str | None
    model_name: str
    metadata: weights_compatibility.Metadata


class Latest(NamedTuple):
    """The latest parameters of a workdir, with frozen ones and adapter merged, and their step.

    trained: the trained parameters among them; None at step 0.
    batch_stats: running statistics of the model; {} if it has none.
    """

    params: Any
    step: int
    trained: Any | None
    batch_stats: Any

    @property
    def variables(self) -> dict[str, Any]:
        """The Flax variables for `model.apply`."""
        return {"params": self.params, "batch_stats": self.batch_stats}


def load(
    setup: Setup,
    shapes: Mapping[str, Any],
    path: str | None = None,
    *,
    is_placed: bool = False,
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """Loads the parameters at `path` (default config.init_from) as a tree like `shapes`.

    Arrays are numpy float32; arrays of language models have the dtypes of `shapes`.

    Weights with another head give the two towers only, since a logit scale belongs to one kind of
    score; but heads with a decoder (captioner, vlm2vec) share all parameters. If only one of the
    two models has a text tower, or reads precomputed text vectors, only the image tower is loaded,
    except that LLM2CLIP's adapter becomes the text tower of connector llm2clip. If config.head_from
    is set and `path` is not, the head comes from config.head_from.

    shapes: of all parameters of the model.
    is_placed: arrays of a folder with a language model go to the devices of `shapes` one by one, so
      that the host never holds two of them.
    only: paths of the language model's arrays to return; the others are read, checked and dropped.
      None: all.

    Raises UsageError if the weights' metadata (activation, epsilon, pixels, tokenizer) contradict
    the config, WeightsError if shapes do not fit the model.
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
    setup: Setup, shapes: Mapping[str, Any], path: Path, keeping: init_decoder.Keeping
) -> dict[str, Any]:
    if is_workdir(path):
        return _load_workdir(setup, shapes, path)
    if llava_config.is_llava(path) or qwen3_vl_config.is_qwen3_vl(path):
        return init_decoder.load_llava(setup, shapes, path, keeping)
    if init_adapter.is_adapter(path):
        params = _load(setup, shapes, init_adapter.base_of(path), keeping)
        return init_adapter.merged(params, path, architecture(setup.model))
    model = setup.model
    weights_compatibility.check_files(setup.origin.metadata, model, setup.tokenizer, path)
    if isinstance(model.head, BLIP):
        return weights.load(path, shapes, architecture(model))[0]
    if not weights_compatibility.has_text_tower(model) and not _has_adapter(model, path):
        # raw tokens come from before the last blocks and the projection: load neither
        is_cut = model.head.requests[0].tokens == "raw"
        image = {"image": shapes["image"]}
        params = weights.load(path, image, architecture(model), is_cut=is_cut)[0]
        # nothing is scored without texts
        return params | (
            {"logit_scale": np.zeros((), np.float32)} if isinstance(model.text, NoTexts) else {}
        )
    params, _ = weights.load(path, _without_head(shapes), architecture(model))
    return _towers(params) if model.has_head else params


def _has_adapter(model: nn.Module, path: Path) -> bool:
    """True if the model has LLM2CLIP's adapter for text vectors, and so have the weights."""
    has_connector = isinstance(model.text, VectorTower) and model.text.connector == "llm2clip"
    return has_connector and weights.read(path, only_shapes=True)[1] == "hf_llm2clip"


def _load_workdir(setup: Setup, shapes: Mapping[str, Any], path: Path) -> dict[str, Any]:
    from vlc_jax.setup import resolve  # here: it imports this file

    theirs = resolve(saved_config(path), "weights")
    # a decoder may fit into memory only if it is split as in this run
    if jax.process_count() == 1:
        theirs = theirs._replace(mesh=setup.mesh)
    ours, model = setup.origin.metadata, setup.model
    # first, since another variant explains differences in tokenizer and activation
    sizes = weights_compatibility.sizes(theirs.model)
    weights_compatibility.check_sizes(ours, model, sizes, path, theirs.origin.metadata.variant)
    text_towers = {type(theirs.model.text), type(model.text)}
    if len(text_towers) == 1 and weights_compatibility.has_text_tower(model):
        vocabulary = theirs.tokenizer.vocabulary()
        weights_compatibility.check_tokenizer(ours, model, setup.tokenizer, vocabulary, path)
    values = theirs.origin.metadata.values
    if len(text_towers) > 1:  # no texts are loaded: BLIP's encoder is no CLIP's text tower
        values = {key: value for key, value in values.items() if not key.startswith("text_")}
    weights_compatibility.check_metadata(ours, model, values, path)
    latest = load_latest(theirs, path)
    logging.info("weights of %s, step %d", path, latest.step)
    params = jax.tree.map(np.asarray, latest.params)
    if len(text_towers) > 1:
        params, shapes = {"image": params["image"]}, {"image": shapes["image"]}
    elif _is_other_score(theirs, setup):
        if init_decoder.has_decoder(theirs) and init_decoder.has_decoder(setup):
            params["logit_scale"] = init_decoder.initial_logit_scale(setup)
        else:
            params, shapes = _towers(params), _towers(shapes)
    elif theirs.origin.model_name != setup.origin.model_name:
        # both score by pooled features: a head holds what one of them has for training alone
        params, shapes = _without_head(params), _without_head(shapes)
    try:
        return weights.fitted(params, shapes, architecture(model))
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _is_other_score(theirs: Setup, ours: Setup) -> bool:
    has_head = theirs.model.has_head or ours.model.has_head
    return has_head and theirs.origin.model_name != ours.origin.model_name


def _load_head(setup: Setup, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Head parameters from config.head_from, with a logit scale of 1 since DCSM's authors use none.

    Raises UsageError if the model has another head, or if its tokenizer or padding differ from
    those of the head's training.
    """
    path, tokenizer = setup.origin.head_path, setup.tokenizer
    if setup.origin.model_name != "dcsm":
        raise UsageError(
            "config.head_from is a checkpoint of DCSM, config.model.name is "
            f"{setup.origin.model_name!r}"
        )
    # shapes of the running moments, too: an archive that lacks them must be refused
    moments = setup.parameters.init_batch_stats().get("head", {})
    params, words = weights.dcsm.load(path, {**shapes["head"], **moments})
    words = words or dcsm.WORDS
    functional = tokenizer.words, getattr(tokenizer, "position", None)
    if "functional_words" in params and functional != (words, "word"):
        raise UsageError(
            f"the functional words of {path} are located by their word index in the text: "
            f"set config.text.functional_words.position to 'word' and its words to {words}"
        )
    if tokenizer.pad_id != tokenizer.eos_id:
        raise UsageError(
            f"the head at {path} was trained on texts padded with the end token, this tokenizer "
            f"pads with token {tokenizer.pad_id}: set config.text.tokenizer to 'hf', its path to "
            "the tokenizer.json of the towers, and its pad_token to the end token"
        )
    if not setup.model.text.padding_mask:
        raise UsageError(
            f"the head at {path} was trained with a text tower that masks padding: set "
            "config.model.text.padding_mask"
        )
    return {"head": params, "logit_scale": np.zeros((), np.float32)}  # a logarithm


def load_frozen(setup: Setup) -> tuple[Any, dict[str, str]]:
    """The frozen parameters (with LoRA all base parameters) and their fingerprints.

    The fingerprint "weights" is of the towers, on which stored features depend, "frozen" of all
    other frozen parameters. Towers come from config.init_from; other frozen parameters that are
    missing there are initialised from the seed. Both results are empty if nothing is frozen.
    """
    parameters = setup.parameters
    if not parameters.has_frozen:
        return {}, {}
    shapes = sharding.place_shapes(setup.mesh, parameters.shapes)
    frozen_shapes = parameters.split(shapes)[1]
    if not setup.origin.path:
        frozen = jax.tree.map(np.asarray, jax.jit(lambda: parameters.split(parameters.init())[1])())
    else:
        # not placed with several processes: the fingerprint reads whole arrays, and no process
        # holds all of a placed one
        is_placed, only = jax.process_count() == 1, weights.flatten(frozen_shapes).keys()
        loaded = load(setup, shapes, is_placed=is_placed, only=only)
        frozen = _complete(setup, loaded, frozen_shapes)
    towers = frozen if parameters.lora else _towers(frozen)
    others = {name: part for name, part in frozen.items() if name not in towers}
    parts = {"weights": towers, "frozen": others}
    fingerprints = {name: digest(part) for name, part in parts.items() if part}
    return sharding.put_like(frozen, frozen_shapes), fingerprints


def digest(params: Mapping[str, Any]) -> str:
    """Hash of parameters and their names: 16 hex digits of SHA-256."""
    sha256 = hashlib.sha256()
    for name, array in sorted(weights.flatten(params).items()):
        sha256.update(name.encode())
        # of a copy on the devices: a jax.Array caches its host copy as long as it lives
        on_host = np.ascontiguousarray(array.copy() if isinstance(array, jax.Array) else array)
        sha256.update(on_host.reshape(-1).view(np.uint8).data)  # as bytes: bfloat16 has no buffer
    return sha256.hexdigest()[:16]


def _complete(setup: Setup, loaded: Mapping[str, Any], shapes: Mapping[str, Any]) -> Any:
    """`loaded` restricted to `shapes`, with missing leaves initialised from the seed.

    Raises UsageError for a missing tower, with LoRA for any missing part.
    """
    parts = shapes if setup.parameters.lora else {k: v for k, v in shapes.items() if k in TOWERS}
    require_all(loaded, parts, setup.origin.path)
    available = traverse_util.flatten_dict(loaded, sep="/")
    needed = traverse_util.flatten_dict(shapes, sep="/")
    leaves = {path: available[path] for path in needed if path in available}
    if len(leaves) < len(needed):
        missing = [path for path in needed if path not in leaves]

        def draw() -> dict[str, jax.Array]:  # under jit, the compiler drops all other leaves
            drawn = traverse_util.flatten_dict(setup.parameters.init(), sep="/")
            return {path: drawn[path] for path in missing}

        leaves |= {path: np.asarray(array) for path, array in jax.jit(draw)().items()}
    return traverse_util.unflatten_dict({path: leaves[path] for path in needed}, sep="/")


def load_trained(setup: Setup, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The trained parameters at config.init_from, without those that are missing there.

    shapes: of all trained parameters.
    """
    trained = traverse_util.flatten_dict(shapes, sep="/")
    placed = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
    loaded = load(setup, placed, only=trained.keys())  # the frozen ones are in memory already
    available = traverse_util.flatten_dict(loaded, sep="/")
    common = [path for path in trained if path in available]
    params, like = (
        traverse_util.unflatten_dict({path: tree[path] for path in common}, sep="/")
        for tree in (available, trained)
    )
    return sharding.put_like(params, like)


def load_latest(setup: Setup, workdir: Path, on_event: Callable[..., None] | None = None) -> Latest:
    """Parameters of a workdir's latest valid checkpoint, or of config.init_from if it has none.

    Changes nothing in the workdir. Raises UsageError if there is neither.
    """
    frozen, fingerprint = load_frozen(setup)
    state = _restore(setup, workdir, frozen, on_event or _Warnings(workdir))
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


def load_complete(setup: Setup, path: str | None = None) -> dict[str, Any]:
    """All parameters of the model, on the devices; `path`: as in `load`.

    A head for training alone (`heads.Head.is_dot`) that the weights lack is 0. Raises UsageError if
    they lack another part of the model.
    """
    shapes = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
    params = load(setup, shapes, path, is_placed=True)
    if "head" in shapes and not setup.model.has_head:
        head = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes["head"])
        params = {"head": head, **params}
    require_all(params, shapes, path or setup.origin.path)
    return sharding.put_like(params, shapes)


def load_batch_stats(setup: Setup, path: str | None = None) -> dict[str, Any]:
    """Running statistics of a workdir with the same head, on the devices.

    For all other weights they are the initial ones. `path`: as in `load`.
    Raises WeightsError if the workdir's head has no such statistics.
    """
    moments = jax.eval_shape(setup.parameters.init_batch_stats)
    shapes = sharding.place_shapes(setup.mesh, moments)
    if not jax.tree.leaves(shapes):
        return {}
    first, path = setup.parameters.init_batch_stats(), Path(path or setup.origin.path)
    if is_workdir(path):
        from vlc_jax.setup import resolve  # here: it imports this file

        theirs = resolve(saved_config(path), "weights")
        if theirs.origin.model_name == setup.origin.model_name:
            loaded = load_latest(theirs, path).batch_stats
            if jax.tree.structure(loaded) != jax.tree.structure(first):
                needed = ", ".join(weights.flatten(first))
                raise WeightsError(f"{path} has no running statistics of this head: {needed}")
            first = loaded
    return sharding.put_like(jax.tree.map(np.asarray, first), shapes)


def _restore(
    setup: Setup, workdir: Path, frozen: Any, on_event: Callable[..., None]
) -> State | None:
    folders = steps_of(workdir)
    if not folders.exists():
        return None
    shapes = state_shapes(setup, frozen)
    return Checkpoints(folders, on_event=on_event).restore(shapes, set_aside=False)


def check_exists(setup: Setup, workdir: Path) -> None:
    """Raises UsageError if a run without checkpoints has a config.init_from that is missing."""
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
    """Raises WeightsError if the frozen parameters differ from those of the run's training."""
    saved = saved_fingerprints(workdir)
    for name, value in fingerprint.items():
        if saved.get(name) not in (None, value):
            raise WeightsError(
                f"the run in {workdir} was trained on other weights ({saved[name]}) than those at "
                f"config.init_from now ({value}): restore them"
            )


def _check_vectors(setup: Setup, workdir: Path) -> None:
    """Raises WeightsError if the file of text vectors changed since training.

    Another path is allowed: the user chose it.
    """
    saved = saved_fingerprints(workdir).get("vectors")
    path = setup.config["text"]["tokenizer_options"].get("path")
    theirs = saved_config(workdir).text.tokenizer_options.get("path")
    is_same_path = hub.is_same(str(path), str(theirs))
    if saved and is_same_path and setup.tokenizer.fingerprint != saved:
        raise WeightsError(
            f"the run in {workdir} was trained on other vectors ({str(saved)[:16]}) than those in "
            f"{path} now ({setup.tokenizer.fingerprint[:16]}): restore them, or name a file with "
            "more texts by --config.text.tokenizer_options.path and --allow_config_change"
        )


def architecture(model: nn.Module) -> weights.Architecture:
    """Properties of a model that readers of weights need besides its shapes."""
    image = model.image
    return weights.Architecture(
        heads={"image": image.heads, "text": getattr(model.text, "heads", 1)},
        may_cut_text=weights_compatibility.may_cut_text(model),
        logit_bias=model.logit_bias_init,
        context_length=getattr(model.text, "context_length", 0),
        is_naflex=bool(getattr(image, "position_grid", None)),
        sincos=lambda: vit.sincos2d(image.grid, image.width),
        # as transformers: DINOv2 resamples its positions plainly, with registers antialiased
        antialias=bool(not getattr(image, "layer_scale", False) or image.registers),
    )


def _without_head(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in params.items() if name != "head"}


def _towers(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in TOWERS if name in params}


class _Warnings:
    """Events of reading a run, in one line: its damaged steps and the step that is used."""

    def __init__(self, workdir: Path) -> None:
        self._workdir = workdir
        self._damaged: list[str] = []

    def __call__(self, event: str, step: int, problem: str = "") -> None:
        if event == "corrupt_checkpoint":
            self._damaged.append(f"step {step} is damaged ({problem})")
        elif event == "restore" and self._damaged:
            damaged = ", ".join(self._damaged)
            logging.warning("%s: %s, step %d is used", self._workdir, damaged, step)
