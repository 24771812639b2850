"""Vectors of texts, computed once by a sentence encoder: a model reads them in place of tokens.

  vlc-jax embed_text --config configs/scenes/clip.py --run runs/relations \\
    --out vectors/scenes.npy
  vlc-jax embed_text --texts captions.txt --model my_encoder --out vectors/my.npy
  vlc-jax embed_text --texts captions.txt --model Llama-2-7b-chat-hf \\
    --format llama_2_chat --adapter LLM2Vec-Llama-2-7b-chat-hf-mntp --out vectors/llm2vec.npy

Texts: --texts, a file with one per line (.jsonl: a JSON string per line); or --config, every
caption and stored hard negative or positive of the config's training records, and every text of
its benchmarks. Encoder: --run, the text tower of a workdir; or --model, a model of
sentence-transformers, the folder of one or the name of one that was downloaded before, or the
folder of a language model, which embeds as LLM2Vec (vlc_jax/encode/llm2vec.py) with --format,
and --adapter, --instruction and --compute_dtype if need be. --llm2clip FILE: the
vectors pass the text adapter of that LLM2CLIP. Vectors of another encoder are a file of the same
form (input_pipeline/tokenizers/text_vectors.py). OUT.encoder.json beside the vectors says which
encoder it was: evaluation and `vlc_jax.load` compute the vectors of further texts by it.

The same command continues where it was stopped. Exit code 0: done; 2: wrong request; 3: bad data;
30: the disk is full; 130: interrupted, what is computed stays.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from vlc_jax.encode import llm2vec, text_encoders
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.tokenizers import sentence_encoder, text_vectors
from vlc_jax.setup import command_line as config_flag
from vlc_jax.setup.data import all_texts, usage_errors
from vlc_jax.tools import command

FLAGS = flags.FLAGS
BLOCK = 1024  # texts between two writes
OF_LANGUAGE_MODELS = ("format", "adapter", "instruction")


def define_flags() -> None:
    """Beside --config and its fields. Other tools, which may be imported too, have an --out."""
    flags.DEFINE_string("out", None, "file of the vectors, .npy or .safetensors", required=True)
    flags.DEFINE_string("texts", None, "file of texts, one per line")
    flags.DEFINE_string("model", None, "a sentence-transformers model, or a language model")
    flags.DEFINE_string("run", None, "workdir whose text tower embeds")
    flags.DEFINE_string("dtype", "float32", f"of the numbers: {', '.join(text_vectors.DTYPES)}")
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
    """Every text of the config's training records and benchmarks, each once; those that are made
    at each reading are not among them.
    """
    source, with_hard_images, benchmarks = all_texts(config)
    found = dict[str, None]()
    with command_line.bar("reading", len(source)) as advance:
        for done, record in enumerate(_records(source, with_hard_images), 1):
            found |= dict.fromkeys(stored_features.texts_of(record))
            advance(min(done, len(source)))
    for benchmark in benchmarks.values():
        found |= dict.fromkeys(benchmark.read().texts)
    return [text for text in found if text]


def _records(source: Source, with_hard_images: bool) -> Iterator[Record]:
    """Those of the source, and hard images that they name and that are none of them; without what
    cannot be read, which training says.
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
    """The text encoder that the flags name. Raises UsageError for flags that do not go together."""
    given = {name: FLAGS[name].value for name in OF_LANGUAGE_MODELS if FLAGS[name].value}
    options: dict[str, Any] = {}
    if FLAGS.model and text_encoders.is_language_model(Path(FLAGS.model)):
        if FLAGS.format is None:
            known = " or ".join(llm2vec.FORMATS)
            raise UsageError(
                f"{FLAGS.model} is a language model: say how it reads texts, --format={known}"
            )
        options = {**given, "compute_dtype": FLAGS.compute_dtype}
    elif given:
        name = next(iter(given))
        raise UsageError(f"--{name} is of language models: name the folder of one with --model")
    if FLAGS.model:
        options["batch_size"] = FLAGS.batch_size
    paths = {name: FLAGS[name].value or None for name in ("model", "run", "llm2clip")}
    return text_encoders.EncoderConfig(**paths, **options)


def store() -> str:
    """Does what the flags say; returns a sentence about what was written."""
    has_config = config_flag.CONFIG.value is not None
    if has_config == bool(FLAGS.texts) or bool(FLAGS.model) == bool(FLAGS.run):
        raise UsageError("name texts, --texts or --config, and an encoder, --model or --run")
    with usage_errors():
        out = sentence_encoder.new_file(FLAGS.out, FLAGS.dtype)
        config = encoder_config()
        encode = text_encoders.build(config)
        texts = (
            texts_of(config_flag.config())
            if has_config
            else text_vectors.read_texts(Path(FLAGS.texts))
        )
        with command_line.bar("embedding", len(texts)) as advance:
            layout = sentence_encoder.write(
                *(out, texts, encode),
                identity=encode.identity,
                encoder=config.whole_paths()._asdict(),
                dtype=FLAGS.dtype,
                block=BLOCK,
                advance=advance,
            )
    size = layout.texts * layout.row_bytes / 2**30
    return f"{out}: vectors of {layout.texts:,} texts, {layout.width} wide, {size:.2f} GiB"


if __name__ == "__main__":
    define_flags()
    command.start(store)
