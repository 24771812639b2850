"""Runs in an environment with torch: an exported folder loaded as its users load it.

python tests/parity/load_exported.py hf|open_clip FOLDER INPUTS.npz OUTPUTS.npz
"""

import sys

import numpy as np
import torch
from reference import first_sine, without_torchvision  # beside this file


def hugging_face(folder: str, image: torch.Tensor, text: torch.Tensor):
    import transformers

    model, report = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    outputs = model.eval()(input_ids=text, pixel_values=image)
    return outputs.image_embeds, outputs.text_embeds, model.logit_scale.exp()


def open_clip(folder: str, image: torch.Tensor, text: torch.Tensor):
    without_torchvision()
    first_sine()
    import open_clip

    model = open_clip.create_model(f"local-dir:{folder}").eval()
    embeds = model.encode_image(image, normalize=True), model.encode_text(text, normalize=True)
    return *embeds, model.logit_scale.exp()


if __name__ == "__main__":
    kind, source, inputs, target = sys.argv[1:]
    with np.load(inputs) as given:
        pixels = torch.from_numpy(given["image"]).permute(0, 3, 1, 2)
        ids = torch.from_numpy(given["text"].astype(np.int64))
    with torch.no_grad():
        results = {"hf": hugging_face, "open_clip": open_clip}[kind](source, pixels, ids)
    np.savez(target, **dict(zip(("image", "text", "scale"), map(np.asarray, results), strict=True)))
