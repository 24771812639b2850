"""Vectors of every text that a run reads, by a sentence encoder.

  python -m studies.sentences --model FOLDER --out runs/vectors.npy \\
    --config configs/leftright.py:text=vectors

As `vlc-jax embed_text`, with the left/right negatives, which are made at each reading.
"""

import numpy as np
from absl import flags

from vlc_jax.encode import text_encoders
from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.input_pipeline.hard_texts.left_right import LeftRight
from vlc_jax.setup import command_line
from vlc_jax.tools import command, embed_text

FLAGS, DTYPE = flags.FLAGS, "float32"


def write() -> str:
    """Writes or resumes the file; returns the summary line."""
    config = command_line.config()
    texts = dict.fromkeys(embed_text.texts_of(config))
    if "left_right" in config.input.negatives.generators:
        make, rng = LeftRight(), np.random.default_rng(0)
        texts |= dict.fromkeys(text for each in [*texts] for text in make.texts(each, rng, 1))
    out = vector_file.new_file(FLAGS.out, DTYPE)
    encoder = text_encoders.EncoderConfig(model=FLAGS.model, batch_size=64)
    encode, paths = text_encoders.build(encoder), encoder.whole_paths()._asdict()
    given = {"identity": encode.identity, "encoder": paths, "dtype": DTYPE}
    return f"{out}: vectors of {vector_file.write(out, [*texts], encode, **given).texts:,} texts"


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "file of the vectors", required=True)
    flags.DEFINE_string("model", None, "folder of a sentence-transformers model", required=True)
    command.start(write)
