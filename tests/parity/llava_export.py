"""Runs in an environment with torch: logits of a model that transformers loads from a folder.

python tests/parity/llava_export.py IO.npz FOLDER OUT.npy [CASE/]

CASE/ stands before the names of the inputs in IO.npz.
"""

import sys

import numpy as np
import torch
import transformers

NAMES = {"ids": "input_ids", "types": "token_type_ids", "mask": "attention_mask"}


def main(inputs: str, folder: str, out: str, case: str = "") -> None:
    model, report = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"], report
    assert not report["unexpected_keys"], report
    with np.load(inputs) as io, torch.no_grad():
        names = {f"{case}right/{ours}": theirs for ours, theirs in NAMES.items()}
        given = {theirs: torch.from_numpy(io[name]) for name, theirs in names.items() if name in io}
        pixels = torch.from_numpy(io[f"{case}images"]).permute(0, 3, 1, 2)[[0, 2]]
        logits = model.eval()(**given, pixel_values=pixels).logits
    np.save(out, logits.numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
