#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares rendered chat templates with jinja2, set up as transformers sets it up.

usage: template_oracle.py DRIVER [--tokenizer DIR]... [--random N] [--seed N] [--show N]

DRIVER is text_template_driver. Both sides render every case; equal texts or an error on both sides pass. Snippets
exercise every statement, filter, test and method; random expressions combine them; the templates of the tokenizer
directories render odd conversations, and the chats of their golden.json must come out as recorded.
"""

import argparse
import datetime
import itertools
import json
import pathlib
import random
import subprocess
import sys
import warnings

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")


class Generation(Extension):
    """The generation block, which renders its body as a function of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.now().strftime(format)


def environment(optimized):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, optimized=optimized,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENV = environment(True)
# Folding turns errors of slices of constants into undefined values. It also happens to what is printed, so that the cases
# of this environment print variables.
UNOPTIMIZED = environment(False)


def expected(template, context, env=ENV):
    """The text, or None for an error of whatever kind, as the second of a pair with its message."""
    try:
        # a fresh context: in-place operators of the reference can change lists
        text = env.from_string(template).render(**json.loads(json.dumps(context)))
        text.encode("utf-8")
        return text, ""
    except Exception as error:  # any failure of the reference is an error case
        return None, f"{type(error).__name__}: {error}"


