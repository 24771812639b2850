"""Accelerators as their makers describe them: peak speed, memory, bandwidths."""

from typing import NamedTuple


class Chip(NamedTuple):
    """One device of JAX.

    flops: dense bfloat16 peak, FLOP/s.   memory: bytes.   bandwidth: of the memory, bytes/s.
    interconnect: what a device sends to others of its slice or node while it receives as much,
      bytes/s; that to other slices and nodes, of the data centre's network, is a tenth or less.
    """

    flops: float
    memory: float
    bandwidth: float
    interconnect: float


_GIB = 2**30
# Prefix of `device_kind` -> its chip. TPUs: docs.cloud.google.com/tpu/docs/v3, /v4, /v5e, /v5p and
# /v6e ("bidirectional" figures are halved), their memory what libtpu 0.0.52 (of v3 and v4 0.0.42.1)
# gives to programs. A device is a chip, but of v3 one of its two cores: half of the page's figures.
# GPUs: NVIDIA's data sheets of SXM cards.
CHIPS = {
    "TPU v3": Chip(61.5e12, 15.48 * _GIB, 450e9, 41e9),
    "TPU v4": Chip(275e12, 30.75 * _GIB, 1228e9, 300e9),
    "TPU v5 lite": Chip(197e12, 15.75 * _GIB, 819e9, 200e9),
    "TPU v5e": Chip(197e12, 15.75 * _GIB, 819e9, 200e9),
    "TPU v5p": Chip(459e12, 95.73 * _GIB, 2765e9, 600e9),
    "TPU v5": Chip(459e12, 95.73 * _GIB, 2765e9, 600e9),
    "TPU v6 lite": Chip(918e12, 31.24 * _GIB, 1638e9, 400e9),
    "TPU v6e": Chip(918e12, 31.24 * _GIB, 1638e9, 400e9),
    "NVIDIA A100": Chip(312e12, 80e9, 2039e9, 300e9),
    "NVIDIA H100": Chip(989e12, 80e9, 3350e9, 450e9),
    "NVIDIA H200": Chip(989e12, 141e9, 4800e9, 450e9),
}


def find(kind: str) -> tuple[str, Chip] | None:
    """The prefix of CHIPS for a `device_kind`, and its chip; None for an unknown one."""
    for prefix in sorted(CHIPS, key=len, reverse=True):  # "TPU v5 lite" before "TPU v5"
        if kind.startswith(prefix):
            return prefix, CHIPS[prefix]
    return None
