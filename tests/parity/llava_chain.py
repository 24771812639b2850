"""Runs in an environment with torch: a tiny LLaVA that transformers writes, and logits of a folder.

python tests/parity/llava_chain.py write FOLDER
python tests/parity/llava_chain.py logits IO.npz FOLDER OUT.npy
"""

import sys

import numpy as np
import torch
import transformers

from tests.parity import llava_reference


def write(folder: str) -> None:
    with torch.no_grad():
        llava_reference.llava().save_pretrained(folder)


def logits(inputs: str, folder: str, out: str) -> None:
    kind = transformers.LlavaForConditionalGeneration
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"], report
    assert not report["unexpected_keys"], report
    with np.load(inputs) as io, torch.no_grad():
        ids, images = torch.from_numpy(io["ids"]), torch.from_numpy(io["images"])
        found = model.eval()(input_ids=ids, pixel_values=images.permute(0, 3, 1, 2)).logits
    np.save(out, found.numpy())


if __name__ == "__main__":
    {"write": write, "logits": logits}[sys.argv[1]](*sys.argv[2:])
