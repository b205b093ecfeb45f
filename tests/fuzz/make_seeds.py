#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of gguf_fuzz and tokenizer_fuzz to tests/fuzz/corpus. Needs the PyPI package `gguf`."""

import json
import pathlib

import gguf
import numpy as np

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
BYTES = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
ALPHABET = {b: chr(b) for b in BYTES}
ALPHABET.update((b, chr(256 + i)) for i, b in enumerate(b for b in range(256) if b not in BYTES))


def write_gguf(name, model, tokens, scores=None, merges=None, pre="default", tensors=False, **flags):
    folder = CORPUS / "gguf_fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(folder / name, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([piece for piece, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    if scores is not None:
        writer.add_token_scores(scores)
    if merges is not None:
        writer.add_token_merges(merges)
    for key, value in flags.items():
        getattr(writer, f"add_{key}")(value)
    if tensors:
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
        blocks = np.zeros((2, 34), np.uint8)
        writer.add_tensor("output.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_seeds():
    specials = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("  ", 4)]
    pieces = [(piece, 1) for piece in ("\u2581", "a", "b", "c", "ab", "abc", "\u2581a", "Caf", "é")]
    scores = [0.0] * len(specials) + [-float(i) for i in range(len(pieces))]
    write_gguf("llama", "llama", specials + pieces, scores, bos_token_id=1, eos_token_id=2, unk_token_id=0,
               chat_template="{{ bos_token }}{{ messages[0].content }}", tensors=True)
    tokens = [(f"<0x{b:02X}>", 6) for b in range(256)] + pieces
    write_gguf("llama_bytes", "llama", tokens, [0.0] * 256 + [-1.0] * len(pieces), add_space_prefix=False)
    tokens = [(ALPHABET[b], 1) for b in range(256)] + [("ab", 1), ("abc", 1), ("<|end|>", 3), ("<think>", 4)]
    for pre in ("default", "qwen2", "llama-bpe"):
        write_gguf(f"gpt2_{pre}", "gpt2", tokens, None, ["a b", "ab c"], pre, bos_token_id=258, eos_token_id=258,
                   chat_template=[{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}])


def tokenizer_seeds():
    folder = CORPUS / "tokenizer_fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {"a": 0, "b": 1, "ab": 2, "\u2581": 3, "<unk>": 4, "<0xC3>": 5, "<0xA9>": 6, "Ġ": 7, "Ġa": 8}
    added = [{"id": 4, "content": "<unk>", "special": True, "normalized": False},
             {"id": 9, "content": "<s>", "special": True, "lstrip": True, "rstrip": True},
             {"id": 10, "content": "the", "single_word": True, "normalized": True}]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"s": {"ids": [9]}}}
    bpe = {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "vocab": vocab,
           "merges": ["a b", ["Ġ", "a"]]}
    split = {"type": "Split", "pattern": {"Regex": r"(?i:'s)|\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+"}, "behavior": "Isolated"}
    files = {
        "byte_level": {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
            "decoder": {"type": "ByteLevel"}, "added_tokens": added, "post_processor": template, "model": bpe},
        "sentencepiece": {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "added_tokens": added, "model": bpe},
        "metaspace": {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"},
                      "decoder": {"type": "Metaspace"}, "added_tokens": added, "model": bpe},
        "scores": {"model": {"type": "BPE", "vocab": vocab, "unk_token": "<unk>", "byte_fallback": True,
                             "scores": [-1, -1, 0, -2.5, None, None, None, -3, -3]}},
        "words": {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation"}]},
            "model": {**bpe, "ignore_merges": True}},
    }
    for name, data in files.items():
        text = b"\0Abba caf\xc3\xa9 <s> the 123  a\n" if name != "words" else b""
        (folder / name).write_bytes(json.dumps(data, ensure_ascii=False).encode() + text)


gguf_seeds()
tokenizer_seeds()