NO_TEXT = (" at 0x", "<bound method", "<built-in method", "<function ", "<class ")


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(self, template, context):
        self.process.stdin.write(json.dumps({"template": template, "context": context}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the driver died on {template!r} with {json.dumps(context)}")
        return json.loads(line)


class Report:
    def __init__(self, driver, show):
        self.driver, self.show = driver, show
        self.cases = self.errors = self.mismatches = 0
        self.totals = {}

    def check(self, group, template, context, env=ENV):
        want, why = expected(template, context, env)
        # Objects without a text of their own print as an address in the reference.
        if want is not None and any(mark in want for mark in NO_TEXT):
            return False
        self.compare(group, template, context, want, why)
        return True

    def compare(self, group, template, context, want, why):
        got = self.driver.render(template, context)
        self.cases += 1
        self.totals[group] = self.totals.get(group, 0) + 1
        self.errors += want is None
        if got.get("text") == want:
            return
        self.mismatches += 1
        if self.mismatches <= self.show:
            print(f"MISMATCH {group}\n  template {template[:500]!r}\n  context  {json.dumps(context)[:500]}\n"
                  f"  jinja2   {want!r} {why[:200]}\n  trivet   {got!r}")


CONTEXT = {
    "s": "Hello, World", "empty": "", "u": "h\u00e9llo \u4f60\u597d \U0001f600 \u00df", "ws": "  a\tb \n c\u00a0\u2003 ", "q": "it's \"q\" \\ \n",
    "html": "<a href='x'>&\"</a>", "lines": "one\ntwo\r\nthree\n\nfive", "path": "a/b/c", "num": "42", "fnum": " -3.5e2 ",
    "i": 7, "neg": -3, "zero": 0, "big": 9007199254740993, "f": 2.5, "g": -0.1, "tiny": 1e-7, "huge": 1.5e300, "one": 1.0,
    "t": True, "fl": False, "n": None,
    "l": [3, 1, 2], "le": [], "ls": ["b", "A", "c", "a"], "lm": [1, "a", None, 2.5, True, [1], {"k": 1}],
    "ll": [[1, 2], [3, 4], [5, 6]], "lu": ["\u00e9", "z", "\U0001f600"],
    "d": {"b": 1, "a": "x", "C": None}, "de": {}, "dn": {"x": {"y": {"z": [10, {"w": "deep"}]}}, "items": "key", "get": 5},
    "users": [{"name": "bob", "age": 30, "tags": ["x", "y"]}, {"name": "Alice", "age": 25, "tags": []},
              {"name": "carol", "age": 30, "tags": ["y"], "extra": {"v": 1}}],
}

VALUES = ["s", "empty", "u", "ws", "q", "html", "lines", "num", "fnum", "i", "neg", "zero", "big", "f", "g", "tiny", "huge", "one", "t",
          "fl", "n", "l", "le", "ls", "lm", "ll", "lu", "d", "de", "dn", "users", "missing", "'lit'", "(1, 2)", "()", "('a',)", "range(3)",
          "range(5, 0, -2)", "d.items()", "d.keys()", "dn.x", "1.0", "1e20", "1e16", "-0.0", "[]", "{}", "{1: 2, none: 3, (1,2): 'x'}",
          "s|safe", "html|e", "namespace(a=1)", "0.1 + 0.2", "l[1]", "users[0].name", "'\u0130\u01c6\u03a3 \ufb01'"]

FILTERS = ["abs", "capitalize", "center(20)", "count", "default('z')", "d('z', true)", "dictsort", "dictsort(true)", "dictsort(by='value')",
           "dictsort(reverse=true)", "e", "escape", "first", "float", "float(1)", "forceescape", "format(1)", "format('x', 2)", "format(a=1)",
           "groupby('age')", "groupby('name')", "indent", "indent(2)", "indent(2, true)", "indent(3, blank=true)", "indent('>> ', first=true)", "int", "int(5)",
           "int(base=16)", "items|list", "join", "join(', ')", "join('-', attribute='name')", "last", "length", "list", "lower",
           "map('upper')|list", "map(attribute='name')|list", "map(attribute='age', default=0)|list", "map('int')|sum", "max", "min", "max(attribute='age')",
           "min(attribute='name')", "reject('odd')|list", "reject|list", "rejectattr('age', 'eq', 30)|list", "rejectattr('extra')|list",
           "replace('l', 'L')", "replace('l', 'L', 1)", "replace('', '.')", "reverse|list", "round", "round(1)", "round(2, 'floor')", "round(0, 'ceil')",
           "round(-1)", "safe", "select|list", "select('string')|list", "select('number')|list", "selectattr('age', '>', 26)|list",
           "selectattr('extra.v')|list", "selectattr('tags')|map(attribute='name')|join(',')", "slice(2)|list", "slice(2, 'f')|list", "batch(2)|list",
           "batch(2, 'f')|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='age')", "sort(attribute='age,name')",
           "string", "sum", "sum(attribute='age')", "sum(start=5)", "title", "tojson", "tojson(indent=2)", "tojson(indent=0)", "tojson(ensure_ascii=true)",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "trim", "trim('a ')", "truncate(5)", "truncate(5, true, '')", "truncate(4, leeway=0)",
           "unique|list", "unique(attribute='age')|list", "upper", "wordcount", "attr('name')", "attr('upper')|string|length > 0", "reverse|string|length > 0"]

TESTS = ["boolean", "callable", "defined", "divisibleby(3)", "divisibleby 2", "eq(7)", "equalto 'x'", "even", "false", "float", "ge(2)", "gt 2", "in [1, 7, 'a']",
         "in s", "in d", "integer", "iterable", "le(2)", "lt 2", "lower", "mapping", "ne(7)", "none", "number", "odd", "sameas(none)", "sameas true", "sequence",
         "string", "true", "undefined", "upper", "escaped", "greaterthan 3", "lessthan(3)", "not none", "not defined", "filter", "test"]

STRING_METHODS = ["strip()", "strip('Hd')", "lstrip()", "rstrip('\\n ')", "split()", "split('l')", "split(' ', 1)", "split(maxsplit=1)", "split(sep=',')", "split(none, 2)",
                  "rsplit(' ', 1)", "rsplit(none, 1)", "rsplit('l', 2)", "split('')", "splitlines()", "splitlines(true)", "startswith('He')", "startswith(('x', 'h'))",
                  "startswith('l', 2)", "endswith('d')", "endswith(('d', '\\n'), 1)", "endswith('')", "replace('l', '')", "replace('l', 'LL', 1)", "replace('', '-', 2)",
                  "replace('', '-')", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "find('l')", "find('zz')", "find('l', 4)", "find('', 3)",
                  "find('l', -3, -1)", "rfind('l')", "rfind('o', 0, 5)", "index('o')", "rindex('zz')", "count('l')", "count('')", "count('l', 3, 20)", "join(['a', 'b'])",
                  "join(ls)", "join([1])", "join('xyz')", "join(())", "format(1, 2)", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()",
                  "isdecimal()", "isascii()", "isprintable()", "removeprefix('He')", "removesuffix('d')", "removesuffix('')", "partition('o')", "rpartition('o')",
                  "partition('zz')", "rpartition('zz')", "ljust(20, '*')", "rjust(20)", "center(15, '-')", "center(4)", "zfill(20)", "zfill(0)", "expandtabs(4)", "expandtabs()",
                  "strip(1)", "startswith(1)", "split(1)", "find()", "upper(1)", "strip(none)", "strip(chars='H')", "nosuch", "nosuch()", "_x"]

OTHER_METHODS = {
    "d": ["get('a')", "get('zz')", "get('zz', 5)", "get(key='a')", "items()|list", "keys()|list", "values()|list", "items()", "keys()", "values()", "pop('a')", "update({})",
          "clear()", "copy()", "a", "zz", "['a']", "['zz']", "get", "['get'] is callable", "pop", "popitem is defined", "items()|length", "[[1]]", "[1]",
          "items() | first", "keys()|last", "get([1])"],
    "dn": ["items", "items()", "get", "['items']", "['get']", "x.y.z[0]", "x.y.z.0", "x.y.z[1].w", "x.y.q", "x.q.z", "x['y']['z'][-1]['w']"],
    "l": ["index(1)", "index(9)", "count(1)", "append(4)", "copy()", "pop()", "sort()", "reverse", "[0]", "[-1]", "[9]", "['a']", "a", "index(2, 1)", "index(3, 1, 2)", "[1.0]",
          "[true]", "0", "extend is defined"],
    "(1, 2, 1)": ["index(2)", "count(1)", "append(1)", "[0]", "[-3]", "[3]", "copy()"],
    "range(2, 10, 3)": ["start", "stop", "step", "index(5)", "count(8)", "[1]", "[-1]", "[9]", "[::-1]", "[1:]|list"],
    "i": ["real", "imag", "denominator", "numerator", "nosuch", "[0]", "x.y"],
    "f": ["real", "imag", "nosuch"], "t": ["real", "numerator"], "n": ["x", "x.y", "[0]"], "missing": ["x", "[0]", "x()", "items()"],
    "s": ["[0]", "[-1]", "[50]", "['upper']()", "['x']", "[1:3]", "[::2]", "0"],
}

SLICES = ["[:]", "[1:]", "[:1]", "[:-1]", "[-2:]", "[::-1]", "[::2]", "[1:10:3]", "[-1:0:-1]", "[5:1]", "[::0]", "[:none]", "['a':]", "[-100:100]", "[100::-3]", "[true:]"]

OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]

EXPRESSIONS = r"""
1 < 2 < 3|1 < 2 > 3|1 < 2 == 2 != 3|1 if t|1 if fl|(1 if fl) is defined|1 if fl else 2 if fl else 3|'a' if s else missing.x|not s|not missing|not not 1
-2 ** 2|2 ** -1|2 ** 3 ** 2|-7 // 2|-7 % 3|7 % -3|7.5 // 2|-7.5 % 2|1e308 * 10|1 / 3|2 / 1|0 ** 0|0.0 ** -1|1 // 0|1 % 0|1 / 0.0
9223372036854775807|-9223372036854775807|10 ** 15|1e15|1e16|123456789.123|1e-5|0.0001|1_000|0x1F|0b101|0o17|1e3|1.5e-3|007|1__0|1e999
'a' 'b'|"a\n\t\\\"'"|'\x41\u00e9\U0001F600'|'\101\60'|'\q\d'|'\é'|'a\
b'|'unterminated|'\x4'|'\u12'|''|'''a'''|'{{ x }}'|'%}'
[1, 2,]|(1,)|(1)|()|{}|{'a': 1,}|{'a': 1, 'a': 2}|{1: 'x', 1.0: 'y', true: 'z'}|[[]]|{'k': [1, (2,), {'z': none}]}|{[1]: 2}|[1 2]|{,}|[,]|1,2,3|1,
s.upper().lower()|s|upper|lower|s | upper | length + 1|-3|abs|(-3)|abs|2|string ~ 'x'|'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1]|'a' + 1|1 + 'a'|[1] + [2]|(1,) + (2,)|[1] + (2,)
'ab' * 3|3 * 'ab'|[0] * 3|'ab' * -1|'ab' * 2.0|true + true|true * 3|-true|+true|+'a'|-'a'|-missing|missing + 1|missing ~ 'x'|missing == missing|missing != 1|missing < 1
missing in l|1 in missing|none in lm|'a' in 'abc'|1 in 'abc'|'' in ''|1 in 1|'a' in d|[1] in ll|[1, 2] in ll|1 in (1, 2)|1.0 in [1]|true in [1]|2 in range(3)|2.0 in range(3)
none == none|none < 1|none == false|[1, 2] < [1, 3]|[1] < [1, 0]|(1, 'a') < (1, 2)|(1, 2) == [1, 2]|{'a': 1} == {'a': 1.0}|{'a': 1, 'b': 2} == {'b': 2, 'a': 1}|'a' < 'B'|'é' > 'z'
{} < {}|1 == '1'|1 == true|1.5 == 3/2|big == 9007199254740992.0|big > 9007199254740992.0|big < 9007199254740994.0
l is sameas l|none is sameas none|1 is sameas true|s is string and i is number|i is not string|i is divisibleby 7 and true|i is in l|i is in([7])|i is not in l|s is nosuchtest|s|nosuchfilter
(s|nosuchfilter) if fl else 1|1 if s is nosuchtest else 2|i is eq 7 == true|i is odd and f is float|(i is odd) ~ 'x'|l is iterable and l is sequence|namespace is callable|range is callable
s is callable|s.upper is callable|d is mapping|d.items() is sequence|d.items() is iterable|range(3) is sequence|missing is sequence|missing is iterable|'upper' is filter|'odd' is test
range(3)|range(3)|list|range(1, 10, 3)|list|range(5, 0, -2)|list|range(0)|list|range(3, 1)|list|range(1, 2, 0)|range('a')|range()|range(1.0)|range(100001)|range(100000)|length
range(2, 5)|range(0, 9, 2)|range(3) == range(0, 3)|range(3) == [0, 1, 2]|range(10)[2:5]|range(10)[::-3]|range(10)[2:5]|list|range(3)|sum|range(3)|max
dict(a=1, b=2)|dict({'x': 1}, y=2)|dict([['a', 1], ('b', 2)])|dict([1])|dict(1)|dict(**d)|dict(a=1, **{'b': 2})|dict(d)|dict('ab')
namespace(a=1).a|namespace({'a': 2}).a|namespace(a=1).b|namespace(a=1)['a']|namespace(a=[1, 'x'])|namespace()|namespace(a=1)._x|namespace(a=1).a.b
cycler('a', 'b').next()|cycler('a', 'b').current|cycler()|cycler(1, 2).reset()|joiner()()|joiner('x').sep|joiner().used|raise_exception('boom')|raise_exception()|strftime_now('%Y')|strftime_now('lit')
'%s-%s' % (1, 'a')|'%d' % 3.7|'%5.2f|%-5d|%05d|%+d|% d' % (1.005, 3, 4, 5, 6)|'%x %X %#x %o' % (255, 255, 255, 8)|'%e %g %G' % (1234.5, 0.00001, 1e20)|'%r' % 'a'|'%c%c' % ('x', 65)
'%%' % ()|'%s' % none|'%s' % [1, 2]|'%s %s' % 1|'%s' % (1, 2)|'%(a)s %(b)d' % {'a': 1, 'b': 2}|'%(a)s' % 1|'%(z)s' % {'a': 1}|'%d' % 'a'|'%z' % 1|'%' % 1|'%s' % missing|'abc' % {}|'abc' % 1
'%.3s|%10.2s|%-10s|' % ('abcdef', 'abc', 'x')|'%*d' % (5, 3)|'%.*f' % (2, 3.14159)|'%i %u' % (1, 2)|'%5%' % ()|'%s' % ((1, 2),)|'%.0f %.1f' % (2.5, 0.25)|'%f' % 1e20|'%s' % 1.0
'{} {}'.format(1, 'a')|'{0} {1} {0}'.format(1, 2)|'{a} {b}'.format(a=1, b='x')|'{}'.format()|'{0} {}'.format(1, 2)|'{{}} {}'.format(1)|'{'.format()|'}'.format()|'{a.name} {a[age]}'.format(a=users[0])
'{0[0]} {0[1]}'.format(l)|'{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|'.format(1, 2, 3, 4, 5)|'{:5}|{:>5}|{:^5}|{:.2}|'.format('a', 'b', 'c', 'defg')|'{:05d} {:+d} {: d} {:,} {:_}'.format(42, 1, 2, 1234567, 1234567)
'{:.2f} {:e} {:g} {:%} {:.1%}'.format(3.14159, 12345.678, 0.00001, 0.5, 0.123)|'{:x} {:X} {:#x} {:b} {:#b} {:o} {:c}'.format(255, 255, 255, 5, 5, 8, 65)|'{!r} {!s}'.format('a', 'b')|'{:d}'.format(1.5)
'{:d}'.format('a')|'{:s}'.format(1)|'{:{}}|'.format('a', 5)|'{:.{p}f}'.format(3.14159, p=3)|'{:10.3f}|'.format(3.14159)|'{:010.3f}|'.format(-3.14159)|'{}'.format(none)|'{:5}'.format(none)|'{}'.format(1.0)
'{:.3}'.format(1234.5)|'{:.3}'.format(3.0)|'{:.1}'.format(3.0)|'{:5}'.format(true)|'{}'.format(true)|'{:d}'.format(true)|'{:,.2f}'.format(1234567.891)|'{:>{w}}'.format('x', w=4)|'{x}'.format()|'{:05}'.format('a')
s|replace('o')|s|replace(old='o', new='0')|s|join(d='-')|s|default|missing|default|missing|default(default_value='q')|fl|default('q', true)|fl|default('q', boolean=true)|''|d('x')|s|indent(width=2)|s|trim(chars='H')
l|sum('x')|['a', 'b']|sum|['a']|sum(start='')|ll|sum(start=[])|users|map|users|map('nosuch')|list|users|map(attribute='tags.0')|list|users|map(attribute='tags')|map('length')|list|users|map(nope='x')|list
users|selectattr('age', 'equalto', 30)|map(attribute='name')|join(', ')|users|selectattr|list|users|groupby('age')|map(attribute='grouper')|list|users|groupby('age')|map('first')|list|users|groupby('extra', default=1)|length
[1, 2, 3, 4]|select('>', 2)|list|[1, 2, 3]|map('string')|join|[1, 2]|map('multiply')|list|ls|map('replace', 'a', 'b')|list|ls|map('indent', width=2)|list|ls|sort|ls|sort(case_sensitive=true)|[1, 'a']|sort|[none]|sort
[none, none]|sort|ls|unique|list|[1, 1.0, true, 2]|unique|list|[[1], [1]]|unique|list|[3, 1]|min|[]|min|[]|max is defined|[]|first|[]|last is undefined|''|first|'abc'|last|'abc'|reverse|d|first|d|last|d|list|d|join
l|reverse|first|d|reverse|list|range(3)|reverse|list|5|list|5|first|none|list|none|length|5|length|d|length|missing|length|missing|list|missing|first|missing|last|missing|upper|missing|int|missing|float|missing|tojson
missing|join|missing|sort|missing|sum|missing|map('upper')|list|missing|items|list|5|items|list|missing|replace('a', 'b')|missing|trim|missing|string|missing|abs|missing|round|missing|e|missing|safe
'1e3'|int|'0x1f'|int|'0x1f'|int(base=16)|'1f'|int(base=16)|'101'|int(base=2)|'12.7'|int|'abc'|int|' 12 '|int|'1_000'|int|'_1'|int|''|int|'-5'|int|'+5'|int|'nan'|int|'inf'|int|'inf'|float|'nan'|float|'1e400'|float|'-0'|float
'0b11'|int(base=0)|'0o17'|int(base=0)|'017'|int(base=0)|'1_0.5_0'|float|'.5'|float|'5.'|float|'1e5'|float|'e5'|float|'infinity'|float|'--5'|int|'1 2'|int|3.99|int|-3.99|int|true|int|none|int|none|int(7)|[]|int|'x'|int('d')
2.5|round|3.5|round|-2.5|round|2.675|round(2)|1234.5|round(-2)|1250|round(-2)|1350|round(-2)|5|round|5|round(1)|0.5|round|1.25|round(1)|2.5|round(0, 'nope')|4.2|round(method='ceil')|4.7|round(method='floor')|-4.7|round(1, 'ceil')
7|round(-1, 'floor')|true|round|'a'|round|1e300|round(2)|0.1|round(25)|15|round(-1)|25|round(-1)|-15|round(-1)
1.0|tojson|1e16|tojson|1e-7|tojson|'é\n"\\\x7f\x01'|tojson|'<&>'|tojson|'😀é'|tojson(ensure_ascii=true)|{1: 2, none: 3, true: 4, 1.5: 5}|tojson|{(1,2): 3}|tojson|(1, 2)|tojson|range(3)|tojson|[[], {}]|tojson(indent=2)|[]|tojson(indent=2)
{'b': [1, {'c': none}], 'a': {}}|tojson(indent=2)|{'b': 1, 'a': 2}|tojson(sort_keys=true)|{'b': 1, 2: 2}|tojson(sort_keys=true)|[1, 2]|tojson(indent='--')|[1]|tojson(indent=-1)|[1, 2]|tojson(separators=('; ', '='))|[1]|tojson(separators='ab')
{'a': 1}|tojson(none, none)|d.items()|tojson|d|items|tojson|namespace()|tojson|s|safe|tojson|{'x': missing}|tojson|[1e400]|tojson|[-1e400]|tojson|1|tojson(indent=true)|d|tojson(2)|d|tojson(true, 1)
html|e|html|e|e|html|safe|e|html|forceescape|(html|safe) ~ '<'|(html|safe) + '<'|'<' + (html|safe)|('<'|e) ~ '<'|('%s'|safe) % '<'|('{}'|safe).format('<')|('<'|safe).join(['>', '&'|safe])|['<', '<'|safe]|join('&')
('a<'|safe)|upper|('a<'|safe).upper() ~ '<'|('a<b'|safe).split('<')[0] ~ '<'|('a'|safe)[0] ~ '<'|('ab'|safe)|list|('a'|safe) * 2 ~ '<'|['a'|safe]|('a'|safe)|string ~ '<'|('a<'|safe)|replace('a', '<') ~ '<'|('a'|safe) == 'a'|{'a'|safe: 1}
('a'|safe) is escaped|'a' is escaped|('ab'|safe)|first ~ '<'|('a'|safe)|trim ~ '<'|('a b'|safe)|title ~ '<'|('a'|safe).replace('a', '<')|('a'|safe) is string|(('a'|safe) ~ 1)|tojson
u|length|u[1]|u[6:8]|u[::-1]|u|upper|u|title|u|capitalize|u.find('好')|u.index('😀')|u.center(20, 'é')|u|list|u.split('你')|u|wordcount|u|reverse|'ǆ'.title()|'ΑΣ'.lower()|'ΑΣ Σ ΑΣΒ'|lower|'ﬁ'.upper()|'ŉ'|title|'İ'.lower()
'²'.isdigit()|'½'.isalnum()|'١٢'.isdigit()|'ⅷ'.isalpha()|'ªº'.islower()|'ǅ'.istitle()|'ǅ'.isupper()|'a\u0301'.isalpha()|'ß'.casefold()|'ﬃ'.swapcase()|'\u200b'.isspace()|'\x1c'.isspace()|'\x85'.strip()|'\u180e'.strip()
['\u200b', '\xad', '\u00a0', '\ue000', '\U0001f600', '\x7f', '\u0378']|["it's", 'a"b', "a'b\"c"]|'a\x1cb\x85c\u2028d'.splitlines()|'a\vb\fc'.splitlines()|'\r\n'.splitlines()|'\n'.splitlines(true)|''.splitlines()|'a\n'.splitlines()
users[0].name|users[0]['name']|users.0.name|users[-1].extra.v|users[9].name|users[0].nosuch|users[0].nosuch.x|users|first|attr('name')|users|length|users[1:]|map(attribute='name')|list|users[0].tags[0]
[1,2,3][1]|'abc'[1]|{'a': 1}.a|{'a': 1}['a']|(1, 2)[0]|(1, 2).0|1.real|1.5.real|'a'.upper()|[1].0|"a"|upper|none.x|true.x|l.0|ll[1][0]|l[i]|l[missing]|d[missing]|d[none]|s[missing]
s|upper()|s.upper|s is defined()|l|first()|(s)()|s()|1()|missing()|none()|d()|l()|s.upper()()|(l|first)()|varargs|caller()|loop|loop.index
s if|if s|s else|for|s..x|s.|.s|s[|s]|s(|(s|s)|{s|s}|@|s ? 1|s & 1|s ; 1|`s`|$s|s !|s = 1|s := 1|1 = 1|a b|not|and|1 and|is defined|s is|s is not|s||s|(|s in|in s|~|* 1|** 1|// 1|#
dict(a=1, a=2)|dict(*[d])|dict(*[d], **{'z': 1})|range(*[1, 3])|list|'{}{}'.format(*[1, 2])|'{a}'.format(**{'a': 1})|dict(**1)|dict(*1)|range(**{}, *[1])|range(1, *[2, 3], 4)|dict(a=1, 2)|s.replace(*['l', 'L'])
true|false|none|True|False|None|TRUE|nil|1 is true|true is true|t is sameas true|[true, false, none]|[1.0, -0.0, 1e100, 1.5e-10]|1.0|2.50|1e2|100000000000000000.0|123456789012345680.0|0.1|1/3|5e-324|1.7976931348623157e308
{'a': {'b': {'c': 1}}}.a.b.c|(1, (2, (3,)))|{'x': [1, 2]}.x[1]|((((1))))|[[[[]]]]|-(-(-1))|not not not 1|- - 1|+-+1|2 - -2|1-1|1 -1|a-b|i-1|i -1|i*f|i/f|i//f|i%f|i**2
l|length > 2 and s|s and l and d|le or de or 'x'|zero or n or fl|zero and 1|n or missing|missing or n|(zero or 5) + 1|not zero + 1|1 if 0 else 2 + 3|1 + 2 if 1 else 3|i > 5 and i < 10|i == 7 or missing.x|fl and missing.x
loop is defined|range is defined|s is defined and s|missing is defined|missing.x is defined|d.zz is defined|d.zz.y is defined|s.upper is defined|l.append is defined|l.append|d.pop is defined|s.__class__ is defined|s.format is defined
'a,b,,c'.split(',')|'a,b,,c'.split(',', 2)|'a,b,,c'.rsplit(',', 1)|'  a  b '.split()|'  a  b '.split(' ')|'  a  b c '.split(none, 1)|'  a  b c '.rsplit(none, 1)|'  a b '.split(none, 0)|' a '.rsplit(none, 0)|'abc'.split('abc')|''.split()|''.split(',')
'aXbXc'.split('X', -1)|'aaa'.split('aa')|'aaa'.rsplit('aa')|'aaa'.count('aa')|'aaaa'.replace('aa', 'b')|'abcabc'.rfind('abc')|'abc'.rfind('')|'abc'.find('', 9)|'abc'.count('', 1)|'abc'.strip('')|'éaé'.strip('é')|'abc'.startswith('')
'abc'.startswith('', 4)|'abc'.startswith((), 1)|'abc'.startswith(['a'])|'abc'.endswith(('b', 1))|'abc'.startswith(('a', 1))|'a'.join({'x': 1, 'y': 2})|'a'.join(5)|'%'.join(['1', '2'])|'abc'.removeprefix('abc')|'-5'.zfill(5)|'+5'.zfill(5)|'-'.zfill(3)
'abc'.center(6)|'abc'.center(7)|'abcd'.center(7)|'abcd'.center(9, '*')|'abc'.center(6, 'xx')|'abc'.ljust(-1)|'a\tb\n\tc'.expandtabs(4)|'a\tb'.expandtabs(0)|'hello world-foo bar_baz'.title()|"they're bill's"|title|"they're bill's".title()|'x(y [z <w {v'|title
'hello wOrld-foo'|title|'ab\ncd'|indent|'ab\n\ncd\n'|indent(2)|'ab\n\ncd'|indent(2, blank=true)|'ab\n\ncd'|indent(2, true, true)|''|indent|''|indent(2, true)|5|indent|'a\r\nb'|indent|'ab'|indent(-2)|'a\nb'|indent('é')|'a\nb'|indent(none)
'foo bar baz'|truncate(9)|'foo bar baz qux'|truncate(9)|'foo bar baz qux'|truncate(9, true)|'foo bar baz qux'|truncate(9, false, '..')|'foo bar baz qux'|truncate(9, false, '', 0)|'foo'|truncate(2)|'foobarbazqux'|truncate(5, leeway=0)|5|truncate
"""

TEMPLATES = [
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }}\n{% endfor %}",
    "{% for x in l %}[{{ loop.previtem }}|{{ x }}|{{ loop.nextitem }}]{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.previtem.x }}{% endfor %}",
    "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }}{{ loop.changed(x, 1) }} {% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in le %}x{% else %}none{% endfor %}", "{% for x in l %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for x in l if x > 9 %}x{% else %}none{% endfor %}", "{% for x in l if loop.index %}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }}{{ loop.length }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for a, b in ll %}{{ a }}{{ b }}{% endfor %}", "{% for (a, b) in ll %}{{ a }}{{ b }}{% endfor %}", "{% for a, b, c in ll %}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, in [[1]] %}{{ a }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}{% else %}e{% endfor %}", "{% for x in missing.y %}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% break %}", "{% continue %}", "{% if t %}{% break %}{% endif %}",
    "{% for x in l %}{% else %}{% break %}{% endfor %}", "{% for x in l %}{% for y in [] %}{% else %}{{ x }}{% break %}{% endfor %}{% endfor %}", "{% for x in l %}{% set y %}a{% break %}{% endset %}{% endfor %}b",
    "{% for x in l %}{% filter upper %}a{% continue %}{% endfilter %}{% endfor %}b", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "{% for i in l %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set (a, b) = ll[0] %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}", "{% set a = 1, %}{{ a }}", "{% set a %}x{{ i }}y{% endset %}{{ a }}{{ a|length }}", "{% set a | upper %}x{{ s }}{% endset %}{{ a }}", "{% set a|replace('x','y')|upper %}x{% endset %}{{ a }}", "{% set ns=namespace() %}{% set ns.x %}abc{% endset %}{{ ns.x }}",
    "{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b }}", "{% set a, b %}x{% endset %}", "{% set true = 1 %}", "{% set none = 1 %}", "{% set 1 = 1 %}", "{% set a.b.c = 1 %}", "{% set a[0] = 1 %}", "{% set loop = 1 %}{{ loop }}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% if t %}{% set z = 1 %}{% endif %}{{ z }}", "{% if fl %}{% set z = 1 %}{% endif %}{{ z }}", "{% if fl %}{% set s = 1 %}{% endif %}{{ s }}",
    "{% if i > 10 %}a{% elif i > 5 %}b{% else %}c{% endif %}", "{% if missing %}a{% elif n %}b{% elif le %}c{% endif %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% else %}", "{% elif t %}", "{% if t %}{% endfor %}", "{% for x in l %}{% endif %}", "{% for x l %}{% endfor %}", "{% for in l %}{% endfor %}",
    "{% if t: %}a{% endif %}", "{% for x in l: %}a{% endfor %}", "{% if 1, 2 %}a{% endif %}", "{% if t if fl %}a{% endif %}", "{% nosuch %}", "{% %}", "{{ }}", "{{}}", "{%", "{{", "{#", "{# x", "{{ x", "{% if", "}}", "%}", "#}", "{ {", "{ %", "{{ '}}' }}", "{{ {'a': {'b': 1}}['a'] }}", "{{ {} }}", "{{{}}}", "{{ [1,2}}", "{{ (1] }}", "{{ ) }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(a=5) }}{{ m() }}", "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(4) }}", "{% macro m(a=b, b=1) %}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}{{ m(1) }}", "{% macro m(1) %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}",
    "{% macro m() %}{% set s = 'in' %}{{ s }}{% endmacro %}{{ m() }}{{ s }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(5) }}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body{{ i }}{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=3) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}",
    "{% call 5 %}{% endcall %}", "{% call s.upper() %}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% for x in a %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) m(l) %}<{{ x }}>{% endcall %}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{% endfor %}{{ m }}",
    "{% macro m(a, b=1) %}{{ caller }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %} a {% endmacro %}[{{ m()|trim }}]{{ m()|length }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter upper|replace('A', 'b') %}abc{% endfilter %}", "{% filter nosuch %}a{% endfilter %}", "{% filter %}{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set q = 1 %}{{ q }}{% endfilter %}{{ q }}",
    "{% generation %}a{{ s }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}", "{% raw %}{{ x }}{% if %}{% endraw %}", "{%- raw -%} {{ x }} {%- endraw -%} y",
    "a {%- raw %} b {% endraw -%} c", "{% raw %}a\n  {% endraw %}\nb", "{% raw %}\n  x{% endraw +%}\ny", "{% raw %}", "{%raw%}x{%endraw%}", "  {% raw %} x {% endraw %}", "{% raw +%}x{% endraw %}", "{% rawx %}",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t %}\n  b\n  {%- endif %}\nc\n", "a\n  {% if t -%}\n  b\n  {% endif -%}\nc\n", "a\n  {%+ if t %}\n  b\n  {%+ endif +%}\nc\n", "a {{- s -}} b", "a\n {{- s -}}\n b", "a\n {{ s }}\n b", "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {#+ c +#}\nb", "a {# {{ x }} {% if %} #} b",
    "{#-#} x", "{##}\nx", "{#- -#}\n x", "x\n\n", "x\n", "\n", "", "x\r\ny\r\n", "x\ry", "{% if t %}\r\nx{% endif %}\r\n", "  {% if t %}x{% endif %}", "y  {% if t %}x{% endif %}", "\t{% if t %}\tx\n\t{% endif %}\n", "{% if t %}\n\n x{% endif %}", "{% if t %} \n x{% endif %}", "{{ s }}\n{{ s }}\n\n{{ s }}", "{{+ 'a' }}", "{{- 'a' +}}", "{{ i -}} x", "{{ i - }}", "{{ -1 }}{{- -1 -}}",
    "\u00a0{% if t %}x{% endif %}", "\n\u00a0{% if t %}x{% endif %}", "a\u2003{%- if t %}x{% endif %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = l|select %}{{ g|first }}{{ g|first }}{{ g|list }}", "{% set g = l|map('string') %}{% for x in g %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}{% for x in g %}again{% endfor %}", "{% if le|select %}y{% endif %}", "{{ (l|map('string'))|length }}", "{{ (l|map('string'))[0] }}",
    "{% set ns = namespace(done=false) %}{% for x in l if not ns.done %}{{ x }}{% if x == 1 %}{% set ns.done = true %}{% endif %}{% endfor %}", "{% set ns = namespace(done=false) %}{% for x in l if not ns.done %}{{ x }}{{ loop.last }}{% if x == 1 %}{% set ns.done = true %}{% endif %}{% endfor %}",
    "{% for x in users %}{% for t in x.tags %}{{ loop.index }}{{ t }}{% else %}-{% endfor %}{% endfor %}", "{% for x in users recursive %}{% endfor %}{{ missing.x }}", "{% for m in users %}{{ m.name if m.age > 26 }}{% endfor %}", "{{ users|tojson(indent=4) }}", "{{ lm }}{{ d }}{{ ll }}", "{{ lm|tojson }}{{ CONTEXT }}",
    "{% set x = namespace(l=[]) %}{% for i in range(4) %}{% set x.l = x.l + [i] %}{% endfor %}{{ x.l }}", "{% set x = [] %}{% set x = x + [1] %}{{ x }}", "{% set _ = l.append(1) %}", "{{ l.append(1) }}", "{% do l.append(1) %}", "{% set x = {} %}{% set _ = x.update({'a': 1}) %}", "{{ x }}{{ y }}{{ z.w }}", "{{ 1 }}{{ missing.x }}",
    "{% if s is nosuch %}a{% endif %}", "{% if fl %}{{ s|nosuch }}{% endif %}ok", "{% if fl %}{% for x in l %}{{ x|nosuch }}{% endfor %}{% endif %}ok", "{% for x in [] %}{{ x|nosuch }}{% endfor %}", "{% macro m() %}{{ s|nosuch }}{% endmacro %}", "{{ 1 if t else (s|nosuch) }}", "{% if fl %}{{ 1 is nosuch }}{% endif %}ok",
    "{% set d2 = dict(d, z=1) %}{{ d2 }}{{ d }}", "{% for k, v in dn.x.y.z|enumerate %}{% endfor %}", "{{ '%s' % s }}{{ '%s' | format(s) }}", "{% set tools = n %}{% if tools is not none %}a{% else %}b{% endif %}", "{% set a = b = 1 %}", "{% set a == 1 %}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ i }}",
    "{%for x in l%}{{x}}{%endfor%}", "{%-for x in l-%} {{x}} {%-endfor-%}", "{% for\nx\nin\nl %}{{\nx\n}}{% endfor %}", "{{ s\n|\nupper }}", "{{ s # comment\n }}", "{% set x = 'a\nb' %}{{ x }}", "{% set x = [\n 1,\n 2,\n] %}{{ x }}", "{% block a %}{% endblock %}{{ missing.x }}",
    "{% for x in l %}{{ loop.nosuch }}{% endfor %}", "{% set q = namespace() %}{% for x in l %}{% set q.l = loop %}{% endfor %}{{ q.l.index }}{{ q.l.last }}", "{% for x in l %}{{ loop(l) }}{% endfor %}", "{% for x in d.values() %}{{ x }}{{ loop.revindex }}{% endfor %}",
]


