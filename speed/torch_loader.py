"""A plain input pipeline in torch for speed/loader.py, like open_clip's.

A DataLoader over JPEG files: Pillow's bicubic resize, centre crop, normalised float32 tensors."""

import sys
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from speed import harness
from speed.torch_evaluation import collate


def build(folder: Path, batch_size: int) -> tuple[dict, harness.Ask]:
    """Facts, and a function that reads all files once and returns the images per CPU second."""
    # as ours: one thread
    torch.set_num_threads(1)
    rows = [{"image": path, "captions": ["a photo"]} for path in folder.glob("*.jpg")]
    # no worker process: as ours, it has one core
    decode = partial(collate, folder)
    loader = DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=decode)

    def read(_: str) -> dict:
        count, seconds = harness.timed(lambda: sum(len(images) for images, _ in loader))
        return {"rate": count / seconds["cpu"]}

    return {"name": f"torch {torch.__version__}"}, read


if __name__ == "__main__":
    harness.serve(build, Path(sys.argv[1]), int(sys.argv[2]))
