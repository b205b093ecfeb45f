#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `trivet quantize` writes with numpy and ml_dtypes, byte for byte.

Usage: quantize_oracle.py TRIVET MODEL
MODEL is quantised to both formats, and so is a small made-up model whose weights hold what is hard: blocks of zeros,
numbers next to the limits of their types, halfway points, and widths that blocks do not divide. Codes and scales are
computed here from the source's tensors alone. Exits with 1 at any mismatch.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

DTYPES = {
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F32": np.float32,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "U8": np.uint8,
}


def read(folder):
    """All tensors of a model directory by name."""
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, info in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], DTYPES[info["dtype"]]).reshape(info["shape"])
    return tensors


def write(path, tensors):
    """A safetensors file."""
    header, blobs, at = {}, [], 0
    for name, value in tensors.items():
        kind = next(key for key, dtype in DTYPES.items() if value.dtype == dtype)
        blobs.append(value.tobytes())
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def fp8(matrix):
    """Codes and scales of blocks of 128 by 128."""
    rows, cols = matrix.shape
    codes = np.empty(matrix.shape, np.uint8)
    scales = np.empty((-(-rows // 128), -(-cols // 128)), np.float32)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = np.s_[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
            largest = np.abs(matrix[at]).max()
            scale = largest / np.float32(448) if largest > 0 else np.float32(1)
            scales[i, j] = max(scale, np.finfo(np.float32).tiny)
            scaled = np.clip(matrix[at] / scales[i, j], -448, 448)
            codes[at] = scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return codes, scales


def encode_fp4(blocks, exponents):
    """Codes of blocks under powers of two, and the sum of squared errors, added up in order."""
    units = np.ldexp(1.0, exponents)[:, None]
    codes = np.clip(blocks / units, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    squares = (blocks - codes.astype(np.float64) * units) ** 2
    total = np.zeros(len(blocks))
    for column in squares.T:
        total += column
    return codes.view(np.uint8), total


def mxfp4(matrix):
    """Packed codes and scale bytes of blocks of 32; also the errors with the smaller scale and with the chosen one."""
    rows, cols = matrix.shape
    blocks = matrix.astype(np.float64).reshape(-1, 32)
    largest = np.abs(blocks).max(axis=1)
    _, exponents = np.frexp(np.where(largest > 0, largest, 1))
    exponents = np.where(largest > 0, np.clip(exponents - 3, -127, 127), -127)
    codes, error = encode_fp4(blocks, exponents)
    wider = np.minimum(exponents + 1, 127)
    wider_codes, wider_error = encode_fp4(blocks, wider)
    better = wider_error < error
    codes = np.where(better[:, None], wider_codes, codes)
    chosen = np.where(better, wider, exponents)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8).reshape(rows, cols // 2)
    errors = error.sum(), np.minimum(error, wider_error).sum()
    return packed, (chosen + 127).astype(np.uint8).reshape(rows, cols // 32), errors


def source_matrix(source, name):
    """The matrix that is quantised as module `name`: a tensor of that name, or an expert of a stack."""
    if f"{name}.weight" in source:
        return source[f"{name}.weight"].astype(np.float32)
    folder, expert, part = name.rsplit(".", 2)
    if part == "down_proj":
        return source[f"{folder}.down_proj"][int(expert)].astype(np.float32)
    both = source[f"{folder}.gate_up_proj"][int(expert)].astype(np.float32)
    half = len(both) // 2
    return both[:half] if part == "gate_proj" else both[half:]


def same(found, expected):
    """Equal in shape and bytes."""
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


def compare(source, written, form):
    """Lines about what differs, and a line with figures."""
    suffix = ".weight_scale_inv" if form == "fp8" else ".weight_scale"
    modules = [name.removesuffix(suffix) for name in written if name.endswith(suffix)]
    made, count, errors, square = set(), 0, np.zeros(2), 0.0
    for module in modules:
        matrix = source_matrix(source, module)
        count += matrix.size
        square += float((matrix.astype(np.float64) ** 2).sum())
        if form == "fp8":
            codes, scales = fp8(matrix)
            made |= {module + ".weight", module + suffix}
            found = written[module + ".weight"].view(np.uint8)
        else:
            codes, scales, more = mxfp4(matrix)
            errors += more
            made |= {module + ".weight_packed", module + suffix}
            found = written[module + ".weight_packed"]
        if not same(found, codes):
            yield f"{module}: codes differ"
        if not same(written[module + suffix], scales):
            yield f"{module}: scales differ"
    for name in set(written) - made:
        if name not in source or not same(written[name], source[name]) or written[name].dtype != source[name].dtype:
            yield f"{name}: not as it was"
    print(f"  {form}: {len(modules)} matrices, {count} weights, {len(set(written) - made)} tensors kept")
    if form == "mxfp4":
        smaller, chosen = errors / square
        print(f"  relative mean square error: {smaller:.5f} with the smaller scale, {chosen:.5f} with the chosen one")
    if not modules:
        yield f"{form}: nothing was quantised"


def hard_model(folder, dtype):
    """A Llama whose matrices hold edge cases."""
    rng = np.random.default_rng(1)
    config = {"model_type": "llama", "hidden_size": 160, "intermediate_size": 288, "num_hidden_layers": 1,
              "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 32, "vocab_size": 64,
              "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    top = float(ml_dtypes.finfo(dtype).max)
    low = float(ml_dtypes.finfo(dtype).smallest_subnormal)

    def matrix(rows, cols):
        value = rng.standard_normal((rows, cols)) * np.exp2(rng.integers(-12, 3, (rows, 1)))
        value[3, :] = 0
        value[:, 32:64] = 0
        value[4, :32] = top
        value[5, :32] = -low
        value[6, :32] = np.tile([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], 4)
        value[7, :32] = np.linspace(-7.99, 7.99, 32)
        value[8, :32] = np.where(np.arange(32) == 9, 448.0, 17 / 2**10)
        return value.astype(dtype)

    def vector(size):
        return np.ones(size, dtype)

    at = "model.layers.0."
    tensors = {"model.embed_tokens.weight": matrix(64, 160), "lm_head.weight": matrix(64, 160),
               "model.norm.weight": vector(160), at + "input_layernorm.weight": vector(160),
               at + "post_attention_layernorm.weight": vector(160)}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors[f"{at}self_attn.{name}.weight"] = matrix(160, 160)
    for name, shape in (("gate_proj", (288, 160)), ("up_proj", (288, 160)), ("down_proj", (160, 288))):
        tensors[f"{at}mlp.{name}.weight"] = matrix(*shape)
    tensors[f"{at}mlp.up_proj.weight"] = np.zeros((288, 160), dtype)
    write(folder / "model.safetensors", tensors)


def main():
    trivet, model = sys.argv[1], pathlib.Path(sys.argv[2])
    wrong = []
    with tempfile.TemporaryDirectory() as work:
        sources = [model]
        for kind in ("BF16", "F16", "F32"):
            sources.append(pathlib.Path(work, f"hard-{kind}"))
            sources[-1].mkdir()
            hard_model(sources[-1], DTYPES[kind])
        for source in sources:
            print(source.name)
            tensors = read(source)
            for form in ("fp8", "mxfp4"):
                out = pathlib.Path(work, f"{source.name}-{form}")
                command = [trivet, "quantize", source, out, "--format", form, "--quiet", "--json"]
                subprocess.run(command + ([] if source == model else ["--head"]), check=True, stdout=subprocess.DEVNULL)
                wrong += [f"{source.name} {line}" for line in compare(tensors, read(out), form)]
    print("\n".join(wrong[:40]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
