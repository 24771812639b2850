"""An object store in a folder of this disk, disk://FOLDER: writes are whole, no folder is empty."""

from contextlib import suppress
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores.any_path import StorePath


class Disk(LocalFileSystem):
    protocol = "disk"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("disk://"))

    def pipe_file(self, path, value, mode="overwrite", **options):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if mode == "create":
            with open(path, "xb") as file:
                file.write(value)
        else:
            stores.replace(Path(path), value)

    def put_file(self, file, path, **options):
        self.pipe_file(path, Path(file).read_bytes())

    cp_file = put_file

    def rm_file(self, path):
        super().rm_file(path)
        with suppress(OSError):  # not empty
            for folder in Path(path).parents:
                folder.rmdir()


fsspec.register_implementation("disk", Disk, clobber=True)


def on_disk(folder):
    """A folder of this disk as one of an object store."""
    return StorePath(f"disk://{folder}")
