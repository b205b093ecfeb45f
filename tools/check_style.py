#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house rules that a script can judge: sizes, licence tags, docstrings, macros, globals, words, mirrors."""

import argparse
import pathlib
import re
import subprocess
import sys

import cpp_source

LICENSE = "SPDX-License-Identifier: Apache-2.0"
CODE_FOLDERS = ("src", "tests", "bench")
MAX_LINES, MAX_KERNEL_LINES = 500, 600
MAX_HOST_FUNCTION, MAX_DEVICE_FUNCTION = 60, 150
MAX_PARAMETERS = 6

# (macro, files that may define it). Everything else is a function, a constant or a template.
MACROS = (
    (r"TRY|TRY_ASSIGN|CHECK|CHECK_MSG|DCHECK|CHECK_CUDA|TRIVET_CONCAT|TRIVET_CONCAT_INNER", r"^src/(base|device)/"),
    (r"HWY_\w+", r"(_simd\.cc|-inl\.h)$"),  # Highway names its target file and its per-target passes by macros
    (r"TRIVET_\w+_INL_H_?", r"-inl\.h$"),  # the guard that Highway flips between passes
    (r"PCRE2_CODE_UNIT_WIDTH", r"^src/text/"),  # pcre2.h refuses to be included without it
)

# Sources that need no tests/<module>/<file>_test.cc, and why.
NO_MIRROR = (
    (r"src/cli/", "commands are tested through the program"),
    (r".*/no_\w+\.cc", "an absent library: holds one error"),
    (r"src/model/planted_faults\.cc", "tests/ranks/fault_test.cc runs and verifies every fault"),
    (r"src/kernels/\w+_(ref|simd)\.cc", "the parity tests walk every row of every family"),
    (r"src/base/(check|env|log)\.cc", "a few lines around abort, getenv and the logger"),
)

# Files that may keep changing state outside objects, and why.
GLOBAL_STATE = (
    (r"tests/cuda/mapped_heap\.cc", "operator new has no object to keep a heap in"),
)

MARKERS = re.compile(r"\b(?:TODO|FIXME|XXX)\b|\bfor now\b|\bnot implemented\b", re.IGNORECASE)
# The project speaks of itself alone: not of the tools, machines or meetings it was written with.
FOREIGN = re.compile(r"\b(?:copilot|chatgpt|claude|anthropic|sub-?agents?|(?<!jinja2\.)sandbox(?:ed)?|this session)\b", re.I)
MACHINE_PATH = re.compile(r"(?<![\w.$}~*)-])/(?:home|root|work|workspace|Users)/")
VAGUE_NAMES = re.compile(r"(?:^|_)(?:utils?|common|helpers?|misc|manager)(?:_|$)")
SELF = ("tools/check_style.py", "tests/tools/test_check_style.py")  # they must spell what they look for
TEXT_SUFFIXES = cpp_source.CPP_SUFFIXES + (".py", ".sh", ".md", ".txt", ".cmake", ".html", "")


def _at(source, line, message):
    return f"{source.name}:{line}: {message}"


def size_problems(source):
    """Lines of the file and of each function, and parameters of each function."""
    kernel = source.name.startswith("src/kernels/") or source.name.endswith((".cu", ".cuh"))
    limit = MAX_KERNEL_LINES if kernel else MAX_LINES
    if len(source.lines) > limit:
        yield _at(source, len(source.lines), f"{len(source.lines)} lines; at most {limit}: split the file by concept")
    for item in source.items:
        if item.kind not in ("function", "macro", "declaration"):
            continue
        device = re.search(r"\b__(?:global|device)__\b", item.head)
        limit = MAX_DEVICE_FUNCTION if device else MAX_HOST_FUNCTION
        lines = item.end - item.start + 1
        name, parameters = cpp_source.parameters(item.head) or ("?", [])
        if lines > limit:
            yield _at(source, item.start, f"{name} has {lines} lines; at most {limit}: name its steps as functions")
        if len(parameters) > MAX_PARAMETERS and item.kind != "macro":
            yield _at(source, item.start, f"{name} takes {len(parameters)} parameters; at most {MAX_PARAMETERS}: "
                                          "pass an Args struct")


