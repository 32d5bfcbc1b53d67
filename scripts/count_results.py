#!/usr/bin/env python3
"""Counts the test cases of the phases that scripts/test ran.

usage: count_results.py FOLDER, where each phase wrote NAME.json (Bazel's build events, one per line), or
NAME-*.xml (pytest's report), and NAME.status (the exit status). Prints the failures, then "N passed, N failed" as its last
line. Exits with 1 if anything failed.

A case is a <testcase> of the target's test.xml. A target that crashed, timed out or did not build
counts as one failure, and so does a phase that failed without naming a test.
"""

import dataclasses
import json
import pathlib
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Tally:
    passed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures


def tally_xml(label, text):
    """Counts the cases in the text of one test.xml."""
    tally = Tally()
    try:
        cases = list(ElementTree.fromstring(text).iter("testcase"))
    except ElementTree.ParseError as error:
        return Tally(failures=[f"{label}: unreadable test.xml: {error}"])
    for case in cases:
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failures.append(f"{label}: {name}")
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            tally.skipped += 1
        else:
            tally.passed += 1
    return tally


def tally_result(label, result):
    """Counts the cases of one testResult event."""
    tally = Tally()
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            tally.add(tally_xml(label, pathlib.Path(path).read_text(errors="replace")))
    if result.get("status") != "PASSED" and not tally.failures:
        tally.failures.append(f"{label}: {result.get('status')}")
    return tally


def tally_events(events):
    """Counts the cases of one phase from its build events."""
    tally = Tally()
    tests, tested = set(), set()
    for event in events:
        identity = event["id"]
        if "targetConfigured" in identity and "testSize" in event.get("configured", {}):
            tests.add(identity["targetConfigured"]["label"])
        elif "testResult" in identity and "testResult" in event:
            label = identity["testResult"]["label"]
            tested.add(label)
            tally.add(tally_result(label, event["testResult"]))
        elif "targetCompleted" in identity and not event.get("completed", {}).get("success"):
            label = identity["targetCompleted"]["label"]
            tested.add(label)
            tally.failures.append(f"{label}: did not build")
    tally.failures += [f"{label}: did not run" for label in sorted(tests - tested)]
    return tally


def tally_phase(folder, name):
    events = folder / f"{name}.json"
    lines = events.read_text().splitlines() if events.exists() else []
    tally = tally_events(json.loads(line) for line in lines)
    for report in sorted(folder.glob(f"{name}-*.xml")):
        tally.add(tally_xml(report.stem, report.read_text(errors="replace")))
    status = int((folder / f"{name}.status").read_text())
    if status != 0 and not tally.failures:
        tally.failures.append(f"it ended with status {status}")
    return tally


def main(folder):
    total = Tally()
    for status in sorted(folder.glob("*.status"), key=lambda path: path.stat().st_mtime):
        tally = tally_phase(folder, status.stem)
        print(f"{status.stem}: {tally.passed} passed, {len(tally.failures)} failed, {tally.skipped} skipped")
        for failure in tally.failures:
            print(f"  FAILED {failure}")
        total.add(tally)
    print(f"{total.passed} passed, {len(total.failures)} failed")
    return 1 if total.failures or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
