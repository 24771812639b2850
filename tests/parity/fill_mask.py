"""Runs in an environment with torch: hard negatives of a tiny masked language model.

  python tests/parity/fill_mask.py CAPTIONS.json TAGS.jsonl OUT

CAPTIONS.json holds {mode: [caption, ...]}. OUT/texts.json gets, for each mode and caption, what
the generator makes in many draws, before and after a journey through pickle; and for each place of
each of its words the five words that the model itself holds for the likeliest there.
"""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import tiny_bert
import torch
import transformers

from vlc_jax.input_pipeline.hard_texts.fill_mask import SvlcFillMask

WORDS = ["A", "a", "the", "dog", "cat", "mat", "runs", "sits", "on", "under", "red", "big", "large"]
WORDS += ["apple", "##ing", "7", ".", ",", "an", "old", "and"]


def build(folder: Path) -> None:
    tokenizer, config = tiny_bert.build(WORDS, initializer_range=2.0)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def likeliest(folder: Path, words: list[str]) -> list[list[str]]:
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    known = [*tiny_bert.SPECIAL, *WORDS]
    found = []
    for place in range(len(words)):
        ids = [2, *(known.index(word) if word in known else 1 for word in words), 3]
        ids[place + 1] = 4
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, place + 1]
        found.append([known[i] for i in logits.topk(5).indices.tolist()])
    return found


def main(captions: dict[str, list[str]], tags: str, out: Path) -> None:
    folder = out / "model"
    build(folder)
    found = {}
    for mode, texts in captions.items():
        generator = SvlcFillMask(str(folder), tagger=f"precomputed:{tags}", mode=mode)
        there = pickle.loads(pickle.dumps(generator))
        for place, text in enumerate(texts):
            seeds = range(60 if place == 0 else 8)
            made = [list(generator(text, np.random.default_rng(seed), 2)) for seed in seeds]
            again = list(there(text, np.random.default_rng(7), 2))
            found[f"{mode}: {text}"] = {"made": made, "again": again}
    words = ["A dog sits on the red mat", "A dog , sits on the red mat ."]
    top = {each: likeliest(folder, each.split()) for each in words}
    (out / "texts.json").write_text(json.dumps({"found": found, "top": top}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3]))
