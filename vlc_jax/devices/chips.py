"""Published figures of accelerators: peak FLOP/s, memory, bandwidths."""

from typing import NamedTuple


class Chip(NamedTuple):
    """Figures of one JAX device.

    flops: dense bfloat16 peak, FLOP/s.   memory: bytes.   bandwidth: of the memory, bytes/s.
    interconnect: per direction, to other devices of the slice or node, bytes/s. The data centre's
      network, to other slices and nodes, has a tenth of it or less.
    """

    flops: float
    memory: float
    bandwidth: float
    interconnect: float


_GIB = 2**30
# Prefix of `device_kind` -> its chip. TPUs: docs.cloud.google.com/tpu/docs/v3, /v4, /v5e, /v5p and
# /v6e ("bidirectional" figures are halved); memory is the limit of libtpu 0.0.52 (v3 and v4:
# 0.0.42.1) for programs. A device is a chip; on v3 it is one of two cores, with half of the page's
# figures. GPUs: NVIDIA's data sheets of SXM cards.
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
    """(prefix in CHIPS, chip) of a `device_kind`; None for an unknown one."""
    for prefix in sorted(CHIPS, key=len, reverse=True):  # "TPU v5 lite" before "TPU v5"
        if kind.startswith(prefix):
            return prefix, CHIPS[prefix]
    return None
