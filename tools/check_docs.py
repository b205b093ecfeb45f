#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what the documents name exists: paths, symbols, links, and the program's commands and flags."""

import argparse
import functools
import os
import pathlib
import re
import subprocess
import sys

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "src/*/*.md")
PATH = re.compile(r"(?<![\w/.:-])(?<!\]\()((?:src|docs|tests|tools|bench|models)/[\w./*{},<>-]*[\w*}>/])")
SHORT_PATH = re.compile(r"`(\w+/[\w./-]+\.(?:h|cc|cu|cuh))\b")  # `engine/rank.cc`, below src/
SYMBOL = re.compile(r"`([\w./-]+\.(?:h|cc|cu|cuh|py|sh)): ([A-Za-z_~][\w:~]*)(?:\(\))?`")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s/(])trivet[ \t]+([a-z][a-z0-9-]*)([^\n|;&#]*)", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])(--?[a-zA-Z][a-zA-Z0-9-]*)")


def line_of(text, position):
    """Line number, from 1."""
    return text.count("\n", 0, position) + 1


def expand_braces(path):
    """The paths that `a.{h,cc}` stands for."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    before, after = path[: match.start()], path[match.end() :]
    return [p for word in match.group(1).split(",") for p in expand_braces(before + word + after)]


def exists(root, path):
    """True when the path, or at least one match of a pattern, exists; a path with <placeholders> always does."""
    if "<" in path or ">" in path:
        return True
    if "*" in path:
        return any(root.glob(path))
    return (root / path).exists()


def anchors(text):
    """Names that links can jump to: headings in lower case, punctuation dropped, blanks as hyphens."""
    headings = re.findall(r"^#+[ \t]+(.+?)[ \t]*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def path_problems(root, name, text):
    """Paths that do not exist."""
    for match in PATH.finditer(text):
        for path in expand_braces(match.group(1)):
            if not exists(root, path):
                yield f"{name}:{line_of(text, match.start())}: {path} does not exist"
    for match in SHORT_PATH.finditer(text):
        path = match.group(1)
        module = path.split("/")[0]
        if (root / "src" / module).is_dir() and not (root / "src" / path).exists() and not (root / path).exists():
            yield f"{name}:{line_of(text, match.start())}: src/{path} does not exist"


def symbol_problems(root, name, text):
    """`file: Symbol` where the file lacks the symbol."""
    for match in SYMBOL.finditer(text):
        path, symbol = match.groups()
        file = next((p for p in (root / path, root / "src" / path) if p.is_file()), None)
        where = f"{name}:{line_of(text, match.start())}"
        if file is None and PATH.fullmatch(path):
            continue  # path_problems names it
        if file is None:
            yield f"{where}: {path} does not exist"
        elif not re.search(rf"(?<!\w){re.escape(symbol.split('::')[-1])}(?!\w)", file.read_text(encoding="utf-8")):
            yield f"{where}: {path} has no {symbol}"


def link_problems(root, name, text):
    """Links to pages or headings that do not exist."""
    for match in LINK.finditer(text):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (root / name).parent / target if target else root / name
        where = f"{name}:{line_of(text, match.start())}"
        if not file.exists():
            yield f"{where}: the link to {target} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{where}: {target or name} has no heading for #{anchor}"


def command_problems(name, text, help_of):
    """Commands that the program refuses, and flags that their help does not list."""
    for code in CODE.finditer(text):
        shown = (code.group(1) or code.group(2)).replace("\\\n", "  ")
        where = f"{name}:{line_of(text, code.start())}"
        for command, rest in COMMAND.findall(shown):
            listed = help_of(command)
            if listed is None:
                yield f"{where}: trivet has no command {command}"
                continue
            part = re.match(r"[ \t]+([a-z][a-z0-9-]*)", rest)
            if part and re.search(rf"^Subcommands:.*^  {part[1]}\s", listed, re.DOTALL | re.MULTILINE):
                command = f"{command} {part[1]}"
                listed = help_of(command)
            unquoted = re.sub(r'"[^"]*"|\'[^\']*\'', "", rest)
            for flag in FLAG.findall(unquoted):
                if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", listed):
                    yield f"{where}: trivet {command} --help does not list {flag}"


def help_reader(binary):
    """A function from a command's name to its help text, or to None when the program refuses the name."""

    @functools.lru_cache(maxsize=None)
    def read(command):
        result = subprocess.run([str(binary), *command.split(), "--help"], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, check=False, timeout=60)
        return result.stdout + result.stderr if result.returncode == 0 else None

    return read


def check(root, binary=None):
    """(problems, one line that says what was looked at)."""
    root = pathlib.Path(root).resolve()
    pages = sorted({p.relative_to(root).as_posix() for pattern in PAGES for p in root.glob(pattern)})
    binary = pathlib.Path(binary) if binary else root / "build" / "trivet"
    help_of = help_reader(binary) if os.access(binary, os.X_OK) and binary.is_file() else None
    problems = [f"{name}: the file is missing" for name in PAGES[:3] if name not in pages]
    for name in pages:
        text = (root / name).read_text(encoding="utf-8")
        problems += path_problems(root, name, text)
        problems += symbol_problems(root, name, text)
        problems += link_problems(root, name, text)
        problems += command_problems(name, text, help_of) if help_of else []
    flags = "flags against the program's help" if help_of else "flags unchecked: no binary"
    return problems, f"{len(pages)} pages, {flags}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, help="the source tree")
    parser.add_argument("--binary", help="the program whose help is read (build/trivet)")
    arguments = parser.parse_args()
    problems, summary = check(arguments.root, arguments.binary)
    for problem in problems:
        print(problem)
    print(f"check_docs: {summary}: " + (f"{len(problems)} problems" if problems else "ok"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
