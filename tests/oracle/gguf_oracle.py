#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `trivet tokenize FILE.gguf` with the PyPI packages `tokenizers` and `sentencepiece`: same ids and text.

Usage: gguf_oracle.py TRIVET [--tokenizer DIR ...] [--count N] [--seed N]
Every tokenizer.json is written as the metadata of a GGUF file by the PyPI package `gguf`. Besides each DIR, tokenizers
trained here go through every way to split, and through scores as SentencePiece makes them; those of ../shared/tokenizers
are compared where there are any. Exits with 1 at any mismatch.
"""

import argparse
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizer_oracle import CORPUS, MAX_SHOWN, add_tokens, generated_texts, trained, with_model

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "tokenizers"
# Folder under SHARED: the metadata's model, and how it splits.
SHARED_KINDS = {"qwen3": ("gpt2", "qwen2"), "deepseek_v3": ("gpt2", "deepseek-v3"), "llama2": ("llama", "default")}

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K_WORD = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s" + CONTRACTIONS + "?|")
# tokenizer.ggml.pre: expressions, composed first or not, words that are pieces taken whole or not.
SPLITTINGS = {
    "default": ([r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], False, False),
    "gpt-2": ([GPT2], False, False),
    "llama-bpe": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ENDS], False,
                  True),
    "qwen2": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ENDS], True, False),
    "qwen35": ([CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + ENDS], True,
               False),
    "deepseek-v3": ([r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                     r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                     r" ?[\p{P}\p{S}]+[\r\n]*|" + ENDS], False, False),
    "gpt-4o": ([O200K_WORD % ("*", "+") + O200K_WORD % ("+", "*") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + ENDS],
               False, False),
}


def before_and_after(data):
    """The ids that a tokenizer.json puts around a text."""
    around, seen = ([], []), False
    processor = data.get("post_processor") or {}
    for part in processor.get("single", []):
        if "Sequence" in part:
            seen = True
        else:
            around[seen].extend(processor["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    return around


def scores_of(merges, tokens):
    """Scores that order merges as the list does: it was made from scores, piece by piece."""
    ranks = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault("".join(pair), rank)
    return [-float(ranks.get(piece, len(merges))) for piece in tokens]


def write_gguf(data, model, pre, path):
    """The tokenizer of a tokenizer.json, as the metadata of a GGUF file without tensors."""
    vocab = dict(data["model"]["vocab"])
    added = {token["id"]: token for token in data["added_tokens"]}
    vocab.update((token["content"], number) for number, token in added.items())
    tokens = [f"[filler {i}]" for i in range(max(vocab.values()) + 1)]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for piece, number in vocab.items():
        tokens[number], types[number] = piece, gguf.TokenType.NORMAL
        if model == "llama" and len(piece) == 6 and piece.startswith("<0x"):
            types[number] = gguf.TokenType.BYTE
    for number, token in added.items():
        types[number] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    merges = [m.split(" ") if isinstance(m, str) else m for m in data["model"]["merges"]]
    before, after = before_and_after(data)
    facts = {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    if before:
        facts["bos_token_id"] = before[0]
    if after:
        facts["eos_token_id"] = after[0]
    if model == "llama":
        facts.update(token_scores=scores_of(merges, tokens), unk_token_id=vocab[data["model"]["unk_token"]])
    else:
        facts["token_merges"] = [" ".join(pair) for pair in merges]
    write_metadata(path, tokenizer_model=model, tokenizer_pre=pre, token_list=tokens, token_types=types, **facts)


def write_metadata(path, **facts):
    """A GGUF file without tensors: every fact by the writer's own method for it."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in facts.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


