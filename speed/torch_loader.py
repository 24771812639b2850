"""A plain input pipeline in torch for speed/loader.py, like open_clip's.

A DataLoader over JPEG files: Pillow's bicubic resize, centre crop, normalised float32 tensors."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from speed.torch_evaluation import pixels


class Pairs(Dataset):
    """(pixels, caption) of each file of a folder."""

    def __init__(self, folder: Path):
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, str]:
        return pixels(self.files[index]), "a photo of something"


def main() -> None:
    """Answers each line of stdin with the images and CPU seconds of one pass, a line of JSON."""
    torch.set_num_threads(1)
    pairs = Pairs(Path(sys.argv[1]))
    loader = DataLoader(pairs, batch_size=int(sys.argv[2]), shuffle=True)  # no worker: one core
    print(json.dumps({"name": f"torch {torch.__version__}"}), flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        for _ in loader:
            pass
        seconds = time.process_time() - start
        print(json.dumps({"images": len(pairs), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
