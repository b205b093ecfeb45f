# SPDX-License-Identifier: Apache-2.0
"""check_docs.py accepts a good tree and names each kind of violation."""

import tree

import check_docs  # from tools/, which tree puts on the path

PROGRAM = """#!/bin/sh
[ "$1" = plan ] || exit 2
echo "--ranks N   -h,--help"
"""


class CheckDocsTest(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/plan/layout.h", "struct Layout {};\n")
        self.write("src/plan/layout.cc", "")
        self.write("docs/terms.md", "# Terms and words\n")
        self.write("ARCHITECTURE.md", "")
        self.write("CONTRIBUTING.md", "")
        self.write("build/trivet", PROGRAM).chmod(0o755)

    def problems(self, text):
        self.write("README.md", text)
        return check_docs.check(self.root)[0]

    def test_good_page_passes(self):
        self.assertEqual(self.problems(
            "See src/plan/layout.{h,cc}, src/plan/*.cc, `plan/layout.cc`, `src/plan/<name>.cc`, and\n"
            "`plan/layout.h: Layout`, [terms](docs/terms.md), [words](docs/terms.md#terms-and-words), [a](http://b).\n"
            "Run `trivet plan demo --ranks 3`. trivet serves you.\n"
            '```\nbuild/trivet plan demo \\\n  --ranks "--odd 3" | less -R\n```\n'), [])

    def test_missing_page(self):
        (self.root / "ARCHITECTURE.md").unlink()
        self.assert_reported(self.problems(""), "ARCHITECTURE.md")

    def test_missing_paths(self):
        self.assert_reported(self.problems("\nSee src/plan/gone.cc."), "README.md:2", "src/plan/gone.cc")
        self.assert_reported(self.problems("See src/plan/layout.{h,cu}."), "src/plan/layout.cu")
        self.assert_reported(self.problems("See tests/*_test.cc."), "tests/*_test.cc")
        self.assert_reported(self.problems("See `plan/gone.cc`."), "src/plan/gone.cc")

    def test_missing_symbol(self):
        self.assert_reported(self.problems("`plan/layout.h: Lay`"), "plan/layout.h has no Lay")
        self.assert_reported(self.problems("`other/gone.h: Lay`"), "other/gone.h does not exist")

    def test_broken_links(self):
        self.assert_reported(self.problems("[x](docs/nowhere.md)"), "docs/nowhere.md")
        self.assert_reported(self.problems("[x](docs/terms.md#other)"), "#other")

    def test_unknown_commands_and_flags(self):
        self.assert_reported(self.problems("`trivet fly demo`"), "no command fly")
        self.assert_reported(self.problems("`trivet plan demo --wings 2`"), "--wings")
        self.assert_reported(self.problems("```\ntrivet plan demo \\\n  --rank 2\n```"), "does not list --rank")

    def test_without_the_program_flags_are_not_checked(self):
        (self.root / "build/trivet").unlink()
        self.assertEqual(self.problems("`trivet fly`"), [])
