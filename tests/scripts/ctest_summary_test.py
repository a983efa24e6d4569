"""Gives scripts/ctest_summary results as ctest writes them and expects its lines and its exit code."""

import os
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
SUMMARY = os.path.join(TOP, "scripts", "ctest_summary")

PASSED = '<testcase name="a.b" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="a.c" status="fail"><failure message=""/><system-out>bad</system-out></testcase>'
SKIPPED = """<testcase name="a.d" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] a.d
d_test.cpp:7: Skipped
no CUDA device:
try another

[  SKIPPED ] a.d (0 ms)
</system-out></testcase>"""
SILENT = '<testcase name="a.e" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out/></testcase>'
DISABLED = '<testcase name="a.f" status="disabled"/>'


class CtestSummary(unittest.TestCase):
    def summary(self, *cases):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.xml")
            with open(path, "w", encoding="utf-8") as file:
                file.write('<?xml version="1.0"?><testsuite name="t">' + "".join(cases) + "</testsuite>")
            return self.run_on(path)

    def run_on(self, path):
        done = subprocess.run([sys.executable, "-B", SUMMARY, path], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_passes_are_counted(self):
        self.assertEqual(self.summary(PASSED, PASSED), (0, "2 passed, 0 failed, 0 skipped\n", ""))

    def test_a_failure_fails(self):
        self.assertEqual(self.summary(PASSED, FAILED), (1, "1 passed, 1 failed, 0 skipped\n", ""))

    def test_skipped_tests_say_why(self):
        self.assertEqual(self.summary(PASSED, SKIPPED, SILENT, DISABLED), (0, (
            "skipped a.d: no CUDA device: try another\nskipped a.e: SKIP_RETURN_CODE=77\nskipped a.f: disabled\n"
            "1 passed, 0 failed, 3 skipped\n"), ""))

    def test_a_run_that_ran_nothing_fails(self):
        for cases in [(), (SKIPPED,)]:
            code, out, errors = self.summary(*cases)
            self.assertEqual((code, errors), (1, "error: no test ran\n"))
            self.assertTrue(out.endswith(f"0 passed, 0 failed, {len(cases)} skipped\n"))

    def test_unreadable_results_are_an_error(self):
        self.assertEqual(self.run_on("/nonexistent.xml")[0], 2)
        self.assertEqual(self.run_on(SUMMARY)[0], 2)


if __name__ == "__main__":
    unittest.main()