def split_expressions():
    """Expressions of the block: cut at bars, and also whole lines and joined neighbours, because bars are filters too."""
    pieces = []
    for line in EXPRESSIONS.strip("\n").split("\n"):
        parts = line.split("|")
        pieces += [line] + ["|".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 1, min(a + 4, len(parts)) + 1)]
    return pieces


def run_snippets(report, share):
    for template in TEMPLATES:
        report.check("templates", template, CONTEXT)
    for expression in dict.fromkeys(split_expressions()):
        report.check("expressions", "{{ " + expression + " }}", CONTEXT)
    for value in VALUES:
        report.check("values", "{{ " + value + " }}|{{ [" + value + "] }}|{{ " + value + " is defined }}", CONTEXT)
        for name in FILTERS:
            if value in ("huge", "1e20") and name.startswith("int"):
                continue  # an integer beyond 64 bits
            report.check("filters", "{{ (" + value + ")|" + name + " }}", CONTEXT)
        for name in TESTS:
            report.check("tests", "{{ (" + value + ") is " + name + " }}", CONTEXT)
        for piece in SLICES:
            report.check("slices", "{% set v = (" + value + ")" + piece + " %}{{ v }}", CONTEXT, UNOPTIMIZED)
        report.check("loops", "{% for x in " + value + " %}<{{ x }}>{% else %}-{% endfor %}", CONTEXT)
        report.check("truth", "{{ 1 if " + value + " else 0 }}{{ not (" + value + ") }}{{ -(" + value + ") }}", CONTEXT)
    for value in ["s", "empty", "u", "ws", "q", "html", "lines", "num", "(s|safe)", "' '", "'ABC'", "'abc'", "'Hello World'", "'\u0130\u01c6\u03a3 \ufb01'", "'1\u0662\u00b2'", "i", "n", "l", "missing"]:
        for method in STRING_METHODS:
            report.check("methods", "{{ " + value + "." + method + " }}", CONTEXT)
    for value, methods in OTHER_METHODS.items():
        for method in methods:
            report.check("methods", "{{ " + value + ("" if method.startswith("[") else ".") + method + " }}", CONTEXT)
    rng = random.Random(0)
    for a, op, b in itertools.product(VALUES, OPERATORS, VALUES):
        # Left out on purpose: complex numbers, integers beyond 64 bits, operators of dictionary views.
        wide = op in ("*", "**") and {"huge", "big", "1e20"} & {a, b}
        # Also the power of a negative constant: the reference writes it without its brackets, as -(0.0 ** b).
        is_complex = op == "**" and (a in ("neg", "g", "-0.0"))
        if wide or is_complex or {"d.keys()", "d.items()"} & {a, b} or rng.random() > share:
            continue
        report.check("operators", "{{ (" + a + ") " + op + " (" + b + ") }}", CONTEXT)


