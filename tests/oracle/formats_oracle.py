#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Trivet's decoders with the PyPI packages `gguf` and `ml_dtypes`, bit for bit.

Usage: formats_oracle.py DRIVER [--blocks N] [--seed N]
DRIVER is the built tests/quant/format_driver.cc. Element formats are compared on every bit pattern, block formats on
random bytes with finite scales and on edge cases of the scales. Exits with 1 at any mismatch.
"""

import argparse
import subprocess
import sys

import gguf
import ml_dtypes
import numpy as np

# name: (columns, bytes, positions of F16 scales, position of an E8M0 scale)
GGUF_FORMATS = {
    "Q4_0": (32, 18, (0,), None),
    "Q4_1": (32, 20, (0, 2), None),
    "Q5_0": (32, 22, (0,), None),
    "Q5_1": (32, 24, (0, 2), None),
    "Q8_0": (32, 34, (0,), None),
    "Q4_K": (256, 144, (0, 2), None),
    "Q5_K": (256, 176, (0, 2), None),
    "Q6_K": (256, 210, (208,), None),
    "MXFP4-GGUF": (32, 17, (), 0),
}
ELEMENT_FORMATS = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
}
EDGE_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], np.uint16)


def decode(driver, name, data):
    """The driver's values."""
    out = subprocess.run([driver, name], input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, np.float32)


def differences(found, expected):
    """How many values differ in their bits, any NaN being equal to any other."""
    expected = np.ascontiguousarray(expected, np.float32).reshape(-1)
    if found.size != expected.size:
        return max(found.size, expected.size)
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(found) & np.isnan(expected))
    return int((~same).sum())


def finite_halves(rng, count):
    """Random F16 bits without infinities and NaNs; the first ones are the edge cases."""
    bits = rng.integers(0, 65536, count, dtype=np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] ^= 0x4000
    bits[: min(count, EDGE_HALVES.size)] = EDGE_HALVES[: min(count, EDGE_HALVES.size)]
    return bits


def check_gguf(driver, rng, blocks):
    """Number of values that differ from gguf-py's dequantisation, by format."""
    for name, (columns, size, halves, exponent) in GGUF_FORMATS.items():
        data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)
        for position in halves:
            data[:, position : position + 2] = finite_halves(rng, blocks).view(np.uint8).reshape(-1, 2)
        if exponent is not None:
            data[:, exponent] = np.arange(blocks) % 255
        kind = gguf.GGMLQuantizationType[name.split("-")[0]]
        with np.errstate(over="ignore", invalid="ignore"):
            expected = gguf.quants.dequantize(data, kind)
        yield name, differences(decode(driver, name, data), expected), blocks * columns


def check_elements(driver):
    """Every bit pattern of the formats of one element."""
    for name, dtype in ELEMENT_FORMATS.items():
        bits = np.arange(256, dtype=np.uint8) if np.dtype(dtype).itemsize == 1 else np.arange(65536, dtype=np.uint16)
        expected = bits.view(dtype).astype(np.float32)
        yield name, differences(decode(driver, name, bits), expected), bits.size


def check_pairs(driver, rng, blocks):
    """MXFP4 in pair order: all byte values under all exponents, against ml_dtypes' E2M1 and E8M0."""
    data = rng.integers(0, 256, (blocks, 17), dtype=np.uint8)
    data[:, 0] = np.arange(blocks) % 256
    codes = np.stack([data[:, 1:] & 15, data[:, 1:] >> 4], axis=-1).reshape(blocks, 32)
    scales = data[:, :1].view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * scales
    return differences(decode(driver, "MXFP4-PAIRS", data), expected), blocks * 32


def check_fp8(driver, rng, blocks):
    """FP8 with a float32 scale per block of 128: code value times scale."""
    scales = (rng.standard_normal(blocks) * np.exp2(rng.integers(-40, 40, blocks))).astype(np.float32)
    codes = rng.integers(0, 256, (blocks, 128), dtype=np.uint8)
    codes[: blocks // 2] = np.arange(256, dtype=np.uint8).reshape(2, 128)[np.arange(blocks // 2) % 2]
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scales[:, None]
    data = np.concatenate([scales[:, None].view(np.uint8), codes], axis=1)
    return differences(decode(driver, "FP8", data), expected), blocks * 128


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("--blocks", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    results = list(check_elements(args.driver)) + list(check_gguf(args.driver, rng, args.blocks))
    results.append(("MXFP4-PAIRS", *check_pairs(args.driver, rng, args.blocks)))
    results.append(("FP8", *check_fp8(args.driver, rng, args.blocks)))
    for name, wrong, count in results:
        print(f"{name}: {count} values, {wrong} differ")
    return 1 if any(wrong for _, wrong, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
