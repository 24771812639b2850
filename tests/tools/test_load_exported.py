"""The script that another interpreter runs on an exported folder."""

import subprocess
import sys

from tests.support import helpers

# open_clip's imports of torchvision, as of version 3.3
OPEN_CLIP = """
import torchvision.transforms.functional as F
from torchvision.ops.misc import FrozenBatchNorm2d
from torchvision.transforms import Compose, InterpolationMode, Normalize, Resize


class ResizeKeepRatio(Resize):
    pass


def create_model(name):
    assert InterpolationMode.BICUBIC.value == "bicubic"
    raise SystemExit(f"asked for {name}")
"""
LOAD = "from vlc_jax.tools import load_exported; load_exported.open_clip('folder', None, None)"


def test_open_clip_is_imported_without_torchvision(tmp_path):
    (tmp_path / "open_clip.py").write_text(OPEN_CLIP)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/open_clip_config.json").write_text('{"model_cfg": {"text_cfg": {}}}')
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{helpers.ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "asked for local-dir:folder\n"
