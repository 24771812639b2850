"""Runs in an environment with sentence-transformers: vectors of a tiny model of it.

  python tests/parity/sentence_encoder.py TEXTS.json OUT

OUT gets a model (words, mean pooling, unit length), OUT/x.npy what `embed` wrote with it, and
OUT/expected.npy the mean of the model's own token features, scaled, one text at a time.
"""

import json
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import tiny_bert
import torch
import transformers
from sentence_transformers.sentence_transformer import modules

from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.input_pipeline.tokenizers import sentence_encoder


def build(folder: Path, words: list[str]) -> None:
    fast, config = tiny_bert.build(words)
    transformers.BertModel(config).save_pretrained(folder / "bert")
    fast.save_pretrained(folder / "bert")
    reader = modules.Transformer(str(folder / "bert"), max_seq_length=16)
    parts = [reader, modules.Pooling(config.hidden_size, pooling_mode="mean"), modules.Normalize()]
    sentence_transformers.SentenceTransformer(modules=parts).save(str(folder / "model"))


def expected(folder: Path, text: str) -> np.ndarray:
    model = transformers.BertModel.from_pretrained(folder / "bert").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "bert")
    with torch.no_grad():
        tokens = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
    mean = tokens.mean(axis=0)
    return mean / np.linalg.norm(mean)


def main(texts: list[str], out: Path) -> None:
    build(out, sorted({word for text in texts for word in text.split()}))
    encoder = sentence_encoder.SentenceEncoder(str(out / "model"), batch_size=2)
    vector_file.write(out / "x.npy", texts, encoder, identity=encoder.identity)
    np.save(out / "expected.npy", np.stack([expected(out, text) for text in texts]))
    try:
        sentence_encoder.SentenceEncoder(str(out / "no_model"))
    except ValueError as error:
        (out / "error.txt").write_text(str(error))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
