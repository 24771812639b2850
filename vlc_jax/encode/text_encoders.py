"""Encoders of texts into vectors that stand in place of a text tower: the text tower of a run, a
language model, a model of sentence-transformers, and LLM2CLIP's adapter behind one of them.

`tools/embed_text.py` computes the vectors of a data set once; `encode_others` those of further
texts, when such a model is evaluated.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vlc_jax import weights
from vlc_jax.devices import sharding
from vlc_jax.encode import llm2vec
from vlc_jax.encode.encoder import BatchEncoder
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers import sentence_encoder, text_vectors
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.models import lm, lora
from vlc_jax.models.text_vectors import VectorTower
from vlc_jax.run.checkpoint import CheckpointError
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import init_from, resolve
from vlc_jax.types import FeatureRequest
from vlc_jax.weights import files, lm_adapter, lm_config, rename

RAW = FeatureRequest(is_unit=False)
# Vectors of one encoder differ by rounding, on other devices and to the numbers of the file; those
# of another adapter or instruction by more. Relative distances, by what computes them.
SAME = {"float32": 0.005, "bfloat16": 0.03}
# Errors of an encoder that cannot be used, beside Python's own.
KNOWN = (UsageError, WeightsError, CheckpointError, DataError, KeyError)


class EncoderConfig(NamedTuple):
    """An encoder by the flags of embed_text, which the file beside its vectors repeats.

    model: a language model's folder, or a model of sentence-transformers; or run: a workdir.
    """

    model: str | None = None
    run: str | None = None
    llm2clip: str | None = None
    format: str | None = None
    instruction: str | None = None
    adapter: Sequence[str] = ()
    compute_dtype: str = "bfloat16"
    batch_size: int = 64

    def whole_paths(self) -> "EncoderConfig":
        """The same, read from any folder; a name that is no path stays one."""
        paths = {
            name: str(Path(value).resolve()) if value and Path(value).exists() else value
            for name, value in zip(self._fields[:3], self[:3], strict=True)
        }
        return self._replace(**paths, adapter=[str(Path(each).resolve()) for each in self.adapter])


def build(config: EncoderConfig) -> Any:
    """The encoder: texts -> float32 (texts, width), with an `identity`.

    Raises UsageError, ValueError or WeightsError where it cannot be read.
    """
    found: Any
    if config.run is not None:
        found = RunEncoder(Path(config.run))
    elif config.model is not None and config.format is not None:
        found = LanguageModelEncoder(
            Path(config.model),
            config.format,
            instruction=config.instruction or "",
            adapters=[Path(path) for path in config.adapter],
            dtype=config.compute_dtype,
            batch_size=config.batch_size,
        )
    else:
        found = sentence_encoder.SentenceEncoder(str(config.model), config.batch_size)
    return Adapted(found, Path(config.llm2clip)) if config.llm2clip else found


def encode_others(tokenizer: Any) -> None:
    """Lets a file of vectors, if that is the tokenizer, encode texts that it does not have, by the
    encoder that the file beside it names. That is read when the first such text comes, and compared
    with the first vector of the file. Of several processes each would need its own: there such
    texts stay refused.
    """
    if isinstance(tokenizer, TextVectors) and jax.process_count() == 1:
        said = text_vectors.read_encoder(tokenizer.path)
        if said is not None:
            tokenizer.encode_others = _OtherTexts(tokenizer, said)


class _OtherTexts:
    """The encoder of a file of vectors, for texts that are not in it."""

    def __init__(self, vectors: TextVectors, said: Mapping[str, Any]) -> None:
        self._vectors, self._said = vectors, said

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (texts, width). Raises UsageError where the encoder is not there any more, or is
        another one."""
        return self._encoder(texts)

    @cached_property
    def _encoder(self) -> Callable[[Sequence[str]], np.ndarray]:
        path = self._vectors.path
        logging.info("texts that are not in %s: reading its encoder", path)
        try:
            config = EncoderConfig(**self._said)
            encoder = build(config)
            text, expected = self._vectors.first
            found = encoder([text])[0]
        except (TypeError, ValueError, OSError, *KNOWN) as error:
            raise UsageError(
                f"some texts have no vectors in {path}, and its encoder, which "
                f"{text_vectors.encoder_file(path).name} beside it names, cannot be used: {error}"
            ) from error
        same = SAME[config.compute_dtype if config.format else "float32"]
        distance = np.inf
        if found.shape == expected.shape:
            distance = np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-12)
        if distance > same:
            raise UsageError(
                f"the encoder of {path} has changed: its vector of {text!r} is {distance:.1%} away "
                "from that in the file; embed all texts again"
            )
        return encoder


class RunEncoder:
    """The text tower of a run: texts -> pooled features of unit length."""

    def __init__(self, workdir: Path) -> None:
        setup = resolve(saved_config(workdir), "weights")
        self._params = init_from.load_latest(setup, workdir).params
        self._encode = BatchEncoder(
            setup,
            lambda model, rows: model.text(rows["text"]),
            lambda texts: {"text": setup.tokenizer(texts)},
        )
        self.identity = [setup.tokenizer.fingerprint, init_from.digest(self._params["text"])]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode({"params": self._params}, texts).pooled


