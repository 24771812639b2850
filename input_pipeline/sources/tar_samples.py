"""Samples of webdataset tars: files KEY.SUFFIX of one KEY, read in place."""

import collections
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

IMAGE = "image"  # the part that has a suffix of an image
# in place of (offset, size): two files of a sample are the same part
TWICE = (-1, 0)
# bytes: two empty blocks end a tar
_END = 1024
_DAMAGE = (tarfile.TarError, EOFError, ValueError, OverflowError)
_HEADER = 1 << 20  # most bytes of a header, such as that of a long name


class Sample(NamedTuple):
    """Files of one key. parts: IMAGE or suffix -> (offset, size) in the tar.   documents: suffix ->
    content of the parts that were read."""

    key: str
    parts: dict[str, tuple[int, int]]
    documents: dict[str, bytes]


class _Headers(NamedTuple):
    """The file of a tar, as tarfile reads headers: it trusts the sizes in them."""

    file: BinaryIO

    def read(self, size: int) -> bytes:
        if size > _HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self.file.read(size)

    def seek(self, offset: int) -> int:
        return self.file.seek(offset)

    def tell(self) -> int:
        return self.file.tell()


_Part = tuple[str, str, str, tarfile.TarInfo]  # key, kind, name, member


class _Found(NamedTuple):
    """Samples so far. The other fields: as of `samples`."""

    suffixes: Sequence[str]
    documents: Sequence[str]
    digest: Any
    samples: dict[str, Sample]

    def kind(self, suffix: str) -> str:
        if f".{suffix.lower()}" in image_ops.suffixes():
            return IMAGE
        return suffix.lower() if suffix.lower() in self.suffixes else ""

    def add(self, file: BinaryIO, key: str, kind: str, name: str, member: tarfile.TarInfo) -> None:
        sample = self.samples.setdefault(key, Sample(key, {}, {}))
        sample.parts[kind] = TWICE if kind in sample.parts else (member.offset_data, member.size)
        self.digest.update(f"{name} {member.offset_data} {member.size}\n".encode())
        if kind in self.documents:
            file.seek(member.offset_data)
            content = file.read(member.size)
            self.digest.update(content)
            sample.documents[kind] = content


def samples(
    path: AnyPath, digest: Any, suffixes: Sequence[str], documents: Sequence[str], advice: str
) -> Iterator[Sample]:
    """Samples of a tar, in order. KEY ends at the first dot, as in webdataset, or at the last one
    if nothing is called KEY.SUFFIX ("photo.1.jpg"); photo.1.mask.png is then ignored, too.

    suffixes: of the parts beside the image; other files, and those of macOS ("._NAME"), are
    ignored.   documents: the suffixes
    among them whose content is read now.   digest: gets headers and documents.   advice: end of the
    message of the DataError for a tar that is cut.
    """
    found = _Found(suffixes, documents, digest, {})
    # parts by the last dot of their name: of a sample unless the first dot makes one, as in
    # 7.jpg, 7.txt, 7.mask.png
    by_last_dot = list[_Part]()
    end = 0
    with any_path.opened(path) as file:
        length = file.seek(0, os.SEEK_END)
    try:
        # "r:" refuses compressed tars, in which offsets would mean nothing.
        with any_path.opened(path) as file, tarfile.open(fileobj=_Headers(file), mode="r:") as tar:
            for member in tar:
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                # before that many bytes are read
                if not 0 <= member.size <= end <= length:
                    raise EOFError(f"a file of {member.size:,} bytes in {length:,}")
                # tarfile decodes bytes that are not UTF-8 to surrogates, which no log can print
                whole = member.name.encode("utf-8", "surrogateescape")
                whole = whole.decode("utf-8", "backslashreplace")
                folder, slash, name = whole.removeprefix("./").rpartition("/")
                # macOS writes one beside every file
                if name.startswith("._"):
                    continue
                stem, _, suffix = name.partition(".")
                key, kind = folder + slash + stem, found.kind(suffix)
                if member.isfile() and kind:
                    found.add(file, key, kind, whole, member)
                elif member.isfile() and (kind := found.kind(suffix.rpartition(".")[2])):
                    by_last_dot.append((key, kind, whole, member))
            for part in _own_samples(by_last_dot, {*found.samples}):
                found.add(file, *part)
    # the last two: of headers of sparse files, and of a header of a header of a header ...
    except (*_DAMAGE, LookupError, RecursionError) as error:
        raise DataError(f"{path} is no whole tar: {error}; {advice}") from error
    if length < end + _END:
        raise DataError(f"{path} is no whole tar: it ends after {end:,} bytes; {advice}")
    yield from found.samples.values()


def _own_samples(parts: Sequence[_Part], first_keys: set[str]) -> Iterator[_Part]:
    """The parts whose key ends at the last dot, with that key.

    first_keys: of samples whose key ends at the first dot; they have none of these parts.
    """
    kinds = collections.defaultdict[str, set[str]](set)
    for _, kind, name, _ in parts:
        kinds[_until_last_dot(name)].add(kind)
    for key, kind, name, member in parts:
        last = _until_last_dot(name)
        if key not in first_keys and not _is_beside(last, kinds):
            yield last, kind, name, member


def _until_last_dot(name: str) -> str:
    return name.removeprefix("./").rpartition(".")[0]


def _is_beside(key: str, kinds: Mapping[str, set[str]]) -> bool:
    """True for a lone image whose key is that of another image and more: photo.1.mask, photo.1."""
    shorter = key.rpartition(".")[0]
    while shorter and kinds[key] == {IMAGE}:
        if IMAGE in kinds.get(shorter, ()):
            return True
        shorter = shorter.rpartition(".")[0]
    return False
