"""Stands in for torchvision, see `reference.without_torchvision`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from reference import without_torchvision

without_torchvision()
