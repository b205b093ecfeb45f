# SPDX-License-Identifier: Apache-2.0
"""Reads C++ text well enough for the style and dependency checks: no preprocessor, no types, only lexical structure."""

import dataclasses
import pathlib
import re

CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")

_TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw>R"(?P<delimiter>[^\s()\\]{0,16})\(.*?\)(?P=delimiter)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<number>\d(?:[\w.]|'(?=\w))*)
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text):
    """The text without comments; literals stay, and every line keeps its number."""
    return _TOKEN.sub(lambda m: _blank(m.group()) if m.group("line") or m.group("block") else m.group(), text)


def code_only(text):
    """The text without comments, literals and preprocessor lines; every line keeps its number and length."""

    def replace(match):
        if match.group("number"):
            return match.group()
        if match.group("line") or match.group("block"):
            return _blank(match.group())
        return '"' + _blank(match.group()[1:-1]) + '"'

    return _DIRECTIVE.sub(lambda m: _blank(m.group()), _TOKEN.sub(replace, text))


@dataclasses.dataclass
class Item:
    """One statement or definition outside function bodies."""

    kind: str  # "function", "macro" (with a body), "declaration" (of a function), "type", "forward" (of a type), ...
    head: str  # the text before the body or the semicolon
    start: int  # first line of the head, from 1
    end: int  # last line, with the body
    scopes: tuple  # enclosing scopes, outermost first: ("namespace", name) or ("type", name)
    body: str = ""  # text of the body of a function

    @property
    def at_namespace_scope(self):
        return all(kind == "namespace" for kind, _ in self.scopes)


_PREFIX = re.compile(r"^\s*(?:\[\[.*?\]\]|extern\s+\"[^\"]*\"\s*(?=\w)|(?:public|private|protected)\s*:(?!:))\s*", re.DOTALL)
_TYPE = re.compile(r"^(?:(?:typedef|inline|static|constexpr|export)\s+)*(?:class|struct|union|enum)\b")
_AFTER_HEAD = re.compile(r"\b(?:const|noexcept|override|final|try|mutable)$")


def _match(text, position, opening, closing):
    """Position after the bracket that closes the one at `position`, or None."""
    depth = 0
    for i in range(position, len(text)):
        if text[i] == opening:
            depth += 1
        elif text[i] == closing:
            depth -= 1
            if depth == 0:
                return i + 1
    return None


def strip_prefix(head):
    """A head without access labels, attributes and template or requires clauses."""
    while True:
        head, before = head.strip(), head
        head = _PREFIX.sub("", head)
        if re.match(r"template\s*<", head):
            end = _match(head, head.index("<"), "<", ">")
            head = head[end:] if end else ""
        elif re.match(r"requires\s*\(", head):
            end = _match(head, head.index("("), "(", ")")
            head = head[end:] if end else ""
        if head == before:
            return head


def _outside_brackets(text):
    """The characters of `text` outside every (), <>, [] and {} (comparison signs never occur in heads)."""
    out, depth = [], 0
    text = re.sub(r"operator\s*(?:\(\)|\[\]|<=>|[-+*/%^&|~!=<>]+)", "operator_", text).replace("->", "  ")
    for c in text:
        if c in "(<[{":
            depth += 1
        elif c in ")>]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            out.append(c)
    return "".join(out)


def parameters(head):
    """(name, [parameter, ...]) of a function head, or None when the head declares no function."""
    head = strip_prefix(head)
    head = re.sub(r"operator\s*\(\)", "operator_call", head)
    head = re.sub(r"operator\s*(?:<=>|[-+*/%^&|~!=<>]+|\[\])", "operator_", head)
    skip = r"\b(?:decltype|alignas|explicit|noexcept|__attribute__|__launch_bounds__|requires)\s*\("
    while match := re.search(skip, head):
        end = _match(head, match.end() - 1, "(", ")")
        head = head[: match.start()] + (head[end:] if end else "")
    angle = 0
    for i, c in enumerate(head):
        if c == "<":
            angle += 1
        elif c == ">" and head[i - 1] != "-":
            angle -= 1
        elif c == "(" and angle == 0:
            name = re.search(r"([\w:~]+)\s*$", head[:i])
            end = _match(head, i, "(", ")")
            if not name or end is None or head[i + 1 :].lstrip().startswith("*"):
                return None
            return name.group(1), split_commas(head[i + 1 : end - 1])
    return None


def split_commas(text):
    """The pieces of `text` between commas that lie outside every bracket."""
    pieces, depth, piece = [], 0, ""
    for c in text:
        depth += c in "(<[{"
        depth -= c in ")>]}"
        if c == "," and depth == 0:
            pieces.append(piece.strip())
            piece = ""
        else:
            piece += c
    return pieces + [piece.strip()] if piece.strip() else pieces


