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
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from vlc_jax.input_pipeline.hard_texts.fill_mask import SvlcFillMask

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["A", "a", "the", "dog", "cat", "mat", "runs", "sits", "on", "under", "red", "big", "large"]
WORDS += ["apple", "##ing", "7", ".", ",", "an", "old", "and"]


def build(folder: Path) -> None:
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, initializer_range=2.0,
    )  # fmt: skip
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def likeliest(folder: Path, words: list[str]) -> list[list[str]]:
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    known = [*SPECIAL, *WORDS]
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
