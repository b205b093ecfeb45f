# SPDX-License-Identifier: Apache-2.0
"""ctest_info.py counts test cases, and counts a program that died as a failure."""

import tree

import ctest_info  # from tools/, which tree puts on the path

PASSING = "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n[ RUN      ] A.C\n[  SKIPPED ] A.C (0 ms)\n"
FAILING = PASSING + ("[ RUN      ] A.D/1\n[  FAILED  ] A.D/1, where GetParam() = 7 (0 ms)\n"
                     "[  FAILED  ] 1 test, listed below:\n")
DYING = PASSING + "[ RUN      ] A.E\nthe end"


class CtestInfoTest(tree.TreeTest):
    def count(self, output, status):
        self.write("r.xml", f'<testsuite><testcase name="t" status="{status}"><system-out>{output}</system-out>'
                            "</testcase></testsuite>")
        return ctest_info.count(self.root / "r.xml")

    def test_cases(self):
        self.assertEqual(self.count(PASSING, "run"), ([1, 0, 1], []))
        self.assertEqual(self.count(FAILING, "fail"), ([1, 1, 1], ["t: A.D/1"]))
        self.assertEqual(self.count(DYING, "fail"), ([1, 1, 1], ["t: A.E did not end"]))

    def test_programs_without_cases(self):
        self.assertEqual(self.count("fine", "run"), ([1, 0, 0], []))
        self.assertEqual(self.count("", "fail"), ([0, 1, 0], ["t: failed"]))

    def test_a_program_that_passes_its_cases_and_then_fails(self):
        self.assertEqual(self.count(PASSING, "fail")[0], [1, 1, 1])

    def test_a_program_that_was_not_built(self):
        self.write("r.xml", '<testsuite><testcase name="t" status="notrun">'
                            '<skipped message="Unable to find executable"/></testcase></testsuite>')
        self.assertEqual(ctest_info.count(self.root / "r.xml")[0], [0, 1, 0])

    def test_a_program_that_asks_to_be_skipped(self):
        self.write("r.xml", '<testsuite><testcase name="t" status="notrun">'
                            '<skipped message="SKIP_RETURN_CODE=77"/></testcase></testsuite>')
        self.assertEqual(ctest_info.count(self.root / "r.xml")[0], [0, 0, 1])

    def test_unittest(self):
        text = "FAIL: test_a (x.X.test_a)\n----\nRan 5 tests in 0.1s\n\nFAILED (failures=1, skipped=2)\n"
        self.assertEqual(ctest_info.case_counts(text, False), (2, 1, 2, ["test_a (x.X.test_a)"]))

    def test_targets(self):
        name = str(self.root.resolve())
        self.write("tests/CTestTestfile.cmake",
                   f'add_test([=[unit.base]=] "{name}/tests/base_test")\n'
                   'set_tests_properties([=[unit.base]=] PROPERTIES  LABELS "unit" TIMEOUT "60")\n'
                   f'add_test([=[golden.all]=] "{name}/tests/golden_test" "x")\n'
                   'set_tests_properties([=[golden.all]=] PROPERTIES  LABELS "golden;slow")\n')
        self.assertEqual(ctest_info.targets(self.root, "^unit$"), ["tests/base_test"])
        self.assertEqual(ctest_info.targets(self.root, "^(unit|slow)$"), ["tests/base_test", "tests/golden_test"])