def header_problems(source):
    """Licence tag, purpose, and the include guard."""
    if not source.lines or source.lines[0] != f"// {LICENSE}":
        yield _at(source, 1, f'the first line is not "// {LICENSE}"')
    if source.name.endswith(".h"):
        if len(source.lines) < 2 or not source.lines[1].startswith("//"):
            yield _at(source, 2, "a header says after the licence tag what it is for")
        if "#pragma once" not in source.text and not source.name.endswith("-inl.h"):
            yield _at(source, 1, "no #pragma once")
    stem = pathlib.PurePosixPath(source.name).stem
    if not re.fullmatch(r"[a-z0-9_]+(-inl)?", stem):
        yield _at(source, 1, "file names are snake_case")
    if VAGUE_NAMES.search(stem):
        yield _at(source, 1, "the name says nothing; name the file after its main concept")


def macro_problems(source):
    """Names given to #define."""
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", cpp_source.strip_comments(source.text), re.MULTILINE):
        name = match.group(1)
        if not any(re.fullmatch(names, name) and re.search(files, source.name) for names, files in MACROS):
            line = source.text.count("\n", 0, match.start()) + 1
            yield _at(source, line, f"macro {name}; use a function, a constant or a template")


def statement_problems(source):
    """Exceptions, assertions, unexplained shared ownership and mutable state outside objects."""
    explained = re.search(r"//.*\bshared_ptr: \w+", source.text)
    for number, line in enumerate(source.code.splitlines(), 1):
        if re.search(r"\b(?:shared_ptr|make_shared)\b", line) and not explained:
            yield _at(source, number, 'shared ownership without a reason; write it as a comment "// shared_ptr: ..."')
        if not source.name.startswith("src/"):
            continue
        if re.search(r"\bthrow\b", line):
            yield _at(source, number, "throw; return a Result or Status (base/result.h)")
        if re.search(r"(?<![\w.:])assert\s*\(", line):
            yield _at(source, number, "assert; use CHECK for invariants and Result for input")
    yield from global_problems(source)


def _is_constant(head):
    text = head.split("=")[0]
    if re.search(r"\b(?:constexpr|constinit\s+const)\b", text):
        return True
    if "*" in text.split("(")[0] and not re.search(r"\*\s*const\b", text):
        return False
    return bool(re.search(r"\bconst\b", text))


def global_problems(source):
    """Variables that outlive a call and can change: at namespace scope, static members, static locals."""
    if any(re.fullmatch(names, source.name) for names, _ in GLOBAL_STATE):
        return
    advice = "pass the state as an argument or keep it in an object"
    for item in source.items:
        head = cpp_source.strip_prefix(item.head)
        if item.kind == "variable" and (item.at_namespace_scope or re.match(r"(?:inline\s+)?static\b", head)):
            if re.search(r"\w", head) and not _is_constant(head):
                yield _at(source, item.start, f"mutable global \"{' '.join(head.split())[:60]}\"; {advice}")
        if item.kind in ("function", "macro"):
            for match in re.finditer(r"(?<=[;{}])\s*((?:static|thread_local)\b[^;{(]*)", item.body):
                if not _is_constant(match.group(1)):
                    line = item.end - item.body.count("\n", match.start(1))
                    yield _at(source, line, f"mutable static local; {advice}")