def random_expression(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([value for value in VALUES if value not in ("d.keys()", "d.items()", "huge", "1e20")])
    inner = lambda: random_expression(rng, depth - 1)  # noqa: E731
    kind = rng.randrange(9)
    if kind == 0:
        return f"({inner()} {rng.choice([o for o in OPERATORS if o not in ('*', '**')])} {inner()})"
    if kind in (1, 2):
        return f"({inner()})|{rng.choice(FILTERS)}"
    if kind == 3:
        return f"({inner()}) is {rng.choice(TESTS)}"
    if kind == 4:
        return f"({inner()}).{rng.choice(STRING_METHODS)}"
    if kind == 5:
        return f"({inner()}){rng.choice(SLICES + ['[0]', '[-1]', '.name', '.a', '[i]'])}"
    if kind == 6:
        return f"({inner()} if {inner()} else {inner()})"
    if kind == 7:
        return f"[{inner()}, {inner()}]"
    return f"{{'k': {inner()}, {rng.choice(VALUES[:20])}: {inner()}}}"


def run_random(report, count, seed):
    rng = random.Random(seed)
    made = 0
    while made < count:
        expression = random_expression(rng, rng.randrange(1, 4))
        shape = rng.randrange(4)
        if shape == 0:
            template = "{% for x in " + expression + " %}{{ loop.index }}{{ x }}{% endfor %}"
        elif shape == 1:
            template = "{% set v = " + expression + " %}{{ v }}{{ v|length }}"
        else:
            template = "{% set v = " + expression + " %}{{ v }}"
        made += report.check("random", template, CONTEXT, UNOPTIMIZED)


PIECES = ["", "hi", "h\u00e9llo\n", "<think>\nplan\n</think>\n\nanswer", "<tool_response>\nx\n</tool_response>", "a</think>b</think>c", "  spaced  \n\n", "<|im_end|>",
          "{{ 7 }}", "\U0001f600\u4f60", None, 5, ["part"], [{"type": "text", "text": "part"}], {"x": 1}]
CALLS = [{"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": 1, "b": ["\u00e9", None, 1.5, True]}}},
         {"type": "function", "function": {"name": "g", "arguments": "{\"x\": 1}"}}, {"name": "h", "arguments": {}}, {"type": "function", "function": {"name": "k"}}, {}, "odd"]
