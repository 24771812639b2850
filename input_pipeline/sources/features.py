"""Records with precomputed features, which `vlc-jax cache_features` stored."""

import bisect
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.sources.shards import ShardsSource

HARD_IMAGE = "is_hard_image"  # in `meta` of records that only `find` returns


class FeaturesSource(ShardsSource):
    """Records of a folder of features, in the order of the source they were made from.

    After them lie hard images that are no records of that source: `find` returns them. `facts` say
    which weights made the features of which pixels and tokens. Raises what ShardsSource raises.
    """

    holds_features = True
    written_by = "vlc-jax cache_features"

    def __init__(self, split: str = "all", *, path: str | Path) -> None:
        super().__init__(split, path=path)
        stored = range(len(self._entries))
        # Hard images come last, so the first of them is found by bisection.
        self._count = bisect.bisect_left(stored, True, key=lambda i: HARD_IMAGE in self[i].meta)

    @property
    def facts(self) -> dict[str, Any]:
        """Metadata of everything that the features depend on."""
        return self.manifest["request"]["features"]

    def __len__(self) -> int:
        return self._count