def _needs_doc(source, item):
    """The name of a function or type at namespace scope of a header that must have a docstring, or None."""
    if not item.at_namespace_scope or any(name in ("internal", "detail", "HWY_NAMESPACE") for _, name in item.scopes):
        return None
    if item.kind == "type":
        head = cpp_source.strip_prefix(item.head)
        remarked_enum = head.startswith("enum") and "//" in source.lines[item.start - 1]
        specialised = "<" in head.split(":")[0]
        return None if specialised or remarked_enum else cpp_source.scope_name(item.head)
    if item.kind in ("function", "declaration"):
        name = (cpp_source.parameters(item.head) or ("?",))[0]
        return None if "::" in name else name
    return None


def doc_problems(source):
    """A /// line before each function and type of a header; one may stand for a block without blank lines."""
    if not source.name.startswith("src/") or not source.name.endswith(".h"):
        return
    group_end, documented = -1, False
    for item in source.items:
        name = _needs_doc(source, item)
        if name is None:
            continue
        above = source.lines[item.start - 2].strip() if item.start >= 2 else ""
        documented = above.startswith("///") or documented and item.start == group_end + 1
        group_end = item.end
        if not documented:
            yield _at(source, item.start, f"{name} has no /// docstring")


def word_problems(root, names):
    """Markers of unfinished work, and words about anything but the project, in every text file."""
    for name in names:
        path = root / name
        if name in SELF or path.suffix not in TEXT_SUFFIXES or name == "LICENSE" or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, message in ((MARKERS, "finish it, or make it an error and a line in docs/limits.md"),
                                     (FOREIGN, "the project speaks of itself alone"),
                                     (MACHINE_PATH, "a path of one machine")):
                found = pattern.search(line)
                if found:
                    yield f'{name}:{number}: "{found.group()}": {message}'


def script_problems(root, names):
    """Licence tags of scripts."""
    for name in names:
        path = root / name
        # A model's recipe is kept as it was when it made the weights.
        if not path.is_file() or path.suffix not in (".py", ".sh", "") or name.startswith("models/"):
            continue
        with path.open("rb") as file:
            head = file.read(400).decode("utf-8", errors="replace").splitlines()[:2]
        is_script = path.suffix in (".py", ".sh") or bool(head and head[0].startswith("#!"))
        if is_script and not any(line == f"# {LICENSE}" for line in head):
            yield f'{name}:1: no "# {LICENSE}" in the first two lines'


def mirror_problems(root, files):
    """Each source has its test."""
    for source in files:
        parts = source.name.split("/")
        stem = pathlib.PurePosixPath(source.name).stem
        if parts[0] != "src" or not source.name.endswith(".cc") or len(parts) != 3:
            continue
        mirror = f"tests/{parts[1]}/{stem}_test.cc"
        if not (root / mirror).exists() and not any(re.fullmatch(p + r".*", source.name) for p, _ in NO_MIRROR):
            yield f"{source.name}:1: no test; write {mirror}, or exempt it with a reason in tools/check_style.py"


def tree_names(root):
    """Every tracked or new file that git does not ignore; every file when there is no repository."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z", "."],
                             capture_output=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return sorted(set(listing.stdout.decode("utf-8", errors="replace").split("\0")) - {""})
    skip = re.compile(r"^(?:\.git|\.venv|build[^/]*)(?:/|$)|/__pycache__/")
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in names if not skip.search(name))


def check(root):
    """(problems, one line that says what was looked at)."""
    root = pathlib.Path(root).resolve()
    names = tree_names(root)
    files = cpp_source.sources(root, *CODE_FOLDERS)
    problems = []
    for source in files:
        if not source.balanced:
            problems.append(_at(source, 1, "braces do not balance outside preprocessor lines; it cannot be checked"))
            continue
        for judge in (header_problems, size_problems, macro_problems, statement_problems, doc_problems):
            problems += judge(source)
    problems += mirror_problems(root, files)
    problems += script_problems(root, names)
    problems += word_problems(root, names)
    return problems, f"{len(files)} C++ files, {len(names)} files"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, help="the source tree")
    problems, summary = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    print(f"check_style: {summary}: " + (f"{len(problems)} problems" if problems else "ok"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
