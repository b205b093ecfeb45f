# SPDX-License-Identifier: Apache-2.0
"""check_style.py accepts a good tree and names each kind of violation."""

import tree

import check_style  # from tools/, which tree puts on the path

TAG = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = TAG + """// What it is for.
#pragma once

namespace trivet::base {

class Later;

/// A row.
struct Row {
  int first = 0;
  int Second() const { return first; }

 private:
  int third_{0};
};

/// One.
int One(int a);
int OneMore(int a, const std::map<int, int>& b = {});

/// Two.
template <class T, class U = int>
inline T Two(T a) {
  return a + U{1};
}

}  // namespace trivet::base
"""
SOURCE = TAG + """#include "base/one.h"

namespace trivet::base {
namespace {

constexpr Row kRows[] = {{1}, {2}};
const char* const kName = R"(static int x; { )";
constexpr char kQuote = '"';
constexpr int kMany = 1'000'000;

}  // namespace

Row::Row(int a) : first{a}, third_(a) { CHECK(a > 0); }

int One(int a) {
  static constexpr int kTable[] = {1, 2};
  static const std::string kText = "TO" "DO";
  const auto add = [&](int x, int y) { return x + y; };
  return add(kTable[0], a);
}

bool Row::operator==(const Row& other) const { return first == other.first; }

}  // namespace trivet::base
"""