def classify(head):
    """What the text before a `{` or `;` at namespace or class scope introduces."""
    text = strip_prefix(head)
    if re.match(r"(?:inline\s+)?namespace\b(?!\s+\w+\s*=)", text) or re.match(r'extern\s+"', text):
        return "namespace"
    if not text or re.match(r"(?:using|typedef|friend|static_assert|namespace|concept)\b", text):
        return "other"
    if re.match(r"(?:extern\s+)?template\b", text):
        return "other"  # an explicit instantiation
    if re.match(r"[A-Z][A-Z0-9_]{3,}\s*\(", text):
        return "macro"
    outside = re.sub(r"=\s*(?:0|default|delete)\s*$", "", _outside_brackets(text)).strip()
    if _TYPE.match(text) and "(" not in re.sub(r"alignas\s*\([^)]*\)", "", text.split(":")[0]):
        return "type"
    if "=" in outside:
        return "variable"
    return "function" if parameters(text) else "variable"


def _is_member_initialiser(head):
    """True when a `{` after `head` initialises a member in a constructor's list and is not the body."""
    text = strip_prefix(head)
    if not re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", text):
        return False
    return bool(re.search(r"[\w>]$", text)) and not _AFTER_HEAD.search(text)


def scope_name(head):
    """The name that a namespace or type head introduces ("" when it has none)."""
    text = re.sub(r"\[\[.*?\]\]|alignas\s*\([^)]*\)", "", strip_prefix(head))
    match = re.search(r"\b(?:namespace|class|struct|union|enum(?:\s+(?:class|struct))?)\s+([\w:]+)", text)
    return match.group(1) if match else ""


class Source:
    """One C++ file: its raw lines and the items outside function bodies."""

    def __init__(self, root, path):
        self.path = pathlib.Path(path)
        self.name = self.path.relative_to(root).as_posix()
        self.text = self.path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()
        self.code = code_only(self.text)
        self.items = []
        self.balanced = True
        self._scan()

    def _line(self, position):
        return self.code.count("\n", 0, position) + 1

    def _add(self, kind, start, head_end, end, scopes, body=""):
        head = self.code[start:head_end]
        first = start + len(head) - len(head.lstrip())
        label = re.match(r"(?:(?:public|private|protected)\s*:(?!:)\s*)+", self.code[first:head_end])
        first += label.end() if label else 0
        self.items.append(Item(kind, head.strip(), self._line(first), self._line(end), tuple(scopes), body))

    def _scan(self):
        code, scopes, start, i, parens = self.code, [], 0, 0, 0
        while i < len(code):
            c = code[i]
            parens += (c == "(") - (c == ")")
            if c == ";" and parens == 0:
                kind = classify(code[start:i])
                kind = {"function": "declaration", "type": "forward", "macro": "other"}.get(kind, kind)
                self._add(kind, start, i, i, scopes)
                start = i + 1
            elif c == "}":
                if not scopes:
                    self.balanced = False
                    return
                scopes.pop()
                start = i + 1
            elif c == "{" and parens > 0 or c == "{" and _is_member_initialiser(code[start:i]):
                i = (_match(code, i, "{", "}") or len(code)) - 1
            elif c == "{":
                start, i = self._open(scopes, start, i)
            i += 1
        self.balanced = not scopes

    def _open(self, scopes, start, i):
        """Handles an opening brace; returns the next head's start and the position to go on from."""
        head, kind = self.code[start:i], classify(self.code[start:i])
        if kind == "namespace" or (kind == "type" and not re.search(r"\benum\b", head)):
            if kind == "type":
                self._add("type", start, i, i, scopes)
            scopes.append((kind, scope_name(head)))
            return i + 1, i
        end = _match(self.code, i, "{", "}")
        if end is None:
            self.balanced = False
            return len(self.code), len(self.code)
        if kind in ("function", "macro"):  # TEST(...) { } has a body too
            self._add(kind, start, i, end - 1, scopes, self.code[i:end])
            return end, end - 1
        if kind == "type":  # an enum; its semicolon ends an empty statement
            self._add("type", start, i, end - 1, scopes)
            return end, end - 1
        return start, end - 1  # an initialiser: the statement ends at its semicolon


def sources(root, *folders):
    """Every C++ file below the folders, sorted by name."""
    root = pathlib.Path(root)
    paths = [p for folder in folders for p in (root / folder).rglob("*") if p.suffix in CPP_SUFFIXES and p.is_file()]
    return [Source(root, path) for path in sorted(paths)]
