"""Runs in an environment with torch: token ids of captions by the reference tokenizers.

  python tests/parity/tokenize_captions.py CAPTIONS.json OUT [CLASS LENGTH FOLDER]

OUT/ids.npz gets open_clip's CLIP ids and the path of its vocabulary; with CLASS, those of that
class of transformers loaded from FOLDER and then saved as OUT/saved, or of open_clip's HFTokenizer
with a rule of cleaning (HFTokenizer:whitespace).
"""

import json
import sys
from pathlib import Path

import numpy as np

from vlc_jax.tools.load_exported import without_torchvision


def hugging_face(captions: list[str], out: Path, name: str, length: int, folder: str) -> None:
    import transformers

    if name.startswith("HFTokenizer"):  # open_clip's around one of transformers
        without_torchvision()
        from open_clip.tokenizer import HFTokenizer

        tokenizer = HFTokenizer(folder, length, clean=name.partition(":")[2])
        tokenizer.tokenizer.save_pretrained(out / "saved")
        np.savez(out / "ids.npz", ids=tokenizer(captions).numpy())
        return
    tokenizer = getattr(transformers, name).from_pretrained(folder)
    limits = {"padding": "max_length", "truncation": True, "max_length": length}
    ids = tokenizer(captions, **limits, return_tensors="np")["input_ids"]
    tokenizer.save_pretrained(out / "saved")
    np.savez(out / "ids.npz", ids=ids)


def open_clip(captions: list[str], out: Path) -> None:
    without_torchvision()
    import open_clip

    vocabulary = Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")
    ids = open_clip.SimpleTokenizer(str(vocabulary), context_length=77)(captions)
    np.savez(out / "ids.npz", ids=ids.numpy(), vocabulary=str(vocabulary))


if __name__ == "__main__":
    captions, out = json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2])
    if len(sys.argv) > 3:
        hugging_face(captions, out, sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        open_clip(captions, out)
