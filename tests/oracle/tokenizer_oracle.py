#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Trivet's tokenizer with the PyPI package `tokenizers`: same ids, same text, and streaming equal to decoding.

Usage: tokenizer_oracle.py DRIVER [--tokenizer DIR ...] [--count N] [--seed N]
DRIVER is the built tests/text/tokenizer_driver.cc. Each DIR holds tokenizer.json and may hold golden.json. Besides
them, tokenizers made here go through every component type. Exits with 1 at any mismatch.
"""

import argparse
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MAX_SHOWN = 10
RUN_SECONDS = 20.0  # processor time for all runs of one character together; a quadratic step takes minutes

ALPHABETS = {
    "ascii": [chr(c) for c in range(32, 127)],
    "letters": list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "digits": list("0123456789") + list("٠١٢٣४५६Ⅷ²½①"),
    "spaces": list("    \t\n\r\n\n") +
              list("\x0b\x0c\x85\u00a0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"),
    "latin": list("éèêëçñöüßøåæœđłžšİıſŉÀÉÎÕÜŸĞ"),
    "marks": list("aeiou"
                  "\u0300\u0301\u0302\u0303\u0308\u0323\u0327\u0328\u0345\u093c\u0941\u3099\u20dd\u0903"),
    "greek_cyrillic": list("αβγδςσΣΩЖжЯяЁёЇї"),
    "hangul": list("가각힣한글테스트") + list("\u1100\u1161\u11a8\u1112\u1175\u11c2"),
    "cjk": list("中文字符測試日本語漢字ひらがなカタカナー々〇、。「」"),
    "other_scripts": list("שלוםمرحباनमस्तेกขสวัสดีაბგⴰⵣ"),
    "emoji": ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "🙂", "🤖", "\u200d", "\ufe0f", "\U0001f3fb"],
    "compat": list("ﬁﬂﬆ™㎏ⅸ１２Ａｂ①㍿…ｶﾞΩÅK"),
    "punctuation": list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»“”‘’–—…†•‰€£¥§±×÷°©®◌∑√∞≈"),
    "planes": list("𝒜𝔸𐍈𠀀𡃁🀄\U000e0001\U0010fffd\ue000\ufffd"),
    "byte_like": ["<0x41>", "<0xE4>", "<0xff>", "<0x", "▁", "▁▁", "Ġ", "Ċ", "é"],
    "controls": list("\x00\x01\x07\x1b\x7f\u009f\u00ad"),
}
WORDS = """the quick brown fox jumps over lazy dogs it's don't I'LL we've you'RE he'd she'S they'M it'ſ I'ſT naïve café
hello Hello HELLO world tokenization pre-tokenizer antidisestablishmentarianism http://example.com/a?b=c&d=%20 e-mail
user@example.org 3.14159 1,000,000 0x1F 2024-01-31 12:34:56 +49-30-123 C++ foo_bar camelCase snake_case __init__
Straße Größe ÉCOLE naïveté Москва Привет мир Ελλάδα 東京 北京市 서울 한국어 สวัสดี שלום مرحبا हिन्दी""".split()
CODE = """def f(x):\n    return {k: v for k, v in x.items() if v != 0}\n\n
#include <vector>\nint main(int argc, char** argv) {\n\tstd::vector<int> v = {1, 2, 3};\n\treturn v[0] ? 0 : -1;\n}\n
<div class="a">\r\n  <p>text &amp; more</p>\r\n</div>\r\n
{"a": [1, 2.5e-3, null, true], "b": "\\u00e9\\n"}\n
SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';   -- comment
$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$""".split("\n\n")
CORPUS = [" ".join(WORDS)] * 4 + CODE * 3 + ["".join(letters) for letters in ALPHABETS.values()] * 2
RUNS = ["a", " ", "\n", "\t", "9", "é", "中", "🙂", "!", "'", "\u0301", "▁", "ab", " a", "\r\n", "<"]


def generated_texts(rng, count, contents):
    """Texts that mix alphabets, words, code and the contents of added tokens."""
    texts = ["", " ", "  ", "\n", "a", "é", "\u0301", "🙂", "\x00", "it's", "'s", "IT'S", "it'ſ", "a\u0301\u0323b",
             "가\u11a8"]
    texts += WORDS + CODE + [" ".join(WORDS)]
    texts += contents + [f" {c} " for c in contents] + [f"a{c}b" for c in contents] + [c + c for c in contents]
    names = list(ALPHABETS)
    while len(texts) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.25:
                parts.append(rng.choice(WORDS))
            elif kind < 0.45:
                parts.append(rng.choice([" ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "   \n  ", " \u00a0", "\u3000"]))
            elif kind < 0.55 and contents:
                parts.append(rng.choice(contents))
            elif kind < 0.6:
                code = rng.choice(CODE)
                begin = rng.randrange(len(code))
                parts.append(code[begin : begin + rng.randint(1, 40)])
            elif kind < 0.65:
                parts.append(rng.choice(RUNS) * rng.randint(2, 60))
            else:
                alphabet = ALPHABETS[rng.choice(names)]
                parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12))))
        texts.append("".join(parts))
    return texts


class Comparison:
    """Mismatches and counts over all tokenizers."""

    def __init__(self, driver):
        self.driver = driver
        self.checks = 0
        self.mismatches = 0

    def ask(self, requests):
        text = "".join(json.dumps(request) + "\n" for request in requests)
        done = subprocess.run([self.driver], input=text.encode(), stdout=subprocess.PIPE, check=True)
        answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        if len(answers) != len(requests):
            sys.exit(f"{self.driver}: {len(answers)} answers to {len(requests)} requests")
        return answers

    def expect(self, name, request, found, expected):
        self.checks += 1
        if found == expected:
            return
        self.mismatches += 1
        if self.mismatches <= MAX_SHOWN:
            shown = {key: value for key, value in request.items() if key != "dir"}
            print(f"{name}: {str(shown)[:300]}\n  expected {str(expected)[:300]}\n  found    {str(found)[:300]}")

    def encode(self, name, directory, reference, texts):
        """Ids of every text with and without special tokens, and with special tokens read as text."""
        requests, expected = [], []
        for parse_special in (True, False):
            reference.encode_special_tokens = not parse_special
            for add_special in (True, False) if parse_special else (False,):
                for text in texts:
                    requests.append({"op": "encode", "dir": directory, "text": text, "add_special_tokens": add_special,
                                     "parse_special": parse_special})
                    expected.append(reference.encode(text, add_special_tokens=add_special).ids)
        reference.encode_special_tokens = False
        for request, answer, ids in zip(requests, self.ask(requests), expected):
            self.expect(name, request, answer.get("ids", answer), ids)
        return expected

    def decode(self, name, directory, reference, sequences):
        """Text of every sequence, with and without special tokens, whole and streamed."""
        requests, expected = [], []
        for ids in sequences:
            for skip in (False, True):
                text = reference.decode(ids, skip_special_tokens=skip)
                for op in ("decode", "stream"):
                    requests.append({"op": op, "dir": directory, "ids": ids, "skip_special": skip})
                    expected.append(text)
        for request, answer, text in zip(requests, self.ask(requests), expected):
            self.expect(name, request, answer.get("text", answer), text)
            if request["op"] == "stream":
                self.expect(name, request, "".join(answer.get("pieces", [])), text)

    def golden(self, name, directory):
        """The recorded cases of golden.json, where there is one."""
        path = pathlib.Path(directory) / "golden.json"
        if not path.exists():
            return
        plan = []
        for case in json.loads(path.read_text())["cases"]:
            for add_special, key in ((False, "ids"), (True, "ids_special")):
                request = {"op": "encode", "text": case["text"], "add_special_tokens": add_special}
                plan.append((request, "ids", case[key]))
            for op in ("decode", "stream"):
                for skip, key in ((False, "decoded"), (True, "decoded_skip")):
                    plan.append(({"op": op, "ids": case["ids"], "skip_special": skip}, "text", case[key]))
        answers = self.ask([{**request, "dir": directory} for request, _, _ in plan])
        for (request, key, expected), answer in zip(plan, answers):
            self.expect(f"{name}: golden", request, answer.get(key, answer), expected)

    def runs(self, name, directory, reference, length):
        """Long runs of one character: same ids, and no time that grows with the square of the length."""
        texts = [run * (length // len(run)) for run in RUNS]
        requests = [{"op": "encode", "dir": directory, "text": text, "add_special_tokens": False} for text in texts]
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        answers = self.ask(requests)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
        self.expect(name, {"seconds for long runs": round(seconds, 1)}, seconds < RUN_SECONDS, True)
        for request, answer in zip(requests, answers):
            ids = reference.encode(request["text"], add_special_tokens=False).ids
            self.expect(name, request, answer.get("ids", answer), ids)

    def compare(self, name, directory, rng, count):
        """Everything above for one tokenizer."""
        before, begin = (self.checks, self.mismatches), time.monotonic()
        reference = Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
        reference.no_truncation()
        reference.no_padding()
        contents = [token.content for token in reference.get_added_tokens_decoder().values()]
        texts = generated_texts(rng, count, rng.sample(contents, min(len(contents), 20)))
        encoded = self.encode(name, directory, reference, texts)
        size = reference.get_vocab_size()
        sequences = rng.sample(encoded, min(len(encoded), count // 2))
        sequences += [[rng.randrange(size) for _ in range(rng.randint(1, 20))] for _ in range(count // 2)]
        byte_ids = [i for i in map(reference.token_to_id, [f"<0x{b:02X}>" for b in range(256)]) if i is not None]
        if byte_ids:
            pool = byte_ids + rng.sample(range(size), 30)
            sequences += [[rng.choice(pool) for _ in range(rng.randint(1, 8))] for _ in range(count // 4)]
        self.decode(name, directory, reference, sequences)
        self.golden(name, directory)
        self.runs(name, directory, reference, 20_000)
        print(f"{name}: {self.checks - before[0]} checks, {self.mismatches - before[1]} mismatches, "
              f"{time.monotonic() - begin:.1f} s", flush=True)


def trained(pre_tokenizer, normalizer, byte_level):
    """A small BPE tokenizer over CORPUS."""
    tokenizer = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>"))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False,
                                  initial_alphabet=alphabet, limit_alphabet=1000 if byte_level else 200)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def with_model(tokenizer, byte_tokens=False, **options):
    """A copy with other model options, and with tokens for all bytes on request."""
    data = json.loads(tokenizer.to_str())
    data["model"].update(options)
    if byte_tokens:
        vocab = data["model"]["vocab"]
        for byte in range(256):
            vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    return Tokenizer.from_str(json.dumps(data))


def added(content, special=False, **flags):
    return AddedToken(content, special=special, normalized=flags.pop("normalized", not special), **flags)


def add_tokens(tokenizer):
    """Tokens with every flag, some of them prefixes of others."""
    tokenizer.add_special_tokens([added(c, True) for c in ("<|im_start|>", "<|im_end|>", "<|im_end|>>", "<|")])
    tokenizer.add_tokens([added("<think>", normalized=False), added("THE", single_word=True), added("fox", rstrip=True),
                          added("jump", lstrip=True), added("É", normalized=True), added("▁▁x", normalized=False),
                          added("[ L R ]", lstrip=True, rstrip=True), added("é1", single_word=True, normalized=False)])
    return tokenizer


def template():
    return processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>",
                                         special_tokens=[("<s>", 1), ("</s>", 2)])


def made_normalizers():
    n = normalizers
    return {
        "NFC": n.NFC(), "NFD": n.NFD(), "NFKC": n.NFKC(), "NFKD": n.NFKD(), "Lowercase": n.Lowercase(),
        "Strip": n.Strip(), "Strip left": n.Strip(True, False), "StripAccents": n.Sequence([n.NFD(), n.StripAccents()]),
        "Replace string": n.Replace("a", "bb"), "Replace dot": n.Replace(".", "<dot>"),
        "Replace regex": n.Replace(Regex(r"\s+"), " "), "Replace empty": n.Replace(Regex(r"(?<=\d)x*|(?<=.)$"), "_"),
        "Prepend": n.Prepend("▁"), "Sequence": n.Sequence([n.NFKC(), n.Lowercase(), n.Replace(Regex(r"[\n\r]"), "¶")]),
    }


def made_pre_tokenizers():
    p = pre_tokenizers
    made = {}
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            made[f"Split {behavior} {invert}"] = p.Split(Regex(r"\d|\s+|[aeiou]"), behavior, invert)
        made[f"Split string {behavior}"] = p.Split(" ", behavior)
        made[f"Punctuation {behavior}"] = p.Punctuation(behavior)
    for scheme in ("first", "always", "never"):
        for split in (False, True):
            made[f"Metaspace {scheme} {split}"] = p.Metaspace("▁", scheme, split)
    for pattern in (r"\w+|\W", r"\b", r"(?i:straße|k|s)+", r"\p{Han}+|\p{Greek}", r"[\w\-]+(?=\S)", r"^.|.$|\h{2,3}",
                    r"[^\S\r\n]+|(?<=a)b|[\d_]+?", r"\p{Lu}?\p{Ll}{2,}|\p{^L}", r"a{,2}b|{|\x{4e2d}|\u6587|(?>c+)d?+"):
        made[f"Split {pattern}"] = p.Split(Regex(pattern), "isolated")
    made.update({
        "Digits": p.Digits(False), "Digits individual": p.Digits(True), "Whitespace": p.Whitespace(),
        "WhitespaceSplit": p.WhitespaceSplit(),
        "Sequence": p.Sequence([p.WhitespaceSplit(), p.Digits(True), p.Punctuation(), p.Metaspace("_", "first")]),
    })
    return made


def made_decoders():
    d = decoders
    llama = [d.Replace("▁", " "), d.ByteFallback(), d.Fuse()]
    return {
        "none": None, "Fuse": d.Fuse(), "Metaspace first": d.Metaspace("▁", "first"),
        "Metaspace never": d.Metaspace("▁", "never"), "ByteFallback": d.ByteFallback(), "Replace": d.Replace("a", " b"),
        "Strip": d.Strip(" ", 2, 0), "Sequence gemma": d.Sequence(llama), "ByteLevel": d.ByteLevel(),
        "Sequence llama": d.Sequence(llama + [d.Strip(" ", 1, 0)]),
        "Sequence strip first": d.Sequence([d.Strip("▁", 1, 0), d.ByteFallback(), d.Replace("e", "")]),
        "Sequence fuse first": d.Sequence([d.Fuse(), d.Replace("▁t", " T"), d.Metaspace("▁", "always")]),
        "Sequence bytes": d.Sequence([d.ByteFallback(), d.ByteLevel(), d.Strip("▁", 3, 0)]),
    }


def made_tokenizers():
    """(name, tokenizer) for every component type."""
    for prefix in (False, True):
        for split in (False, True):
            tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split), None, True)
            tokenizer.decoder = decoders.ByteLevel()
            tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template()])
            yield f"pre-tokenizer ByteLevel {prefix} {split}", add_tokens(tokenizer)
            yield f"ignore_merges {prefix} {split}", with_model(tokenizer, ignore_merges=True)
    for name, normalizer in made_normalizers().items():
        tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer, True)
        tokenizer.decoder = decoders.ByteLevel()
        yield f"normalizer {name}", add_tokens(tokenizer)
    byte_normalizer = trained(None, normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]), True)
    byte_normalizer.decoder = decoders.ByteLevel()
    yield "normalizer ByteLevel", byte_normalizer
    for name, pre_tokenizer in made_pre_tokenizers().items():
        tokenizer = trained(pre_tokenizer, None, False)
        tokenizer.post_processor = template()
        yield f"pre-tokenizer {name}", add_tokens(tokenizer)
        # A space before every word shows where words begin, also around characters outside the vocabulary.
        spaces = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
        marked = pre_tokenizers.Sequence([pre_tokenizer, spaces])
        yield f"marked pre-tokenizer {name}", add_tokens(trained(marked, None, True))
    base = trained(pre_tokenizers.Metaspace(), None, False)
    for fuse in (False, True):
        yield f"fuse_unk {fuse}", with_model(base, fuse_unk=fuse)
        yield f"byte_fallback fuse_unk {fuse}", with_model(base, byte_tokens=True, byte_fallback=True, fuse_unk=fuse)
        yield f"no unk_token {fuse}", with_model(base, unk_token=None, fuse_unk=fuse)
    base = with_model(base, byte_tokens=True, byte_fallback=True)
    for name, decoder in made_decoders().items():
        tokenizer = with_model(base)
        if decoder is not None:
            tokenizer.decoder = decoder
        yield f"decoder {name}", add_tokens(tokenizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver", help="built from tests/text/tokenizer_driver.cc")
    parser.add_argument("--tokenizer", action="append", default=[], metavar="DIR", help="a folder with tokenizer.json")
    parser.add_argument("--count", type=int, default=2000, help="texts for each DIR; made tokenizers get a tenth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", default="", help="only made tokenizers with this text in their name")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    comparison = Comparison(args.driver)
    for directory in args.tokenizer:
        comparison.compare(directory, directory, rng, args.count)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, tokenizer) in enumerate(made_tokenizers()):
            if args.made not in name:
                continue
            directory = pathlib.Path(folder) / str(number)
            directory.mkdir()
            tokenizer.save(str(directory / "tokenizer.json"))
            comparison.compare(name, str(directory), rng, args.count // 10)
    print(f"{comparison.checks} checks, {comparison.mismatches} mismatches")
    return 1 if comparison.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
