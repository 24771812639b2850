"""Plain torch for speed/evaluation.py and speed/loader.py.

An evaluation loop like CLIP_benchmark's and most authors': it decodes and encodes every image of a
case, and encodes every caption at 77 tokens. An input pipeline like open_clip's: a DataLoader over
JPEG files, Pillow's bicubic resize, centre crop, normalised float32 tensors."""

import itertools
import json
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader

from speed import harness
from vlc_jax.tools.load_exported import without_torchvision

MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
DEVIATION = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]


def pixels(path: Path) -> torch.Tensor:
    """CLIP's transforms by torchvision: short side 224, central square, normalised."""
    cropped = harness.centre_pixels(Image.open(path))
    return (torch.from_numpy(cropped).permute(2, 0, 1).float() / 255 - MEAN) / DEVIATION


def collate(folder: Path, rows: list[dict]) -> tuple[torch.Tensor, list[list[str]]]:
    """Pixels and captions of a batch of cases, in a worker of the DataLoader."""
    images = [pixels(folder / row["image"]) for row in rows]
    return torch.stack(images), [row["captions"] for row in rows]


def build_loader(folder: str, batch_size: int, batches: int) -> tuple[dict, harness.Ask]:
    """No facts, and a function that reads some batches and returns the images per CPU second."""
    # as ours: one thread, and no worker process
    torch.set_num_threads(1)
    rows = [{"image": path, "captions": ["a photo"]} for path in Path(folder).glob("*.jpg")]
    decode = partial(collate, Path(folder))
    loader = DataLoader(rows, batch_size=batch_size, shuffle=True, collate_fn=decode)

    def read(_: str) -> dict:
        some = itertools.islice(loader, batches)
        count, seconds = harness.timed(lambda: sum(len(images) for images, _ in some))
        return {"per CPU s": count / seconds["CPU s"]}

    return {}, read


def build(
    folder: str, batch_size: int, workers: int = 0, batches: int = 0
) -> tuple[dict, harness.Ask]:
    """Facts, and a function that evaluates a benchmark by name; writes the model's weights.

    Of a folder without cases only the pipeline."""
    if not Path(folder, "cases.json").exists():
        return build_loader(folder, batch_size, batches)
    without_torchvision()
    import open_clip

    folder = Path(folder)
    torch.manual_seed(0)
    model = open_clip.create_model("ViT-B-32", pretrained=None).eval()
    torch.save(model.state_dict(), folder / "weights.pt")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    vocabulary = next(Path(open_clip.__file__).parent.glob("bpe_simple_vocab*"))
    cases = json.loads((folder / "cases.json").read_text())

    @torch.inference_mode()
    def evaluate(name: str) -> torch.Tensor:
        decode = partial(collate, folder)
        loader = DataLoader(cases[name], batch_size, num_workers=workers, collate_fn=decode)
        scores, all_images, all_texts = [], [], []
        for images, captions in loader:
            image = F.normalize(model.encode_image(images.to(device)), dim=-1)
            tokens = tokenizer([text for options in captions for text in options]).to(device)
            text = F.normalize(model.encode_text(tokens), dim=-1)
            if name == "retrieval":
                all_images.append(image)
                all_texts.append(text)
                continue
            options = text.view(len(image), -1, text.shape[-1])
            scores.append((image[:, None] * options).sum(-1).flatten())
        if name == "retrieval":
            return (torch.cat(all_images) @ torch.cat(all_texts).T).diagonal()
        return torch.cat(scores)

    def ask(name: str) -> dict:
        scores, seconds = harness.timed(lambda: evaluate(name))
        return {**seconds, "scores": scores.tolist()}

    shape = {"family": "clip", "variant": "B/32", "image_size": 224, "activation": "gelu"}
    weights = {"path": str(folder / "weights.pt"), "tokenizer": str(vocabulary), **shape}
    return {"weights": weights}, ask


if __name__ == "__main__":
    harness.serve(build)
