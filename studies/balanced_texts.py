"""Hard negatives of a run on the scenes that a blind classifier cannot tell from its captions.

  python -m studies.balanced_texts --config configs/hn.py --balance .6 --out runs/texts

draws the captions that the run would read and their negatives, filters all pairs of a caption and
one of its negatives (input_pipeline/hard_texts/balance.py) and writes OUT/texts.jsonl, which the
generator from_table reads. OUT/evals/texts/0.json has the share of captions with a negative, the
share of negatives that are kept, and the separability of all ("_drawn") and of the kept ones, by
folds of another seed than those of the filter. --keep .45 keeps that share at random instead, the
control of the filter.
"""

import itertools
import json
from pathlib import Path

import numpy as np
from absl import flags

from vlc_jax.errors import usage_errors
from vlc_jax.evaluators import stats
from vlc_jax.input_pipeline.hard_texts import balance, from_table
from vlc_jax.input_pipeline.loader.examples import Example, Examples
from vlc_jax.setup import command_line
from vlc_jax.setup import data as data_setup
from vlc_jax.tools import command

FLAGS = flags.FLAGS


class NoPixels:
    """An image transform in place of decoding: only texts are read."""

    size = 1

    def __call__(self, image: object, rng: np.random.Generator) -> np.ndarray:
        return np.zeros((1, 1, 3), np.uint8)


def write() -> str:
    """Writes the table and its counts; returns the summary line."""
    config, out = command_line.config(), Path(FLAGS.out)
    source, texts = data_setup.source(config, "train"), data_setup.hard_texts(config)["negatives"]
    examples = Examples(source, NoPixels(), config.seed, 1, {}, negatives=texts)
    rows = [examples.group(n, {})[0] for n in range(config.steps * config.batch_size)]
    # the kind of each place; "": any
    kinds = sorted(texts.shares) if texts.fallback == "one_each" else [""] * texts.count
    drawn = [
        (row, text, kind)
        for row in rows
        for text, kind in zip(row.negatives, kinds, strict=False)
        if text  # "" in the place of a missing one
    ]
    options = [(row.caption, text) for row, text, _ in drawn]
    pairs = balance.Pairs(options, [row.record.id for row, *_ in drawn])
    out.mkdir(parents=True, exist_ok=True)
    if FLAGS.keep:
        is_kept = np.random.default_rng(config.seed).random(len(pairs)) < FLAGS.keep
        choice = np.where(is_kept, 0, -1)
    else:
        with usage_errors():
            choice = pairs.balanced(
                FLAGS.balance, config.seed, lambda each: print(each[:3], flush=True)
            )
    values = {
        "has_negative": np.array([any(row.negatives) for row in rows]),
        "kept": choice >= 0,
        "separability_drawn": pairs.credit(np.zeros(len(drawn), np.int64), config.seed),
        "separability": pairs.credit(choice, config.seed),
    }
    metrics = {name: stats.proportion(each, None)._asdict() for name, each in values.items()}
    folder = out / "evals" / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    kept = (each for each, chosen in zip(drawn, choice, strict=True) if chosen >= 0)
    # the texts of a row are one behind the other
    groups = itertools.groupby(kept, lambda each: id(each[0]))
    (out / "texts.jsonl").write_text("".join(f"{_line([*group])}\n" for _, group in groups))
    (folder / "0.json").write_text(json.dumps({"metrics": metrics}))
    return f"{out}: " + ", ".join(f"{name} {each['value']:.3f}" for name, each in metrics.items())


def _line(drawn: list[tuple[Example, str, str]]) -> str:
    """Line of the table, of the kept negatives of a row and their kinds."""
    rows, negatives, kinds = zip(*drawn, strict=True)
    scene = from_table.key_of(rows[0].record.meta["scene"])
    line = {"caption": rows[0].caption, "scene": scene, "negatives": negatives}
    return json.dumps(line | ({"negative_kinds": kinds} if any(kinds) else {}))


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "folder of the table", required=True)
    flags.DEFINE_float("balance", 0.6, "largest separability of the texts that are kept")
    flags.DEFINE_float("keep", 0.0, "share of the texts that are kept at random", 0.0, 1.0)
    command.start(write)