class LanguageModelEncoder:
    """A language model in Hugging Face's layout as LLM2Vec uses it, see `generative.llm2vec`.

    folder: config.json, weights, and tokenizer.json or tokenizer.model.
    adapters: folders of PEFT's LoRA or DoRA, merged one after the other while the weights are read,
      a stack of layers at a time.
    dtype: of parameters and activations; adapters are merged in float32.
    batch_size: texts at a time, rounded up to a multiple of the devices, which share a batch.

    Raises UsageError for a folder of another kind, WeightsError as `weights.llava.load` does.
    """

    def __init__(
        self,
        folder: Path,
        form: str,
        *,
        instruction: str = "",
        adapters: Sequence[Path] = (),
        dtype: str = "bfloat16",
        batch_size: int = 64,
    ) -> None:
        sizes = weights.llava.read_sizes(folder)
        if "image" in sizes:
            raise UsageError(f"{folder} holds a model of images; name a language model's folder")
        # every token sees all others; "tied": no matrix of logits is read
        sizes["lm"] = {**sizes["lm"], "window": None, "is_tied": True}
        kind = {"dtype": jnp.dtype(dtype), "param_dtype": jnp.dtype(dtype)}
        decoder = lm.from_sizes(sizes["lm"], is_causal=False, **kind)
        mesh = sharding.make_mesh()
        params = _load(folder, sizes, decoder, adapters, sharding.replicated(mesh))
        wording = llm2vec.Wording(DecoderTokenizer(folder), form, instruction)
        rows = -(-batch_size // mesh.size) * mesh.size
        put = partial(sharding.put_batch, mesh)
        self.encoder, self._mesh = llm2vec.TextEncoder(decoder, params, wording, rows, put), mesh
        self.identity = {
            "files": [sentence_encoder.files_of(path) for path in (folder, *adapters)],
            "texts": [form, instruction],
            "dtype": dtype,
        }

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        with jax.set_mesh(self._mesh):
            return self.encoder(texts)


def is_language_model(folder: Path) -> bool:
    """True if a folder holds a language model known here and is none of sentence-transformers."""
    config = folder / "config.json"
    if not config.is_file() or (folder / "modules.json").exists():
        return False
    content = files.read_json(config)
    return isinstance(content, dict) and content.get("model_type") in lm_config.FAMILIES


def _load(
    folder: Path,
    sizes: Mapping[str, Any],
    decoder: lm.Decoder,
    adapters: Sequence[Path],
    where: Any,
) -> dict[str, Any]:
    """Parameters with the adapters merged, in the decoder's dtype."""
    shapes = jax.eval_shape(partial(lm.init, decoder), jax.random.key(0))
    trained = [lm_adapter.load(path, sizes) for path in adapters]
    merged = [
        (lora.adapters(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)), alpha)
        for tree, alpha in trained
    ]

    def put(path: str, array: np.ndarray) -> jax.Array:
        for found, alpha in merged:
            if path in found:
                base = weights.unflatten({path: jnp.asarray(array, jnp.float32)})
                adapter = {lora.LORA: weights.unflatten({path: found[path]})}
                array = weights.flatten(lora.merge(base, adapter, alpha))[path]
        array = np.asarray(array).astype(decoder.param_dtype)
        place = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)
        return sharding.put_like(array, place)

    return weights.llava.load(folder, sizes, {"lm": shapes}, put=put)["lm"]


class Adapted:
    """Vectors of an encoder as LLM2CLIP's text adapter maps them, not of unit length.

    path: a released model of LLM2CLIP, of which the adapter alone is read. Raises WeightsError for
    one of other shapes than the published, for NaN and infinity.
    """

    def __init__(self, encoder: Any, path: Path) -> None:
        params = weights.llm2clip.load_adapter(path)
        kernel = params["projection"]["kernel"]
        width, projection = kernel.shape[0], kernel.shape[-1]
        self._tower = VectorTower(width=width, projection=projection, connector="llm2clip")
        of_one = jax.ShapeDtypeStruct((1, width), jnp.float32)
        shapes = jax.eval_shape(self._tower.init, jax.random.key(0), of_one)["params"]
        expected = {name: leaf.shape for name, leaf in weights.flatten(shapes).items()}
        try:
            rename.check_values(weights.flatten(params), expected)
        except WeightsError as error:
            raise WeightsError(f"{path}: {error}") from error
        self._encoder, self._params, self._path = encoder, params, path
        self.identity = [encoder.identity, init_from.digest(params)]
        self._apply: Callable[..., Any] = jax.jit(
            lambda params, x: self._tower.apply({"params": params}, x, RAW).pooled
        )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._encoder(texts)
        if vectors.shape[1] != self._tower.width:
            raise WeightsError(
                f"{self._path} adapts vectors of width {self._tower.width}, the encoder gives "
                f"{vectors.shape[1]}: use the language model that it was trained with"
            )
        return np.asarray(self._apply(self._params, vectors))
