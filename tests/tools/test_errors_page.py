# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md shows the table of exit statuses that src/base/result.cc has."""

import re
import unittest

import tree


class ErrorsPageTest(unittest.TestCase):
    def test_page_and_code_agree(self):
        code = (tree.ROOT / "src/base/result.cc").read_text(encoding="utf-8")
        rows = {int(status): name for name, status in re.findall(r'\{Code::k\w+, "([^"]+)", (\d+)\}', code)}
        page = (tree.ROOT / "docs/errors.md").read_text(encoding="utf-8")
        shown = {int(status): name for status, name in re.findall(r"^\| (\d+) \| ([^|]+?) \|", page, re.M)}
        self.assertEqual(rows, {status: name for status, name in shown.items() if 0 < status < 128})
        header = (tree.ROOT / "src/base/result.h").read_text(encoding="utf-8")
        self.assertEqual(len(rows), len(re.findall(r"^  k\w+,", header, re.M)), "each Code has a row")


if __name__ == "__main__":
    unittest.main()
