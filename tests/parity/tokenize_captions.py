"""Runs in an environment with torch: open_clip's token ids of captions.

python tests/parity/tokenize_captions.py CAPTIONS.json IDS.npz
"""

import json
import sys
from pathlib import Path

import numpy as np
from reference import without_torchvision

if __name__ == "__main__":
    without_torchvision()
    import open_clip

    captions = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    vocabulary = Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")
    ids = open_clip.SimpleTokenizer(str(vocabulary), context_length=77)(captions)
    np.savez(sys.argv[2], ids=ids.numpy(), vocabulary=str(vocabulary))
