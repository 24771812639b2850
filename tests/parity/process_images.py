"""Runs in an environment with torch: transformers' image processors on Pillow, before rescaling.

python tests/parity/process_images.py FOLDER_OF_PNG OUT.npz
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil


def torchvision(picture: Image.Image, size: int = 224) -> np.ndarray:
    """Resize and CenterCrop of torchvision on Pillow, which open_clip and OpenAI's code use: its
    formulas, since its wheels do not load with every build of torch."""
    width, height = picture.size
    longer = int(size * max(width, height) / min(width, height))
    shape = (size, longer) if width <= height else (longer, size)
    if shape != picture.size:
        picture = picture.resize(shape, Image.Resampling.BICUBIC)
    left, top = (round((side - size) / 2.0) for side in picture.size)
    return np.asarray(picture.crop((left, top, left + size, top + size)))


if __name__ == "__main__":
    plain = {"do_rescale": False, "do_normalize": False}
    processors = {
        "clip": CLIPImageProcessorPil(**plain),
        "llava": LlavaImageProcessorPil(**plain, do_pad=True),
        "torchvision": None,
        "siglip": SiglipImageProcessorPil(**plain),
        "siglip2": SiglipImageProcessorPil(**plain, resample=2),  # as its files say: bilinear
        "naflex": Siglip2ImageProcessorPil(**plain, do_convert_rgb=True),
    }
    results = {}
    for path in sorted(Path(sys.argv[1]).glob("*.png")):
        with Image.open(path) as picture:
            picture.load()
        for name, processor in processors.items():
            if processor is None:
                results[f"{path.stem}/{name}"] = torchvision(picture.convert("RGB"))
                continue
            outputs = processor(picture, return_tensors="np")
            pixels = outputs["pixel_values"][0]
            if name == "naflex":
                results[f"{path.stem}/{name}"] = pixels.astype(np.uint8)
                results[f"{path.stem}/grid"] = outputs["spatial_shapes"][0]
                continue
            results[f"{path.stem}/{name}"] = np.moveaxis(pixels, 0, -1).astype(np.uint8)
    np.savez(sys.argv[2], **results)
