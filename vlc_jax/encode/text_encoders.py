"""Encoders of texts into vectors, which replace a text tower.

The encoder is the text tower of a run, a language model, or a model of sentence-transformers,
optionally followed by LLM2CLIP's adapter. `tools/embed_text.py` computes the vectors of a data set
once; `encode_others` computes vectors of further texts when a model is evaluated.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vlc_jax import weights
from vlc_jax.devices import sharding
from vlc_jax.encode import llm2vec
from vlc_jax.encode.batches import BatchEncoder, text_lengths
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers import sentence_encoder, text_vectors
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.input_pipeline.tokenizers.sentence_encoder import Encode
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models import lm, lora
from vlc_jax.models.text_vectors import VectorTower
from vlc_jax.run.checkpoint import CheckpointError
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import init_from, resolve
from vlc_jax.types import FeatureRequest
from vlc_jax.weights import files, gguf, lm_adapter, lm_config, rename

RAW = FeatureRequest(is_unit=False)
# Maximum relative distance of two vectors of one encoder, by compute dtype: devices and the file's
# dtype round differently; another adapter or instruction changes vectors by more.
SAME = {"float32": 0.005, "bfloat16": 0.03}
# Errors of an encoder that cannot be used, besides Python's.
KNOWN = (UsageError, WeightsError, CheckpointError, DataError, KeyError)


class EncoderConfig(NamedTuple):
    """The flags of embed_text that name an encoder; also saved in the file beside its vectors.

    model: a language model's folder, or a model of sentence-transformers.
    run: a workdir, in place of `model`.
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
        """The config with absolute paths; names that are no existing path stay unchanged."""
        paths = {
            name: str(Path(value).resolve()) if value and Path(value).exists() else value
            for name, value in zip(self._fields[:3], self[:3], strict=True)
        }
        return self._replace(**paths, adapter=[str(Path(each).resolve()) for each in self.adapter])


def build(config: EncoderConfig) -> Any:
    """Builds the encoder, a function texts -> float32 (texts, width) with an `identity`.

    Raises UsageError, ValueError or WeightsError if it cannot be read.
    """
    encoder: Any
    if config.run is not None:
        encoder = RunEncoder(Path(config.run))
    elif config.model is not None and config.format is not None:
        encoder = LanguageModelEncoder(
            Path(config.model),
            config.format,
            instruction=config.instruction or "",
            adapters=[Path(path) for path in config.adapter],
            dtype=config.compute_dtype,
            batch_size=config.batch_size,
        )
    else:
        encoder = sentence_encoder.SentenceEncoder(str(config.model), config.batch_size)
    return Adapted(encoder, Path(config.llm2clip)) if config.llm2clip else encoder


def encode_others(tokenizer: Tokenizer) -> None:
    """Lets a tokenizer of text vectors compute vectors of texts that its file lacks.

    The encoder is named in a file beside the vectors. It is loaded at the first missing text, and
    its vector of the file's first text must equal the stored one. With several processes missing
    texts are refused, since each process would load an encoder.
    """
    if tokenizer.width and jax.process_count() == 1:
        options = text_vectors.read_encoder(tokenizer.path)
        if options is not None:
            encoder = cache(partial(_encoder_of, tokenizer, options))
            tokenizer.encode_others = lambda texts: encoder()(texts)


def _encoder_of(vectors: TextVectors, options: Mapping[str, Any]) -> Encode:
    """The encoder of a file of vectors; options: fields of EncoderConfig.

    Raises UsageError if the encoder is gone or changed.
    """
    path = vectors.path
    logging.info("texts that are not in %s: reading its encoder", path)
    try:
        config = EncoderConfig(**options)
        encoder = build(config)
        text, expected = vectors.first
        vector = encoder([text])[0]
    except (TypeError, ValueError, OSError, *KNOWN) as error:
        raise UsageError(
            f"some texts have no vectors in {path}, and its encoder, which "
            f"{text_vectors.encoder_file(path).name} beside it names, cannot be used: {error}"
        ) from error
    tolerance = SAME[config.compute_dtype if config.format else "float32"]
    distance = np.inf
    if vector.shape == expected.shape:
        distance = np.linalg.norm(vector - expected) / max(np.linalg.norm(expected), 1e-12)
    if distance > tolerance:
        raise UsageError(
            f"the encoder of {path} has changed: its vector of {text!r} is {distance:.1%} away "
            "from the one in the file; embed all texts again"
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
            lengths=text_lengths(setup, is_mixed=True),
        )
        self.identity = [setup.tokenizer.fingerprint, init_from.digest(self._params["text"])]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode({"params": self._params}, texts).pooled


