"""A plain torch evaluation loop for speed/evaluation.py, like CLIP_benchmark's and most authors'.

Decodes and encodes every image of a case, and encodes every caption at 77 tokens."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from vlc_jax.tools.load_exported import without_torchvision

MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
DEVIATION = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]


class Cases(Dataset):
    """(pixels, captions) of each case."""

    def __init__(self, folder: Path, rows: list[dict]):
        self.folder, self.rows = folder, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, list[str]]:
        row = self.rows[index]
        return pixels(self.folder / row["image"]), row["captions"]


def pixels(path: Path) -> torch.Tensor:
    """CLIP's transforms by torchvision: short side 224, central square, normalised."""
    picture = Image.open(path).convert("RGB")
    scale = 224 / min(picture.size)
    width, height = (max(224, int(scale * side)) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - 224) // 2, (height - 224) // 2
    cropped = np.array(picture.crop((left, top, left + 224, top + 224)))
    return (torch.from_numpy(cropped).permute(2, 0, 1).float() / 255 - MEAN) / DEVIATION


def collate(batch: list) -> tuple[torch.Tensor, list[list[str]]]:
    images, captions = zip(*batch, strict=True)
    return torch.stack(images), list(captions)


def main() -> None:
    """Answers each line of stdin, a benchmark's name, with a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
    folder, batch_size, workers = Path(sys.argv[1]), *map(int, sys.argv[2:4])
    without_torchvision()
    import open_clip

    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-32", pretrained=None).eval()
    torch.save(model.state_dict(), folder / "weights.pt")
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    vocabulary = next(Path(open_clip.__file__).parent.glob("bpe_simple_vocab*"))
    cases = json.loads((folder / "cases.json").read_text())
    print(json.dumps({"vocabulary": str(vocabulary)}), file=answers, flush=True)

    @torch.inference_mode()
    def evaluate(name: str) -> torch.Tensor:
        loader = DataLoader(
            Cases(folder, cases[name]), batch_size, num_workers=workers, collate_fn=collate
        )
        scores, all_images, all_texts = [], [], []
        for images, captions in loader:
            image = F.normalize(model.encode_image(images), dim=-1)
            tokens = tokenizer([text for options in captions for text in options])
            text = F.normalize(model.encode_text(tokens), dim=-1)
            if name == "retrieval":
                all_images.append(image)
                all_texts.append(text)
                continue
            options = text.view(len(image), -1, text.shape[-1])
            scores.append((image[:, None] * options).sum(-1)[:, 0])
        if name == "retrieval":
            return (torch.cat(all_images) @ torch.cat(all_texts).T).diagonal()
        return torch.cat(scores)

    for line in sys.stdin:
        name = line.strip()
        start, cpu = time.perf_counter(), cpu_seconds()
        scores = evaluate(name)
        answer = {"s": time.perf_counter() - start, "cpu": cpu_seconds() - cpu}
        np.save(folder / f"torch_{name}.npy", scores.numpy())
        answer["scores"] = str(folder / f"torch_{name}.npy")
        print(json.dumps(answer), file=answers, flush=True)


def cpu_seconds() -> float:
    """CPU seconds of this process and of finished workers."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


if __name__ == "__main__":
    main()
