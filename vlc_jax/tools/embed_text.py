"""Vectors of texts, computed once by a sentence encoder: a model reads them in place of tokens.

  python -m vlc_jax.tools.embed_text --config configs/scenes/clip.py --run runs/relations \\
    --out vectors/scenes.npy
  python -m vlc_jax.tools.embed_text --texts captions.txt --model my_encoder --out vectors/my.npy

Texts: --texts, a file with one per line (.jsonl: a JSON string per line); or --config, every
caption and stored hard negative or positive of the config's training records, and every text of
its benchmarks. Encoder: --model, a model of sentence-transformers, the folder of one or the name of
one that was downloaded before; or --run, the text tower of a workdir. Vectors of another encoder,
such as LLM2Vec, are a file of the same form (input_pipeline/tokenizers/text_vectors.py).

The same command continues where it was stopped. Exit code 0: done; 2: wrong request; 3: bad data;
30: the disk is full; 130: interrupted, what is computed stays.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from input_pipeline import command_line, stored_features
from input_pipeline.record import DataError, Record, Source
from input_pipeline.tokenizers import sentence_encoder, text_vectors
from vlc_jax import main
from vlc_jax.encode import BatchEncoder
from vlc_jax.errors import UsageError
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.data import all_texts, usage_errors
from vlc_jax.tools import command

FLAGS = flags.FLAGS
BLOCK = 1024  # texts between two writes


def define_flags() -> None:
    """Beside --config and its fields. Other tools, which may be imported too, have an --out."""
    flags.DEFINE_string("out", None, "file of the vectors, .npy or .safetensors", required=True)
    flags.DEFINE_string("texts", None, "file of texts, one per line")
    flags.DEFINE_string("model", None, "a sentence-transformers model")
    flags.DEFINE_string("run", None, "workdir whose text tower embeds")
    flags.DEFINE_string("dtype", "float32", f"of the numbers: {', '.join(text_vectors.DTYPES)}")
    flags.DEFINE_integer("batch_size", 64, "texts at a time, of --model", lower_bound=1)


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

    def __call__(self, texts: list[str]) -> np.ndarray:
        return self._encode({"params": self._params}, texts).pooled


def store() -> str:
    """Does what the flags say; returns a sentence about what was written."""
    has_config = main.CONFIG.value is not None
    if has_config == bool(FLAGS.texts) or bool(FLAGS.model) == bool(FLAGS.run):
        raise UsageError("name texts, --texts or --config, and an encoder, --model or --run")
    with usage_errors():
        out = sentence_encoder.new_file(FLAGS.out, FLAGS.dtype)
        if FLAGS.model:
            encoder = sentence_encoder.SentenceEncoder(FLAGS.model, FLAGS.batch_size)
        else:
            encoder = RunEncoder(Path(FLAGS.run))
        texts = (
            texts_of(main.config()) if has_config else text_vectors.read_texts(Path(FLAGS.texts))
        )
        with command_line.bar("embedding", len(texts)) as advance:
            layout = sentence_encoder.write(
                *(out, texts, encoder),
                identity=encoder.identity,
                dtype=FLAGS.dtype,
                block=BLOCK,
                advance=advance,
            )
    size = layout.texts * layout.row_bytes / 2**30
    return f"{out}: vectors of {layout.texts:,} texts, {layout.width} wide, {size:.2f} GiB"


if __name__ == "__main__":
    define_flags()
    command.start(store)
