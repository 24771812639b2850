"""A plain input pipeline in torch for speed/loader.py, like open_clip's.

A DataLoader over JPEG files: Pillow's bicubic resize, centre crop, normalised float32 tensors."""

from functools import partial
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from speed import harness
from speed.torch_evaluation import collate


def build(folder: str, batch_size: int) -> tuple[dict, harness.Ask]:
    """Facts, and a function that reads all files once and returns the images per CPU second."""
    # as ours: one thread
    torch.set_num_threads(1)
    rows = [{"image": path, "captions": ["a photo"]} for path in Path(folder).glob("*.jpg")]
    # no worker process: as ours, it has one core
    decode = partial(collate, Path(folder))
    loader = DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=decode)

    def read(_: str) -> dict:
        count, seconds = harness.timed(lambda: sum(len(images) for images, _ in loader))
        return {"per CPU s": count / seconds["CPU s"]}

    return {}, read


if __name__ == "__main__":
    harness.serve(build)
