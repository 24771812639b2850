"""Runs in an environment with torch: recipes whose negatives a masked language model makes.

  python tests/parity/masked_recipes.py PACKAGES JOBS.json

PACKAGES: of the environment of the tests, which has JAX. JOBS.json: {"words": [...], "model":
folder, "runs": {texts: [flag, ...]}}. The model, of these words, always puts in one of the last
five. Each run is one of the command line; the file `texts` gets what its generators made,
{generator: [[caption, texts], ...]}.
"""

import json
import os
import sys
from pathlib import Path

import tiny_bert
import torch
import transformers

FILLS = 5


def write_model(out: str, words: list[str]) -> None:
    tokenizer, config = tiny_bert.build(words)
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        model.cls.predictions.bias[-FILLS:] += 100
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def listen(made: dict[str, list], kind: type) -> None:
    """Keeps what a generator makes from now on."""
    plain = kind.texts

    def make(self, caption, rng, count):
        found = plain(self, caption, rng, count)
        made.setdefault(kind.name, []).append([caption, list(found)])
        return found

    kind.texts = make


def main(packages: str, jobs: str) -> None:
    given = json.loads(Path(jobs).read_text())
    write_model(given["model"], given["words"])
    sys.path.append(packages)
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles in half the time
    import spacy  # noqa: F401
    from transformers.pipelines import fill_mask as _  # noqa: F401

    from vlc_jax import main
    from vlc_jax.input_pipeline.hard_texts import fill_mask, svlc
    from vlc_jax.run.processes.preemption import StopSignal
    from vlc_jax.setup import command_line

    made: dict[str, list] = {}
    for kind in (svlc.SvlcRule, fill_mask.SvlcFillMask):
        listen(made, kind)
    for texts, flags in given["runs"].items():
        if (pid := os.fork()) == 0:  # with all that is imported
            command_line.parse_flags(["masked_recipes", *flags])
            code = int(main.run(StopSignal().install()))
            Path(texts).write_text(json.dumps(made))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