class Comparison:
    """Mismatches and counts over all tokenizers."""

    def __init__(self, trivet, folder):
        self.trivet = trivet
        self.folder = pathlib.Path(folder)
        self.checks = 0
        self.mismatches = 0

    def ask(self, path, flag, values, *flags):
        question = self.folder / "question.json"
        question.write_text(json.dumps(values))
        command = [self.trivet, "tokenize", str(path), flag, str(question), *flags]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def expect(self, name, questions, found, expected):
        assert len(found) == len(expected)
        for question, one, other in zip(questions, found, expected):
            self.checks += 1
            if one == other:
                continue
            self.mismatches += 1
            if self.mismatches <= MAX_SHOWN:
                print(f"{name}: {question!r:.300}\n  expected {other!r:.300}\n  found    {one!r:.300}")

    def compare(self, name, data, kind, rng, count):
        """Ids and texts of one tokenizer.json that is written as GGUF."""
        before = self.checks, self.mismatches
        path = self.folder / "tokenizer.gguf"
        write_gguf(data, *kind, path)
        reference = Tokenizer.from_str(json.dumps(data))
        reference.no_truncation()
        reference.no_padding()
        contents = [token["content"] for token in data["added_tokens"]]
        texts = generated_texts(rng, count, rng.sample(contents, min(len(contents), 20)))
        encoded = []
        for special, flags in ((True, []), (False, ["--no-special"])):
            encoded = [reference.encode(text, add_special_tokens=special).ids for text in texts]
            self.expect(name, texts, self.ask(path, "--texts", texts, *flags), encoded)
        size = reference.get_vocab_size()
        sequences = encoded + [[rng.randrange(size) for _ in range(rng.randint(1, 20))] for _ in range(count // 2)]
        for skip, flags in ((True, ["--skip-special"]), (False, [])):
            expected = [reference.decode(ids, skip_special_tokens=skip) for ids in sequences]
            self.expect(name, sequences, self.ask(path, "--decode", sequences, *flags), expected)
        print(f"{name}: {self.checks - before[0]} checks, {self.mismatches - before[1]} mismatches", flush=True)


    def sentencepiece(self, prefix, rng, count):
        """Ids and texts of a model that SentencePiece trains, with a space put before the text or not."""
        # With a prefix the two differ on purpose in where it goes beside a user-defined symbol.
        symbols = [] if prefix else ["<think>", "[x]", "[xy]", "éé"]
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, model_type="bpe", vocab_size=700, byte_fallback=True,
            character_coverage=0.98, user_defined_symbols=symbols, normalization_rule_name="identity",
            remove_extra_whitespaces=False, add_dummy_prefix=prefix, hard_vocab_limit=False, minloglevel=2)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        ids = range(processor.vocab_size())
        tokens = [processor.id_to_piece(i) for i in ids]
        kinds = ((processor.is_unknown, gguf.TokenType.UNKNOWN), (processor.is_control, gguf.TokenType.CONTROL),
                 (processor.is_byte, gguf.TokenType.BYTE), (lambda i: tokens[i] in symbols, gguf.TokenType.USER_DEFINED),
                 (lambda i: True, gguf.TokenType.NORMAL))
        path = self.folder / "tokenizer.gguf"
        write_metadata(path, tokenizer_model="llama", token_list=tokens, unk_token_id=processor.unk_id(),
                       token_types=[next(kind for test, kind in kinds if test(i)) for i in ids],
                       token_scores=[processor.get_score(i) for i in ids], add_space_prefix=prefix)
        texts = generated_texts(rng, count, symbols)
        encoded = [processor.encode(text) for text in texts]
        name = f"sentencepiece, prefix {prefix}"
        self.expect(name, texts, self.ask(path, "--texts", texts, "--no-special"), encoded)
        self.expect(name, texts, self.ask(path, "--decode", encoded), [processor.decode(ids) for ids in encoded])
        print(f"{name}: {2 * len(texts)} checks", flush=True)


def made_tokenizer(pre):
    """A small byte-level tokenizer that splits as `pre` says, with added tokens that are matched in raw text."""
    expressions, composed, whole_words = SPLITTINGS[pre]
    splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    steps = splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer = trained(pre_tokenizers.Sequence(steps), normalizers.NFC() if composed else None, True)
    tokenizer.decoder = decoders.ByteLevel()
    data = json.loads(add_tokens(with_model(tokenizer, ignore_merges=whole_words)).to_str())
    for token in data["added_tokens"]:  # GGUF knows no other way to match
        token.update(single_word=False, lstrip=False, rstrip=False, normalized=False)
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trivet", help="the built program")
    parser.add_argument("--tokenizer", action="append", default=[], metavar="DIR",
                        help="a folder with a tokenizer.json that splits as qwen2 does")
    parser.add_argument("--count", type=int, default=1000, help="texts for each tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(args.trivet, folder)
        for directory in args.tokenizer:
            data = json.loads((pathlib.Path(directory) / "tokenizer.json").read_text())
            comparison.compare(directory, data, ("gpt2", "qwen2"), rng, args.count)
        for pre in SPLITTINGS:
            comparison.compare(pre, made_tokenizer(pre), ("gpt2", pre), rng, args.count)
        for prefix in (False, True):
            comparison.sentencepiece(prefix, rng, args.count)
        for name, kind in SHARED_KINDS.items():
            path = SHARED / name / "tokenizer.json"
            if path.exists():
                comparison.compare(name, json.loads(path.read_text()), kind, rng, args.count)
            else:
                print(f"{name}: skipped, {path} is absent")
    print(f"{comparison.checks} checks, {comparison.mismatches} mismatches")
    return 1 if comparison.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