TOOLS = [{"type": "function", "function": {"name": "get", "description": "d \"q\" <b> \u00e9", "parameters": {"type": "object", "properties": {"c": {"type": "string"}}, "required": []}}}, {"x": 1.0}, "tool"]


def random_message(rng):
    message = {"role": rng.choice(["user", "assistant", "assistant", "system", "tool", "user", "developer", "", 3])}
    if rng.random() < 0.92:
        message["content"] = rng.choice(PIECES[:10]) if rng.random() < 0.85 else rng.choice(PIECES)
    if rng.random() < 0.03:
        del message["role"]
    if rng.random() < 0.3:
        message["tool_calls"] = rng.choice([[], None]) if rng.random() < 0.1 else rng.sample(CALLS[:2] if rng.random() < 0.8 else CALLS, rng.randrange(1, 3))
        if rng.random() < 0.5:
            message["content"] = None if rng.random() < 0.5 else ""
    if rng.random() < 0.2:
        message["reasoning_content"] = rng.choice(["", "because\n", "\n\nx\n", None, 4])
    if rng.random() < 0.1:
        message["name"] = "n"
    return message


def random_conversation(rng, tokens):
    context = dict(tokens)
    context["messages"] = [random_message(rng) for _ in range(rng.randrange(0, 7))]
    for key, choices in {"tools": [None, [], TOOLS[:1], TOOLS[:2], TOOLS], "add_generation_prompt": [True, False, None], "enable_thinking": [True, False, None, 0], "documents": [None]}.items():
        if rng.random() < 0.6:
            context[key] = rng.choice(choices)
    if rng.random() < 0.1:
        context.pop(rng.choice(list(context)))
    return context


