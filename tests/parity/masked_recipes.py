"""Runs in an environment with torch: recipes whose negatives a masked language model makes.

  python tests/parity/masked_recipes.py model OUT WORDS.json
  python tests/parity/masked_recipes.py train PACKAGES TEXTS.json --config FILE --workdir DIR

model: OUT is a masked language model of these words that always puts in one of the last five.
train: a run as on the command line. PACKAGES: of the environment of the tests, which has JAX.
TEXTS.json gets the texts that the run's generators made, {generator: [[caption, texts], ...]}.
"""

import json
import os
import sys
from pathlib import Path

import tiny_bert
import torch
import transformers

FILLS = 5


def write_model(out: str, words: str) -> None:
    tokenizer, config = tiny_bert.build(json.loads(Path(words).read_text()))
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias[-FILLS:] += 100
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def train(packages: str, texts: str, *flags: str) -> None:
    sys.path.append(packages)
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles in half the time
    from vlc_jax import main
    from vlc_jax.input_pipeline.hard_texts import fill_mask, svlc
    from vlc_jax.run.processes.preemption import StopSignal
    from vlc_jax.setup import command_line

    made: dict[str, list] = {}

    def listened(kind: type) -> None:
        plain = kind.texts

        def make(self, caption, rng, count):
            found = plain(self, caption, rng, count)
            made.setdefault(kind.name, []).append([caption, list(found)])
            return found

        kind.texts = make

    listened(svlc.SvlcRule)
    listened(fill_mask.SvlcFillMask)
    command_line.parse_flags(["masked_recipes", *flags])
    code = int(main.run(StopSignal().install()))
    Path(texts).write_text(json.dumps(made))
    sys.exit(code)


if __name__ == "__main__":
    {"model": write_model, "train": train}[sys.argv[1]](*sys.argv[2:])
