# SPDX-License-Identifier: Apache-2.0
"""For the tests of the scripts: puts tools/ on the path, and makes small source trees in temporary folders."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))


class TreeTest(unittest.TestCase):
    """A test with a temporary tree at `self.root`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        """Writes a file of the tree and returns its path."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def assert_reported(self, problems, *words):
        """Exactly one problem, with all the words in it."""
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])