def special_tokens(config):
    tokens = {}
    for key, value in config.items():
        if key.endswith("_token") and isinstance(value, (str, dict)):
            tokens[key] = value if isinstance(value, str) else value["content"]
    return tokens


def run_tokenizer(report, directory, seed, count):
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    source = config.get("chat_template")
    if not isinstance(source, str):
        print(f"{directory}: no chat template")
        return
    tokens = special_tokens(config)
    golden = directory / "golden.json"
    if golden.exists():
        for chat in json.loads(golden.read_text(encoding="utf-8")).get("chats", []):
            context = dict(tokens, messages=chat["messages"], tools=chat.get("tools"), documents=None,
                           add_generation_prompt=chat.get("add_generation_prompt", False), **chat.get("kwargs", {}))
            report.compare("golden", source, context, chat["text"], "golden.json")
    rng = random.Random(seed)
    for _ in range(count):
        report.check(directory.name, source, random_conversation(rng, tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("--tokenizer", action="append", default=[], type=pathlib.Path)
    parser.add_argument("--random", type=int, default=4000)
    parser.add_argument("--conversations", type=int, default=1500)
    parser.add_argument("--share", type=float, default=0.25, help="of the pairs of operands")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    arguments = parser.parse_args()
    report = Report(Driver(arguments.driver), arguments.show)
    for directory in arguments.tokenizer:
        run_tokenizer(report, directory, arguments.seed, arguments.conversations)
    run_snippets(report, arguments.share)
    run_random(report, arguments.random, arguments.seed)
    for group, count in report.totals.items():
        print(f"{group:12} {count}")
    print(f"{report.cases} cases, {report.errors} of them errors in jinja2, {report.mismatches} mismatches")
    sys.exit(1 if report.mismatches else 0)


if __name__ == "__main__":
    main()