class LanguageModelEncoder:
    """Text encoder by a language model in Hugging Face's layout, as in LLM2Vec (encode/llm2vec.py).

    folder: config.json, weights, and tokenizer.json or tokenizer.model.
    form: prompt format of the texts, a key of `llm2vec.FORMATS`.
    adapters: folders of PEFT's LoRA or DoRA, merged in this order while the weights are read, a
      stack of layers at a time.
    dtype: of parameters and activations; adapters are merged in float32.
    batch_size: texts at a time, rounded up to a multiple of the devices, over which a batch is
      sharded.

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
        # no window: every token attends to all others; tied: no output matrix is read
        sizes["lm"] = {**sizes["lm"], "window": None, "is_tied": True}
        kind = {"dtype": jnp.dtype(dtype), "param_dtype": jnp.dtype(dtype)}
        decoder = lm.from_sizes(sizes["lm"], is_causal=False, **kind)
        mesh = sharding.make_mesh()
        params = _load(folder, sizes, decoder, adapters, sharding.replicated(mesh))
        wording = llm2vec.Wording(DecoderTokenizer(folder), form, instruction)
        rows = -(-batch_size // mesh.size) * mesh.size
        put = partial(sharding.put_batch, mesh)
        self.encoder, self._mesh = llm2vec.TextEncoder(decoder, params, wording, rows, put), mesh
        # sizes and times of files: hashes of 15 GB would take minutes at each start
        self.identity = {
            "files": [sentence_encoder.files_of(path) for path in (folder, *adapters)],
            "texts": [form, instruction],
            "dtype": dtype,
        }

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        with jax.set_mesh(self._mesh):
            return self.encoder(texts)


def is_language_model(folder: Path) -> bool:
    """True for a GGUF file, and for a folder with a supported language model that is not of
    sentence-transformers."""
    if folder.suffix == gguf.SUFFIX:
        return folder.is_file()
    config = folder / "config.json"
    # modules.json: sentence-transformers, whose config.json may be that of a language model
    if not config.is_file() or (folder / "modules.json").exists():
        return False
    content = files.read_json(config)
    return isinstance(content, dict) and str(content.get("model_type")) in lm_config.FAMILIES


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
    merge = jax.jit(lora.merge, static_argnums=2)

    def put(path: str, array: np.ndarray) -> jax.Array:
        # in float32: the small update would be lost in the rounding of a bfloat16 matrix
        for matrices, alpha in merged:
            if path in matrices:
                base = weights.unflatten({path: np.asarray(array, np.float32)})
                adapter = {lora.LORA: weights.unflatten({path: matrices[path]})}
                array = weights.flatten(merge(base, adapter, alpha))[path]
        array = np.asarray(array).astype(decoder.param_dtype)
        like = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)
        return sharding.put_like(array, like)

    return weights.llava.load(folder, sizes, {"lm": shapes}, put=put)["lm"]


class Adapted:
    """An encoder followed by LLM2CLIP's text adapter; vectors are not of unit length.

    path: a released model of LLM2CLIP, from which only the adapter is read. Raises WeightsError for
    other shapes than the published ones, and for NaN or infinity.
    """

    def __init__(self, encoder: Any, path: Path) -> None:
        params = weights.llm2clip.load_adapter(path)
        kernel = params["projection"]["kernel"]
        width, projection = kernel.shape[0], kernel.shape[-1]
        self._tower = VectorTower(width=width, projection=projection, connector="llm2clip")
        one_row = jax.ShapeDtypeStruct((1, width), jnp.float32)
        shapes = jax.eval_shape(self._tower.init, jax.random.key(0), one_row)["params"]
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
