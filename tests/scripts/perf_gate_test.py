"""Runs scripts/perf_gate on a repository of a few lines, whose program writes down how it was called.

The packages of the real project are not asked for: a dpkg-query in front of the real one says that all are installed.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
# sweep leaves as many rows as the file `rows` of its commit says; compare exits with the number of planted folders.
PROGRAM = """#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
int main(int count, char** words) {
  std::ofstream log(std::getenv("CALLS"), std::ios::app);
  std::string out;
  bool planted = false;
  for (int i = 1; i < count; ++i) {
    log << words[i] << (i + 1 < count ? " " : "\\n");
    if (std::string(words[i]) == "--out") out = words[i + 1];
    if (std::string(words[i]) == "--slow-down") planted = true;
  }
  if (std::string(words[1]) == "sweep") {
    std::filesystem::create_directories(out);
    std::ofstream rows(out + "/rows.jsonl");
    for (int i = 0; i < ROWS; ++i) rows << "{}\\n";
    if (planted) std::ofstream(out + "/planted");
    return STATUS;
  }
  return std::filesystem::exists(std::string(words[3]) + "/launch-01/planted") ? 1 : 0;
}
"""
BUILD = """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
add_executable(attnbench main.cpp)
"""


class PerfGate(unittest.TestCase):
    def setUp(self):
        self.outer = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.outer)
        self.root = os.path.join(self.outer, "a folder")
        shutil.copytree(os.path.join(TOP, "scripts"), os.path.join(self.root, "scripts"))
        stub = os.path.join(self.outer, "bin", "dpkg-query")
        os.makedirs(os.path.dirname(stub))
        with open(stub, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho installed\n")
        os.chmod(stub, 0o755)
        self.calls = os.path.join(self.outer, "calls")
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=self.root, check=True,
                       capture_output=True)

    def commit(self, rows=6, status=0, broken=False):
        program = PROGRAM.replace("ROWS", str(rows)).replace("STATUS", str(status)) + ("}" if broken else "")
        for name, text in (("CMakeLists.txt", BUILD), ("main.cpp", program), (".gitignore", "build\n")):
            with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
                file.write(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "one")

    def gate(self, *words):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ATTNBENCH_", "GITHUB_"))}
        environment.update(PATH=os.path.dirname(os.path.join(self.outer, "bin", "x")) + ":" + os.environ["PATH"],
                           CALLS=self.calls, ATTNBENCH_CUDA="OFF")
        return subprocess.run([os.path.join(self.root, "scripts", "perf_gate"), *words], capture_output=True, text=True,
                              env=environment, check=False)

    def sweeps(self):
        with open(self.calls, encoding="utf-8") as file:
            return [line.split("/")[-2] + ("*" if "--slow-down" in line else "") for line in file
                    if line.startswith("sweep")]

    def test_launches_alternate_and_the_first_changes(self):
        self.commit()
        result = self.gate("HEAD~1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.sweeps(), ["base", "next", "next", "base"] * 2 + ["base", "next"])

    def test_a_planted_slow_down_is_of_the_new_side_alone_and_closes_the_gate(self):
        result = self.gate("HEAD", "--plant", "flash:10%", "--", "--gate", "time_us_median:+5%")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(set(self.sweeps()), {"base", "next*"})
        with open(self.calls, encoding="utf-8") as file:
            self.assertTrue(file.read().endswith("--gate time_us_median:+5%\n"))
        # What is there already is not mixed with new launches.
        self.assertEqual(self.gate("HEAD").returncode, 2)

    def test_more_rows_ask_for_more_launches(self):
        self.commit(rows=24)
        self.assertEqual(self.gate("HEAD").returncode, 0)
        self.assertEqual(len(self.sweeps()), 14)

    def test_a_sweep_that_fails_ends_the_gate_and_a_failed_row_does_not(self):
        self.commit(status=3)
        self.assertEqual(self.gate("HEAD").returncode, 0)
        shutil.rmtree(os.path.join(self.root, "build", "perf", "out"))
        self.commit(status=2)
        result = self.gate("HEAD")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the sweep of base ended with 2", result.stderr)

    def test_a_commit_that_does_not_build_ends_with_four(self):
        self.commit(broken=True)
        result = self.gate("HEAD~1")
        self.assertEqual(result.returncode, 4)
        self.assertIn("set-up failed", result.stderr)

    def test_wrong_words_end_with_two_and_say_what_to_type(self):
        for words, hint in (((), "scripts/perf_gate origin/main"), (("nosuch",), "nosuch is no commit"),
                            (("HEAD", "HEAD"), "left over"), (("--launches", "4", "HEAD"), "give 5 or more"),
                            (("--lanches", "5"), "no option --lanches"), (("HEAD", "--new"), "--new needs a value"),
                            (("HEAD", "--config", "/no/such"), "cannot be read")):
            result = self.gate(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn(hint, result.stderr)


if __name__ == "__main__":
    unittest.main()
