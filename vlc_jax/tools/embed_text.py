"""Vectors of texts, computed once by a sentence encoder: models read them instead of tokens.

  vlc-jax embed_text --config configs/scenes/clip.py --run runs/relations \\
    --out vectors/scenes.npy
  vlc-jax embed_text --texts captions.txt --model my_encoder --out vectors/my.npy
  vlc-jax embed_text --texts captions.txt --model Llama-2-7b-chat-hf \\
    --format llama_2_chat --adapter LLM2Vec-Llama-2-7b-chat-hf-mntp --out vectors/llm2vec.npy

Texts: --texts, a file with one per line (.jsonl: a JSON string per line); or --config, every
caption and stored hard negative or positive of the config's training records, the negatives of
left_right, and every text of its benchmarks. Encoder: --run, the text tower of a workdir; or
--model, a sentence-transformers model (its folder, or the name of a downloaded one), or the folder
of a language model, used as LLM2Vec (vlc_jax/encode/llm2vec.py) with --format, and optionally
--adapter, --instruction and --compute_dtype. --llm2clip FILE: applies the text adapter of that
LLM2CLIP to the vectors. Vectors of any other encoder can be used in the same file format
(input_pipeline/tokenizers/text_vectors.py). OUT.encoder.json beside the vectors names the encoder:
evaluation and `vlc_jax.load` use it for further texts.

The same command continues an interrupted one. Exit code 0: done; 2: wrong request; 3: bad data;
30: the disk is full; 130: interrupted, finished vectors stay.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from vlc_jax.encode import llm2vec, text_encoders
from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.input_pipeline.tokenizers import text_vectors
from vlc_jax.setup import command_line as config_flag
from vlc_jax.setup.data import all_texts, hard_texts
from vlc_jax.tools import command

FLAGS = flags.FLAGS
OF_LANGUAGE_MODELS = ("format", "adapter", "instruction")


def define_flags() -> None:
    """Defines the flags; not at import, since other tools define --out as well."""
    flags.DEFINE_string("out", None, "file of the vectors, .npy or .safetensors", required=True)
    flags.DEFINE_string("texts", None, "file of texts, one per line")
    flags.DEFINE_string("model", None, "a sentence-transformers model, or a language model")
    flags.DEFINE_string("run", None, "workdir whose text tower embeds")
    flags.DEFINE_string("dtype", "float32", f"of the vectors: {', '.join(text_vectors.DTYPES)}")
    flags.DEFINE_integer("batch_size", 64, "texts at a time, of --model", lower_bound=1)
    formats = ", ".join(llm2vec.FORMATS)
    flags.DEFINE_string("format", None, f"of texts, for a language model: {formats}")
    flags.DEFINE_string("instruction", None, "before each text, for a language model")
    flags.DEFINE_multi_string("adapter", None, "folder of PEFT, for a language model; several")
    flags.DEFINE_enum(
        "compute_dtype", "bfloat16", ["bfloat16", "float32"], "of a language model's computation"
    )
    flags.DEFINE_string("llm2clip", None, "weights whose text adapter the vectors pass")


def texts_of(config: Any) -> list[str]:
    """Every text of the config's training records and benchmarks, each once, and of the hard texts
    generated at load time those that a caption always has."""
    source, with_hard_images, benchmarks = all_texts(config)
    makers = [each for side in hard_texts(config).values() for each in side.generators.values()]
    fixed = [each for each in makers if getattr(each, "is_fixed", False)]
    unique, rng = dict[str, None](), np.random.default_rng(0)
    with progress.bar("reading", len(source)) as advance:
        for done, record in enumerate(_records(source, with_hard_images), 1):
            unique |= dict.fromkeys(stored_features.texts_of(record))
            for make, caption in itertools.product(fixed, record.captions):
                unique |= dict.fromkeys(make(sampling.text_of(caption), rng, 1))
            advance(min(done, len(source)))
    for benchmark in benchmarks.values():
        unique |= dict.fromkeys(benchmark.read().texts)
    # an empty text, which only fills an absent negative, is a row of zeros (TextVectors)
    return [str(text) for text in unique if text]


def _records(source: Source, with_hard_images: bool) -> Iterator[Record]:
    """Records of the source and hard images outside it; unreadable ones are skipped (training
    reports them).
    """
    known, named = set(), dict[str, None]()
    for index in range(len(source)):
        with contextlib.suppress(DataError):
            record = source[index]
            known.add(record.id)
            named |= dict.fromkeys(record.hard_images)
            yield record
    for name in named if with_hard_images else ():
        if name not in known:
            with contextlib.suppress(DataError):
                yield source.find(name)


def encoder_config() -> text_encoders.EncoderConfig:
    """The text encoder selected by the flags. Raises UsageError for incompatible flags."""
    lm_flags = {name: FLAGS[name].value for name in OF_LANGUAGE_MODELS if FLAGS[name].value}
    options: dict[str, Any] = {}
    if FLAGS.model and text_encoders.is_language_model(Path(FLAGS.model)):
        if FLAGS.format is None:
            known = " or ".join(llm2vec.FORMATS)
            raise UsageError(
                f"{FLAGS.model} is a language model: set the format of its texts, --format={known}"
            )
        options = {**lm_flags, "compute_dtype": FLAGS.compute_dtype}
    elif lm_flags:
        name = next(iter(lm_flags))
        raise UsageError(f"--{name} is for language models: set --model to the folder of one")
    if FLAGS.model:
        options["batch_size"] = FLAGS.batch_size
    paths = {name: FLAGS[name].value or None for name in ("model", "run", "llm2clip")}
    return text_encoders.EncoderConfig(**paths, **options)


def store() -> str:
    """Runs or resumes the command; returns the summary line."""
    has_config = config_flag.CONFIG.value is not None
    if has_config == bool(FLAGS.texts) or bool(FLAGS.model) == bool(FLAGS.run):
        raise UsageError("name texts, --texts or --config, and an encoder, --model or --run")
    with usage_errors():
        # first: an encoder takes minutes to load
        out = vector_file.new_file(FLAGS.out, FLAGS.dtype)
        config = encoder_config()
        encode = text_encoders.build(config)
        texts = (
            texts_of(config_flag.config())
            if has_config
            else text_vectors.read_texts(Path(FLAGS.texts))
        )
        layout = vector_file.write(
            out,
            texts,
            encode,
            identity=encode.identity,
            encoder=config.whole_paths()._asdict(),
            dtype=FLAGS.dtype,
        )
    size = layout.texts * layout.row_bytes / 2**30
    return f"{out}: vectors of {layout.texts:,} texts, {layout.width} wide, {size:.2f} GiB"


if __name__ == "__main__":
    define_flags()
    command.start(store)
