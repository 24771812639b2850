"""Runs in an environment with torch: scores of DCSM's network, and the archive of its training.

  python tests/parity/dcsm_reference.py cnn|mlp replace|insert OUT

OUT/dcsm.pt is saved as Raphoo/DCSM_Ideal_CLIP saves its training: state dicts, the embedding of
words as a module, a tokenizer as an object. OUT/io.npz holds tokens of images and texts in the
sizes of CLIP B/16 and 30 tokens, the place of each word, the scores, and the gradient of the
parameters for their training loss.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import nn

PATCHES, LENGTH, WIDTH, WORDS, IMAGES, TEXTS = 197, 30, 512, 11, 2, 2
PLACES = [{3: 0, 7: 2}, {}]  # of each text: column -> word


class Network(nn.Module):
    """The layers by the names of the authors', in the order of use."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "cnn":
            self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
            self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
            self.fc1 = nn.Linear(4 * PATCHES * LENGTH, 128)
            self.fc2 = nn.Linear(128, 1)
        else:
            self.fc1 = nn.Linear(PATCHES * LENGTH, 64)
            self.fc2 = nn.Linear(64, 32)
            self.fc3 = nn.Linear(32, 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        x = maps.flatten(0, 1)
        if self.kind == "cnn":
            x = F.relu(self.conv2(F.relu(self.conv1(x[:, None]))))
        *hidden, last = (layer for layer in self.children() if isinstance(layer, nn.Linear))
        x = x.flatten(1)
        for layer in hidden:
            x = F.relu(layer(x))
        return last(x).reshape(maps.shape[:2])


def with_words(maps: torch.Tensor, words: nn.Embedding, rows: str) -> torch.Tensor:
    """The maps with the vector of each word over its column, or put there, word after word."""
    texts = []
    for text, places in enumerate(PLACES):
        columns = list(maps[:, text].unbind(-1))
        for place, word in sorted(places.items(), key=lambda pair: pair[1]):
            vector = words(torch.tensor(word)).expand(len(maps), -1)
            if rows == "replace":
                columns[place] = vector
            else:
                columns.insert(place, vector)
        texts.append(torch.stack(columns[:LENGTH], dim=-1))
    return torch.stack(texts, dim=1)


def tokenizer(folder: Path) -> transformers.CLIPTokenizer:
    vocabulary = {"a": 0, "a</w>": 1, "<|startoftext|>": 2, "<|endoftext|>": 3}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))


def main(kind: str, rows: str, out: Path) -> None:
    torch.manual_seed(0)
    network, words = Network(kind), nn.Embedding(WORDS, PATCHES)
    with torch.no_grad():
        words.weight.copy_((F.normalize(words.weight, dim=1) + 1) / 3)
    image = F.normalize(torch.randn(IMAGES, PATCHES, WIDTH), dim=-1)
    text = F.normalize(torch.randn(TEXTS, LENGTH, WIDTH), dim=-1)
    maps = with_words(torch.einsum("ipd,jtd->ijpt", image, text), words, rows)
    scores = network((maps - maps.mean()) / maps.std())
    labels = torch.arange(IMAGES)
    optimizer = torch.optim.Adam(network.parameters())
    loss = F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)
    loss.backward()
    gradients = {name: x.grad.clone() for name, x in network.named_parameters()}
    saved = {
        "epoch": 26,
        "model_state_dict": {name: x.clone() for name, x in network.state_dict().items()},
        "clip_state_dict": {"logit_scale": torch.tensor(4.6)},
        "clip_text_tokenizer": tokenizer(out),
        "train_loss": [float(loss)],
        "grads": {},
        "external_logic_token_embeddings": words,
        "learned_lookup": None,
    }
    optimizer.step()  # its state is in the archive, too
    torch.save({**saved, "optimizer_state_dict": optimizer.state_dict()}, out / "dcsm.pt")
    arrays = {"image": image, "text": text, "scores": scores.detach(), "loss": loss.detach()}
    arrays |= {f"gradient/{name}": x for name, x in gradients.items()}
    marks = np.zeros((TEXTS, LENGTH), np.int32)
    for row, places in zip(marks, PLACES, strict=True):
        for place, word in places.items():
            row[place] = 1 + word
    np.savez(out / "io.npz", marks=marks, **{name: x.numpy() for name, x in arrays.items()})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