class CheckStyleTest(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/base/one.h", HEADER)
        self.write("src/base/one.cc", SOURCE)
        self.write("tests/base/one_test.cc", TAG + "TEST(One, Adds) {\n  EXPECT_EQ(One(1), 2);\n}\n")

    def problems(self):
        return check_style.check(self.root)[0]

    def add(self, text, name="src/base/one.cc"):
        """The problems after `text` was put inside the namespace of a file of the good tree."""
        good = {"src/base/one.cc": SOURCE, "src/base/one.h": HEADER}[name]
        self.write(name, good.replace("}  // namespace trivet::base", text + "\n}  // namespace trivet::base"))
        problems = self.problems()
        self.write(name, good)
        return problems

    def test_good_tree_passes(self):
        self.assertEqual(self.problems(), [])

    def test_long_file(self):
        self.assert_reported(self.add("\n" * 500), "src/base/one.cc", "at most 500")

    def test_long_function(self):
        statements = "  a += 1;\n"
        self.assertEqual(self.add("void F(int a) {\n" + statements * 58 + "}\n"), [])
        self.assert_reported(self.add("void F(int a) {\n" + statements * 59 + "}\n"), "one.cc:25", "F has 61 lines")
        body = "  if (a) {\n    a = '}';\n  }\n"
        self.assert_reported(self.add("struct S {\n  int a_ = 0;\n  void F() {\n" + body * 20 + "  }\n};"), "62 lines")
        self.assert_reported(self.add("Row::Row() : first{1}, third_{2} {\n" + statements * 59 + "}\n"), "Row::Row")
        self.write("tests/base/one_test.cc", TAG + "TEST(One, Adds) {\n" + statements * 60 + "}\n")
        self.assert_reported(self.problems(), "one_test.cc:2", "62 lines")

    def test_many_parameters(self):
        six = "const std::map<int, int>& a, void (*b)(int, int), int c = F(1, 2), int d, int e, int f"
        self.assertEqual(self.add(f"void F({six});"), [])
        self.assert_reported(self.add(f"void F({six}, int g);"), "F takes 7 parameters")
        self.assert_reported(self.add(f"struct S {{\n  S({six}, int g) : a_(1) {{}}\n}};"), "S takes 7 parameters")
        self.assertEqual(self.add("struct S {\n  std::function<void(int, int, int, int, int, int, int)> f;\n};"), [])

    def test_licence_tag(self):
        self.write("src/base/one.h", HEADER[len(TAG):])
        self.assertIn("SPDX", self.problems()[0])
        self.write("src/base/one.h", HEADER)
        self.write("tools/tool.py", "import sys\n")
        self.assert_reported(self.problems(), "tools/tool.py", "SPDX")

    def test_header_purpose_and_guard(self):
        self.write("src/base/one.h", HEADER.replace("// What it is for.\n", ""))
        self.assert_reported(self.problems(), "what it is for")
        self.write("src/base/one.h", HEADER.replace("#pragma once\n", ""))
        self.assert_reported(self.problems(), "#pragma once")

    def test_file_names(self):
        self.write("src/base/string_utils.h", HEADER)
        self.assert_reported(self.problems(), "string_utils.h", "says nothing")
        (self.root / "src/base/string_utils.h").rename(self.root / "src/base/Text.h")
        self.assert_reported(self.problems(), "snake_case")

    def test_macros(self):
        self.assert_reported(self.add("#define SQUARE(x) ((x) * (x))"), "macro SQUARE")
        self.assert_reported(self.add("#define HWY_TARGET_INCLUDE"), "macro HWY_TARGET_INCLUDE")
        self.write("src/kernels/f_simd.cc", TAG + '#define HWY_TARGET_INCLUDE "kernels/f_simd.cc"\n')
        self.assertEqual(self.add("#define CHECK(x) (x)"), [])

    def test_markers(self):
        for text in ("// TODO: more", "// FIXME", "// good for now", 'constexpr char kText[] = "not implemented";'):
            self.assert_reported(self.add(text), "src/base/one.cc", "finish it")

    def test_foreign_words_and_paths(self):
        self.write("docs/page.md", "Found in this session.\n")
        self.assert_reported(self.problems(), "docs/page.md:1", "speaks of itself")
        self.write("docs/page.md", "\nSee /home/me/x.\n")
        self.assert_reported(self.problems(), "docs/page.md:2", "one machine")
        self.write("docs/page.md", "A jinja ImmutableSandboxedEnvironment, and src/work/x, and https://host/home/x\n")
        self.assertEqual(self.problems(), [])

    def test_mutable_globals(self):
        for text in ("int counter = 0;", "std::vector<int> rows{1, 2};", "const char* name = nullptr;",
                     "static Row row;", "thread_local int depth;", "struct S {\n  static int count_;\n};"):
            self.assert_reported(self.add(text), "mutable global")
        for text in ("static Engine engine;", "static int calls = 0;", "thread_local bool inside = false;"):
            self.assert_reported(self.add("int F() {\n  int a;\n  " + text + "\n}\n"), "one.cc:27", "static local")
        for text in ("using Rows = std::vector<int>;", "extern const Row kRow;",
                     "template <class T>\nconstexpr T kZero = 0;",
                     "static_assert(sizeof(int) == 4);", "template class Box<int>;", "enum class E { kA, kB };",
                     'extern "C" int F(const char* a) {\n  int b = 0;\n  return b;\n}', 'extern "C" {\nint F();\n}'):
            self.assertEqual(self.add(text), [], text)

    def test_mirror(self):
        self.write("src/base/two.cc", TAG)
        self.assert_reported(self.problems(), "src/base/two.cc", "tests/base/two_test.cc")
        (self.root / "src/base/two.cc").rename(self.root / "src/base/no_uring.cc")
        self.assertEqual(self.problems(), [])

    def test_docstrings(self):
        header = "src/base/one.h"
        for text in ("int Bare();", "struct Bare {\n  int a;\n};", "class Bare;\n\nclass Bare final : public Row {\n};",
                     "// Not a docstring.\ntemplate <class T>\nvoid Bare(T a) {}"):
            self.assert_reported(self.add("\n" + text, header), "Bare has no ///")
        for text in ("/// Doc.\n[[nodiscard]] int F();", "template <class T>\nT Box<T>::Get() { return 1; }",
                     "class Bare;"):
            self.assertEqual(self.add("\n" + text, header), [], text)

    def test_shared_ownership_throw_and_assert(self):
        shared = "std::shared_ptr<int> F();"
        self.assert_reported(self.add(shared), "shared ownership")
        self.assertEqual(self.add("// shared_ptr: readers outlive the owner.\n" + shared), [])
        self.assert_reported(self.add('void F() { throw 1; }'), "throw")
        self.assert_reported(self.add('void F(int a) { assert(a); }'), "assert")

    def test_unbalanced_braces_are_reported(self):
        self.write("src/base/one.cc", TAG + "namespace a {\n")
        self.assert_reported(self.problems(), "braces do not balance")
