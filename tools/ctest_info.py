#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Facts about tests for ./check: which targets carry a label, and how many test cases a run passed and failed.

usage: ctest_info.py targets BUILD_FOLDER LABEL_PATTERN   programs to build, one a line, relative to the folder
       ctest_info.py count RESULTS.xml                    "PASSED FAILED SKIPPED", then one line for each failure
       ctest_info.py unittest LOG STATUS                  the same from the output of Python's unittest
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def targets(folder, pattern):
    """Programs below `folder` that the tests with a matching label run; they need not be built yet."""
    folder = pathlib.Path(folder).resolve()
    programs, labels = {}, {}
    for file in folder.rglob("CTestTestfile.cmake"):
        text = file.read_text(encoding="utf-8")
        for name, command in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", text, re.M):
            programs[name] = re.findall(r'"([^"]*)"', command)
        for name, properties in re.findall(r"^set_tests_properties\(\[=\[(.*?)\]=\] PROPERTIES (.*)\)$", text, re.M):
            labels[name] = re.findall(r'\bLABELS "([^"]*)"', properties)
    found = set()
    for name, words in programs.items():
        if any(re.search(pattern, label) for text in labels.get(name, ()) for label in text.split(";")):
            found |= {pathlib.Path(word) for word in words if pathlib.Path(word).is_relative_to(folder)}
    return sorted(path.relative_to(folder).as_posix() for path in found)


def case_counts(output, succeeded):
    """(passed, failed, skipped, names of failures) of one program from what it printed."""
    skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(", output, re.M))
    passed = len(re.findall(r"^\[       OK \] ", output, re.M))
    failures = re.findall(r"^\[  FAILED  \] (\S+?)(?:,.*)? \(\d+ ms\)$", output, re.M)
    if not succeeded:  # the case that was running when the program died
        ended = set(re.findall(r"^\[  (?:     OK|FAILED |SKIPPED) \] (\S+?),? ", output, re.M))
        begun = re.findall(r"^\[ RUN      \] (\S+)$", output, re.M)
        failures += [name + " did not end" for name in begun if name not in ended]
    ran = re.search(r"^Ran (\d+) tests? in ", output, re.M)
    if ran:
        numbers = {key: int(n) for key, n in re.findall(r"(failures|errors|skipped)=(\d+)", output[ran.end() :])}
        skipped = numbers.get("skipped", 0)
        failures = re.findall(r"^(?:FAIL|ERROR): (.*)$", output, re.M)
        passed = max(0, int(ran.group(1)) - len(failures) - skipped)
    if not passed and not failures and not skipped and succeeded:
        passed = 1  # a program that prints no cases is one case
    return passed, len(failures), skipped, failures


def count(path):
    """Sums of `case_counts` over a JUnit file of ctest; a program that died counts as one more failure."""
    totals, names = [0, 0, 0], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        if status in ("notrun", "disabled") and case.find("skipped") is not None and case.find("failure") is None:
            reason = case.find("skipped").get("message", "")
            missing = reason not in ("", "Disabled") and not reason.startswith("SKIP_RETURN_CODE")
            totals[1 if missing else 2] += 1
            names += [f"{name}: not run: {reason}"] if missing else []
            continue
        passed, failed, skipped, failures = case_counts(case.findtext("system-out") or "", status == "run")
        names += [f"{name}: {failure}" for failure in failures]
        if status != "run" and not failed:
            failure = case.find("failure")
            names.append(f"{name}: " + (failure.get("message") or "failed" if failure is not None else "failed"))
            failed = 1
        totals = [total + n for total, n in zip(totals, (passed, failed, skipped))]
    return totals, names


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "targets":
        print("\n".join(targets(sys.argv[2], sys.argv[3])))
        return 0
    if len(sys.argv) == 3 and sys.argv[1] == "count":
        totals, names = count(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "unittest":
        output = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
        *totals, names = case_counts(output, sys.argv[3] == "0")
        if sys.argv[3] != "0" and not totals[1]:
            totals[1], names = 1, ["the run itself failed"]
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print(*totals)
    for name in names:
        print(f"failed: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
