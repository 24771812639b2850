"""Runs in an environment with torch: open_clip's token ids of captions.

python tests/parity/tokenize_captions.py CAPTIONS.json IDS.npz
"""

import json
import sys
from pathlib import Path

import numpy as np
from reference import without_torchvision


def hugging_face(captions: list[str], folder: str) -> np.ndarray:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(captions, padding="max_length", truncation=True, return_tensors="np")
    return ids["input_ids"]


if __name__ == "__main__":
    captions = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if len(sys.argv) > 3:
        np.savez(sys.argv[2], ids=hugging_face(captions, sys.argv[3]))
        sys.exit()
    without_torchvision()
    import open_clip

    vocabulary = Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")
    ids = open_clip.SimpleTokenizer(str(vocabulary), context_length=77)(captions)
    np.savez(sys.argv[2], ids=ids.numpy(), vocabulary=str(vocabulary))
