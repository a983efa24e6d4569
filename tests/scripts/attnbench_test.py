"""Runs scripts/attnbench and scripts/test on a checkout of a few lines, whose program returns what it is given.

The packages of the real project are not asked for: a dpkg-query in front of the real one says that all are installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = """#include <cstdio>
#include <cstdlib>
int main(int count, char** words) {
  for (int i = 1; i < count; ++i) std::printf("[%s]", words[i]);
  return count > 1 ? std::atoi(words[1]) : 0;
}
"""
BUILD = """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
add_executable(attnbench bench/main.cpp)
add_custom_target(program DEPENDS attnbench)
enable_testing()
if(ATTNBENCH_TESTS)
  include(tests.cmake OPTIONAL)
endif()
"""


class Checkout(unittest.TestCase):
    def setUp(self):
        self.outer = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.outer)
        self.root = os.path.join(self.outer, "a folder", "attnbench")
        shutil.copytree(os.path.join(TOP, "scripts"), os.path.join(self.root, "scripts"))
        self.write("CMakeLists.txt", BUILD)
        self.write("bench/main.cpp", PROGRAM)
        self.stub("dpkg-query", "echo installed")
        self.script = os.path.join(self.root, "scripts", "attnbench")

    def path(self, name):
        return os.path.join(self.root, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def stub(self, command, body):
        """Puts a command in front of the real one."""
        folder = os.path.join(self.outer, "bin")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, command), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(file.name, 0o755)

    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith("ATTNBENCH_") and key not in ("CUDACXX", "CMAKE_BUILD_PARALLEL_LEVEL")}
        return {**kept, "PATH": os.path.join(self.outer, "bin") + ":" + kept["PATH"], "ATTNBENCH_CUDA": "OFF", **more}

    def run_script(self, *words, script=None, before=(), **more):
        done = subprocess.run([*before, script or self.script, *words], cwd="/", env=self.environment(**more),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


class Attnbench(Checkout):
    def test_arguments_output_and_exit_code_are_those_of_the_program(self):
        code, out, errors = self.run_script("7", "a b", "*", "")
        self.assertEqual((code, out), (7, "[7][a b][*][]"))
        self.assertIn("first run: building", errors)
        link = os.path.join(self.outer, "link")
        os.symlink(self.script, link)
        self.assertEqual(self.run_script("0", script=link), (0, "[0]", ""))

    def test_nothing_is_done_again_until_a_source_changes(self):
        self.run_script()
        built = os.stat(self.path("build/build.log")).st_mtime_ns
        self.assertEqual(self.run_script("0"), (0, "[0]", ""))
        self.assertEqual(os.stat(self.path("build/build.log")).st_mtime_ns, built)
        time.sleep(0.02)
        self.write("bench/main.cpp", PROGRAM.replace("[%s]", "<%s>"))
        self.assertEqual(self.run_script("0"), (0, "<0>", "attnbench: sources changed: building\n"))
        self.write("bench/new.hpp", "")
        self.assertEqual(self.run_script("0"), (0, "<0>", "attnbench: sources changed: building\n"))
        os.remove(self.path("bench/new.hpp"))
        self.assertEqual(self.run_script("0"), (0, "<0>", "attnbench: sources changed: building\n"))
        self.assertEqual(self.run_script("0"), (0, "<0>", ""))

    def test_a_failed_build_shows_the_error_and_runs_no_older_program(self):
        self.run_script()
        time.sleep(0.02)
        self.write("bench/main.cpp", "int main() { return undeclared; }\n")
        for _ in range(2):
            code, out, errors = self.run_script("0")
            self.assertEqual((code, out), (4, ""))
            self.assertIn("undeclared", errors)
            self.assertIn("build/build.log", errors)
        self.write("bench/main.cpp", PROGRAM)
        self.assertEqual(self.run_script("0")[:2], (0, "[0]"))

    def test_a_failed_configuration_shows_the_error(self):
        self.write("CMakeLists.txt", BUILD + "message(FATAL_ERROR no-such-thing)\n")
        code, out, errors = self.run_script("0")
        self.assertEqual((code, out), (4, ""))
        self.assertIn("no-such-thing", errors)

    def test_two_first_runs_at_once_build_once_and_both_run(self):
        command = dict(cwd="/", env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        both = [subprocess.Popen([self.script, str(code)], **command) for code in (5, 6)]
        results = [(*process.communicate(), process.returncode) for process in both]
        self.assertEqual([(out, code) for out, _, code in results], [("[5]", 5), ("[6]", 6)])
        self.assertEqual(sum("first run: building" in errors for _, errors, _ in results), 1, results)

    def test_the_choice_about_cuda_is_checked_and_remembered(self):
        code, out, errors = self.run_script("0", ATTNBENCH_CUDA="MAYBE")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("none of AUTO, ON, OFF", errors)
        self.run_script(ATTNBENCH_CUDA="OFF")
        plugin = self.path("build/libattnbench_cuda.so")
        self.assertEqual(self.run_script("0", ATTNBENCH_CUDA=""), (0, "[0]", ""))
        self.run_script(ATTNBENCH_CUDA="AUTO", CUDACXX="/nonexistent/nvcc")
        self.write("build/libattnbench_cuda.so", "")
        self.run_script(ATTNBENCH_CUDA="", CUDACXX="/nonexistent/nvcc")
        self.assertTrue(os.path.exists(plugin))
        self.run_script(ATTNBENCH_CUDA="OFF")
        self.assertFalse(os.path.exists(plugin), "a program built without CUDA would open it")

    def test_a_user_who_may_not_install_is_told_the_one_line_to_type(self):
        self.stub("dpkg-query", 'case "$*" in *ninja-build*) ;; *) echo installed;; esac')
        self.stub("apt-get", "echo apt-get was run; exit 1")
        self.stub("sudo", "exit 1")
        before = ()
        if os.geteuid() == 0:
            if not shutil.which("setpriv"):
                self.skipTest("this test is run by root, and there is no setpriv to become another user")
            before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            for folder, _, files in os.walk(self.outer):
                for each in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chown(each, 65534, 65534)
        code, out, errors = self.run_script("0", before=before)
        self.assertEqual((code, out), (4, ""))
        line = "sudo apt-get update && sudo apt-get install -y --no-install-recommends ninja-build"
        self.assertIn(f"\n  {line}\n", errors)
        self.assertNotIn("apt-get was run", errors)

    def test_with_leave_to_install_exactly_what_is_missing_is_installed(self):
        self.stub("dpkg-query", f'case "$*" in *ninja-build*) cat "{self.outer}/state";; *) echo installed;; esac')
        self.write("../../state", "")
        self.stub("apt-get", f'echo "$*" >>"{self.outer}/apt"; echo installed >"{self.outer}/state"')
        self.stub("sudo", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')
        self.assertEqual(self.run_script("0")[:2], (0, "[0]"))
        with open(os.path.join(self.outer, "apt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "update\ninstall -y --no-install-recommends ninja-build\n")


class Test(Checkout):
    def run_tests(self, tests, *words):
        self.write("tests.cmake", tests)
        return self.run_script(*words, script=self.path("scripts/test"))

    def test_the_closing_line_counts_and_a_failure_fails(self):
        passing = ("add_test(NAME good COMMAND true)\n"
                   'add_test(NAME rare COMMAND sh -c "echo skipped: no moon; exit 77")\n'
                   "set_tests_properties(rare PROPERTIES SKIP_RETURN_CODE 77)\n")
        code, out, errors = self.run_tests(passing)
        self.assertEqual((code, out.splitlines()[-2:]), (
            0, ["skipped rare: skipped: no moon", "1 passed, 0 failed, 1 skipped"]), errors)
        code, out, _ = self.run_tests(passing + "add_test(NAME bad COMMAND false)\n")
        self.assertEqual((code, out.splitlines()[-1]), (1, "1 passed, 1 failed, 1 skipped"))
        code, out, _ = self.run_tests(passing, "-R", "good")
        self.assertEqual((code, out.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))

    def test_a_run_of_no_test_fails(self):
        code, out, errors = self.run_tests("")
        self.assertEqual((code, out.splitlines()[-1]), (1, "0 passed, 0 failed, 0 skipped"), errors)
        code, out, _ = self.run_tests("add_test(NAME good COMMAND true)\n", "-R", "bad")
        self.assertEqual((code, out.splitlines()[-1]), (1, "0 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
