"""Runs in an environment with torch: random weights of transformers' DINOv2, and outputs.

  python tests/parity/dinov2_reference.py OUT

OUT gets the folders plain, registers and swiglu: weights for 7 x 7 patches of 4 pixels.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

from tests.parity.reference import recorded, shaken

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 4,
         "image_size": 28}  # fmt: skip
CASES = {"plain": (False, {}), "registers": (True, {}), "swiglu": (False, {"use_swiglu_ffn": True})}


def main(out: Path) -> None:
    for name, (has_registers, options) in CASES.items():
        kind = "Dinov2WithRegisters" if has_registers else "Dinov2"
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**SIZES, **options)
        # its matrices begin so small that attention is even
        model = shaken(getattr(transformers, f"{kind}Model")(config), noise=0.1)
        model.save_pretrained(out / name)
        arrays: dict = {}
        recorded(model.encoder.layer, arrays, "image")
        generator = torch.Generator().manual_seed(0)
        for size in (16, 28, 40):  # positions are resampled to 4 x 4, not at all, to 10 x 10
            image = torch.randn(2, 3, size, size, generator=generator)
            with torch.no_grad():
                outputs = model(image)
            arrays |= {
                f"image_{size}": image.permute(0, 2, 3, 1).numpy(),
                f"tokens_{size}": outputs.last_hidden_state.numpy(),
                f"pooled_{size}": outputs.pooler_output.numpy(),
                **{f"block_{i}_{size}": arrays.pop(f"image_{i}") for i in range(2)},
            }
        np.savez(out / f"{name}.npz", **arrays)
    processor = transformers.BitImageProcessor(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    processor.save_pretrained(out / "plain")
    pixels = np.random.default_rng(0).integers(0, 256, (300, 431, 3)).astype(np.uint8)
    read = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    np.savez(out / "pixels.npz", picture=pixels, pixels=read.transpose(1, 2, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
