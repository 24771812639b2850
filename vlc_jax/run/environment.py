"""Provenance of a run: its command line, its commit and the versions of its packages."""

import hashlib
import importlib.metadata
import json
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from vlc_jax import errors

PACKAGES = (
    "vlc_jax",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "grain",
    "numpy",
    "pillow",
)


def environment() -> dict[str, Any]:
    """Command, commit and package versions of this process, and the modules of other projects."""
    return {
        "command": shlex.join([*_program(), *sys.argv[1:]]),
        "commit": _commit(Path(__file__).resolve().parents[2]),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
        "modules": modules(),
    }


def modules() -> dict[str, dict[str, str]]:
    """File, version of its package and SHA-256 of each loaded module of the packages whose losses,
    heads, ... are in use (errors.Table)."""
    packages = errors.packages_in_use - {"vlc_jax", *sys.stdlib_module_names}
    installed = importlib.metadata.packages_distributions() if packages else {}
    found = {}
    for name, module in sorted(dict(sys.modules).items()):
        package, file = name.partition(".")[0], getattr(module, "__file__", None)
        if package in packages and file and Path(file).is_file():
            found[name] = {
                "file": file,
                "version": _version(installed.get(package, [package])[0]),
                "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest(),
            }
    return found


def _commit(folder: Path) -> str:
    """The commit of the checkout in `folder`, or of pip's source; "" if unknown."""
    # pyproject.toml, too: an installed package may lie inside the checkout of another project
    if (folder / ".git").exists() and (folder / "pyproject.toml").exists():
        commit = _git(folder, "rev-parse", "HEAD")
        if commit and _git(folder, "status", "--porcelain", "--untracked-files=no"):
            commit += "-dirty"
        return commit
    try:
        source = importlib.metadata.distribution("vlc_jax").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return json.loads(source or "{}").get("vcs_info", {}).get("commit_id", "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # vlc_jax, run from a checkout


def _program() -> list[str]:
    """The command's words before its arguments: `python -m MODULE`, or a console script."""
    spec = sys.modules["__main__"].__spec__ if "__main__" in sys.modules else None
    if spec is None:
        return [Path(sys.argv[0]).name]
    return ["python", "-m", spec.name.removesuffix(".__main__")]
