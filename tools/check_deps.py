#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the includes follow the module graph in CMakeLists.txt, and that libraries stay behind their doors."""

import argparse
import pathlib
import re
import sys

import cpp_source

# Files that may include CUDA's own headers.
CUDA_HOMES = re.compile(r"\.cu$|\.cuh$|^src/device/cuda|^src/comm/nccl\.cc$")
CUDA_HEADERS = re.compile(r"^(?:cuda|cub/|cublas|nccl|nvml|curand|cooperative_groups|mma\.h|thrust/|nvToolsExt)")

# (headers of a library, the files that may include them): the rest of the project does not know the library.
LIBRARY_HOMES = (
    (re.compile(r"^nlohmann/"), re.compile(r"^src/base/json\.h$")),
    (re.compile(r"^xxh(?:ash|_x86dispatch)\.h$"), re.compile(r"^src/base/")),
    (re.compile(r"^(?:pcre2|utf8proc)"), re.compile(r"^src/text/")),
    (re.compile(r"^hwy/"), re.compile(r"^src/kernels/")),
    (re.compile(r"^CLI/"), re.compile(r"^src/cli/")),
    (re.compile(r"^prometheus/"), re.compile(r"^src/server/(metrics|request_stats)\.(h|cc)$")),
    (re.compile(r"^httplib\.h$"), re.compile(r"^src/server/http_server\.cc$")),
)

ENVIRONMENT = re.compile(r"\b(?:secure_getenv|getenv|setenv|putenv|unsetenv|environ)\b")
ENVIRONMENT_HOME = "src/base/env.cc"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def read_graph(text):
    """({module: [direct dependency, ...]}, [module the program links, ...]) from the root CMake file."""
    text = re.sub(r"#[^\n]*", "", text)
    modules = {}
    for name, rest in re.findall(r"\beng_module\s*\(\s*(\w+)([^)]*)\)", text):
        words, keyword, deps = rest.split(), None, []
        for word in words:
            if word in ("DEPS", "LIBS"):
                keyword = word
            elif keyword == "DEPS":
                deps.append(word)
        modules[name] = deps
    program = re.search(r"\btarget_link_libraries\s*\(\s*trivet\s+([^)]*)\)", text)
    return modules, [word for word in program.group(1).split() if word in modules] if program else []


def graph_problems(modules, folders):
    """Unknown names, cycles, and folders of src/ that no line of the CMake file names."""
    for module, deps in modules.items():
        for dep in deps:
            if dep not in modules:
                yield f"CMakeLists.txt: eng_module({module}): DEPS names {dep}, which is no module"
    state = {}

    def cycle(module, path):
        if state.get(module) == "done":
            return None
        if module in path:
            return path[path.index(module) :] + [module]
        for dep in modules.get(module, ()):
            found = cycle(dep, path + [module])
            if found:
                return found
        state[module] = "done"
        return None

    for module in modules:
        found = cycle(module, [])
        if found:
            yield "CMakeLists.txt: the module graph has a cycle: " + " -> ".join(found)
            break
    for folder in folders:
        if folder not in modules and folder != "cli":
            yield f"src/{folder}: no eng_module({folder} ...) in CMakeLists.txt"


def include_problems(source, allowed, modules, src):
    """Violations of one file; `allowed` holds the modules whose headers it may include."""
    module = source.name.split("/")[1]
    for match in INCLUDE.finditer(cpp_source.strip_comments(source.text)):
        quoted, angled = match.groups()
        header = quoted or angled
        where = f"{source.name}:{source.text.count(chr(10), 0, match.start()) + 1}"
        first = header.split("/")[0] if "/" in header else ""
        ours = first in modules or first == "cli"
        if angled and ours and (src / header).exists():
            yield f'{where}: <{header}> is a header of the project; write "{header}"'
        if quoted and first != "hwy":
            if not ours:
                yield f'{where}: "{header}" names no module; write "<module>/<file>", or <...> for a library'
            elif first != module and first not in allowed:
                yield f"{where}: {module} includes {header}, but its DEPS do not list {first}"
            elif not (src / header).exists():
                yield f"{where}: {header} does not exist"
        if CUDA_HEADERS.match(header) and not CUDA_HOMES.search(source.name):
            yield f"{where}: CUDA header {header}; only files that match {CUDA_HOMES.pattern} may include it"
        for headers, homes in LIBRARY_HOMES:
            if headers.match(header) and not homes.search(source.name):
                yield f"{where}: {header} may only be included by {homes.pattern}"


def check(root):
    """(problems, one line that says what was looked at)."""
    root = pathlib.Path(root)
    modules, program = read_graph((root / "CMakeLists.txt").read_text(encoding="utf-8"))
    src = root / "src"
    files = cpp_source.sources(root, "src")
    folders = sorted({source.name.split("/")[1] for source in files if source.name.count("/") >= 2})
    problems = list(graph_problems(modules, folders))
    used = {module: set() for module in modules}
    for source in files:
        module = source.name.split("/")[1]
        problems += include_problems(source, program if module == "cli" else modules.get(module, ()), modules, src)
        if module in used:
            used[module] |= {m.group(1).split("/")[0] for m in INCLUDE.finditer(source.text) if m.group(1)}
        for number, line in enumerate(source.code.splitlines(), 1):
            if ENVIRONMENT.search(line) and source.name != ENVIRONMENT_HOME:
                problems.append(f"{source.name}:{number}: the environment is read only in {ENVIRONMENT_HOME}")
    for module, deps in modules.items():
        for dep in sorted(set(deps) - used[module]) if module in folders else ():
            problems.append(f"CMakeLists.txt: eng_module({module}): DEPS lists {dep}, which no file of it includes")
    return problems, f"{len(modules)} modules, {len(files)} files"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, help="the source tree")
    problems, summary = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    print(f"check_deps: {summary}: " + (f"{len(problems)} problems" if problems else "ok"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
