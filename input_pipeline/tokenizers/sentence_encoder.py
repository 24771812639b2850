"""Sentence encoders, whose vectors models read in place of tokens (text_vectors.py)."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Encode = Callable[[Sequence[str]], np.ndarray]


class SentenceEncoder:
    """A sentence-transformers model: texts -> float32 (texts, width), with the model's pooling.

    model: its folder, or the name of a model in the local cache.

    Nothing is downloaded. Raises ValueError if the package or the model is missing.
    """

    def __init__(self, model: str, batch_size: int = 64) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ValueError(
                "--model needs the package sentence-transformers: pip install sentence-transformers"
            )
        import sentence_transformers

        try:
            self._model = sentence_transformers.SentenceTransformer(model, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"no sentence-transformers model at {model!r}: {str(error).splitlines()[0]}; name "
                "the folder of one, nothing is downloaded"
            ) from error
        self._batch_size = batch_size
        self.identity = {"model": model, "files": files_of(Path(model))}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._model.encode(
            list(texts), batch_size=self._batch_size, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)


def files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a model's files, or of its one file, to detect another model."""
    paths = sorted(path for path in (folder, *folder.rglob("*")) if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat()) for path in paths]
    return [(name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]
