"""Runs in an environment with torch: logits of a LLaVA that transformers loads from a folder.

python tests/parity/llava_export.py IO.npz FOLDER OUT.npy
"""

import sys

import numpy as np
import torch
import transformers


def main(inputs: str, folder: str, out: str) -> None:
    model, report = transformers.LlavaForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"], report
    assert not report["unexpected_keys"], report
    with np.load(inputs) as io, torch.no_grad():
        logits = model.eval()(
            input_ids=torch.from_numpy(io["right/ids"]),
            attention_mask=torch.from_numpy(io["right/mask"]),
            pixel_values=torch.from_numpy(io["images"]).permute(0, 3, 1, 2)[[0, 2]],
        ).logits
    np.save(out, logits.numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
