"""Plants one violation of each kind in a small checkout and expects scripts/check_source to name it, and only it."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECK = os.path.join(TOP, "scripts", "check_source")

CLEAN = {
    "bench/base/error.hpp": '// Errors.\n#pragma once\n#include <tl/expected.hpp>\n',
    "bench/cli/options.hpp": '// Options.\n#pragma once\n',
    "bench/cli/parse.cpp": '// Parsing.\n#include <CLI/CLI.hpp>\n\n#include "bench/cli/options.hpp"\n',
    "bench/plan/plan.hpp": '// Plan.\n#pragma once\n#include "bench/cli/options.hpp"\n#include "kernels/problem.hpp"\n',
    "bench/run/runner.cpp": '// Runner.\n#include "bench/plan/plan.hpp"\n#include "reports/row.hpp"\n',
    "kernels/problem.hpp": '// Problem.\n#pragma once\n#include "bench/base/error.hpp"\n',
    "kernels/cpu/naive.cpp": '// Naive.\n#include "kernels/problem.hpp"\n',
    "kernels/cpu/naive.hpp": '// Naive.\n#pragma once\n',
    "kernels/cuda/naive.cu": '// Naive.\n#include <cuda_runtime.h>\n\n#include "kernels/problem.hpp"\n',
    "reports/row.hpp": '// Row.\n#pragma once\n',
    "reports/speedup.hpp": '// Speed-ups.\n#pragma once\n#include "reports/row.hpp"\n',
    "CMakeLists.txt": "add_library(a bench/cli/parse.cpp bench/run/runner.cpp kernels/cpu/naive.cpp\n"
                      "  kernels/cuda/naive.cu)\n",
    "scripts/tool": "#!/usr/bin/env bash\ntrue\n",
    "README.md": "Type `./scripts/tool`, see [the build](CMakeLists.txt).\n",
}


def lines(count):
    return "  ++x;\n" * count


class CheckSource(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        for name, text in CLEAN.items():
            self.write(name, text)
        os.chmod(os.path.join(self.root, "scripts/tool"), 0o755)

    def write(self, name, text, append=False):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a" if append else "w", encoding="utf-8") as file:
            file.write(text)

    def check(self, *options):
        done = subprocess.run([sys.executable, "-B", CHECK, "--root", self.root, *(options or ["--no-format"])],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def expect(self, *expected):
        """Exactly these violations, each given as the beginning of a line."""
        code, found, errors = self.check()
        self.assertEqual(code, 1, errors)
        self.assertEqual(len(found), len(expected), found)
        for line, beginning in zip(sorted(found), sorted(expected)):
            self.assertTrue(line.startswith(beginning), f"{line!r} should begin with {beginning!r}")

    def expect_clean(self):
        code, found, errors = self.check()
        self.assertEqual((code, errors), (0, ""), found)

    def test_a_clean_tree_passes(self):
        self.expect_clean()

    def test_arrows_that_the_house_does_not_draw_are_refused(self):
        for name, target in [
                ("bench/base/error.hpp", "kernels/problem.hpp"), ("kernels/problem.hpp", "bench/plan/plan.hpp"),
                ("kernels/problem.hpp", "reports/row.hpp"), ("reports/row.hpp", "kernels/problem.hpp"),
                ("reports/row.hpp", "bench/cli/options.hpp"), ("bench/run/runner.cpp", "reports/speedup.hpp"),
                ("bench/plan/plan.hpp", "reports/row.hpp"), ("kernels/problem.hpp", "kernels/cpu/naive.hpp"),
                ("kernels/cuda/naive.cu", "kernels/cpu/naive.hpp")]:
            with self.subTest(f"{name} includes {target}"):
                before = CLEAN[name]
                self.write(name, f'#include "{target}"\n', append=True)
                self.expect(f"{name}:{before.count(chr(10)) + 1}: arrow: ")
                self.write(name, before)

    def test_an_include_of_nothing_is_refused(self):
        self.write("reports/row.hpp", '#include "reports/rows.hpp"\n', append=True)
        self.expect('reports/row.hpp:3: arrow: "reports/rows.hpp" is not a file')

    def test_a_source_outside_every_room_is_refused(self):
        self.write("tools/x.hpp", "// X.\n")
        self.expect("tools/x.hpp:1: arrow: no room")

    def test_each_library_comes_in_through_its_door_only(self):
        for header in ["CLI/CLI.hpp", "benchmark/benchmark.h", "dnnl.hpp", "oneapi/dnnl/dnnl.h", "cuda_runtime.h",
                       "cublasLt.h", "nlohmann/json.hpp", "hwy/highway.h", "nvtx3/nvToolsExt.h", "nccl.h", "mpi.h",
                       "gtest/gtest.h", "boost/any.hpp", "toml++/toml.h"]:
            with self.subTest(header):
                self.write("bench/run/runner.cpp", CLEAN["bench/run/runner.cpp"] + f"#include <{header}>\n")
                self.expect("bench/run/runner.cpp:4: door: ")

    def test_printing_that_may_throw_is_refused(self):
        self.write("bench/run/runner.cpp", CLEAN["bench/run/runner.cpp"] + 'void f() { fmt::print("x"); }\n')
        self.expect("bench/run/runner.cpp:4: print: ")

    def test_device_sources_see_no_host_library_even_through_a_header(self):
        self.write("kernels/problem.hpp", "#include <fmt/format.h>\n", append=True)
        self.expect("kernels/cuda/naive.cu:1: door: device sources see no fmt/format.h; reached through "
                    "kernels/problem.hpp -> fmt/format.h")

    def test_a_function_of_71_lines_is_too_long(self):
        for before, opening, after in [
                ("", "int f(int x) {\n", "}\n"), ("", "template <class T>\nT f(T x)\n    requires true {\n", "}\n"),
                ("class A {\n public:\n", "  A() : a_{1}, b_(2) {\n", "  }\n};\n"),
                ("namespace a::b {\n", "TEST(A, B) {\n", "}\n}\n"),
                ("struct A {\n", "  int f() const noexcept override {\n", "  }\n};\n"),
                ('extern "C" {\n', "auto f() -> int {\n", "}\n}\n"), ("", "const auto f = [](int x) {\n", "};\n"),
                ("HWY_BEFORE_NAMESPACE();\nnamespace a {\nnamespace HWY_NAMESPACE {\n", "void f() {\n", "}\n}\n}\n"),
                ("enum class E { a, b };\n", "void f(S s = {}) {\n", "}\n"),
                ("void g() {\n}\n", '// F.\n__global__ void __launch_bounds__(128, 2)\n    f(T* a) {\n', "}\n")]:
            with self.subTest(opening):
                code_lines = opening.count("\n") - opening.count("//") + 1
                text = "// Row.\n" + before + opening
                self.write("reports/row.hpp", text + lines(70 - code_lines) + after)
                self.expect_clean()
                self.write("reports/row.hpp", text + lines(71 - code_lines) + after)
                first = 2 + before.count("\n") + opening.count("//")
                self.expect(f"reports/row.hpp:{first}: function: 71 lines")

    def test_tables_classes_comments_and_literals_are_not_functions(self):
        self.write("reports/row.hpp", "// Row.\nconst int table[] = {\n" + "    1,\n" * 80 + "};\n")
        self.expect_clean()
        self.write("reports/row.hpp", "// Row.\nconst std::vector<Column> table = {{\n" +
                   "    {f(1), [](int x) { return x; }},\n" * 80 + "}};\n")
        self.expect_clean()
        self.write("reports/row.hpp", "// Row.\nclass A final : public B<C> {\n" + "  void f();\n" * 80 + "};\n")
        self.expect_clean()
        self.write("reports/row.hpp", '// Row.\n// void f() {\nconst char* a = "void f() {";\nconst char b = \'{\';\n'
                   'const char* c = R"x(void f() {)x";\n#define F() {\nint million = 1\'000\'000;\n' + "\n" * 80)
        self.expect_clean()

    def test_long_scripts_functions_are_too_long(self):
        self.write("scripts/tool", "#!/usr/bin/env bash\nf() {\n" + "  true\n" * 69 + "}\n")
        self.expect("scripts/tool:2: function: 71 lines")
        self.write("scripts/tool", "#!/usr/bin/env python3\ndef f(x):\n" + "    x += 1\n" * 70)
        self.expect("scripts/tool:2: function: 71 lines")

    def test_files_and_lines_have_a_limit(self):
        for name, limit in [("reports/row.hpp", 200), ("bench/cli/parse.cpp", 400), ("kernels/cuda/naive.cu", 500)]:
            with self.subTest(name):
                used = CLEAN[name].count("\n")
                self.write(name, CLEAN[name] + "\n" * (limit - used))
                self.expect_clean()
                self.write(name, CLEAN[name] + "\n" * (limit - used + 1))
                self.expect(f"{name}:{limit + 1}: file: {limit + 1} lines, at most {limit}")
                self.write(name, CLEAN[name])
        self.write("reports/row.hpp", "// " + "x" * 117 + "\n")
        self.expect_clean()
        self.write("reports/row.hpp", "// " + "x" * 118 + "\n")
        self.expect("reports/row.hpp:1: line: 121 columns")

    def test_words_of_unfinished_work_are_refused(self):
        for word in ["TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"]:
            with self.subTest(word):
                self.write("README.md", f"Fine.\n{word}: later\n")
                self.expect(f"README.md:2: word: {word}")

    def test_a_file_without_an_opening_comment_is_refused(self):
        self.write("reports/row.hpp", "#pragma once\n")
        self.expect("reports/row.hpp:1: comment: ")

    def test_build_files_list_what_exists_and_all_of_it(self):
        self.write("CMakeLists.txt", CLEAN["CMakeLists.txt"] + "add_library(b\n  missing.cpp)\n")
        self.expect("CMakeLists.txt:4: cmake: missing.cpp does not exist")
        self.write("CMakeLists.txt", CLEAN["CMakeLists.txt"])
        self.write("kernels/cpu/extra.cpp", "// Extra.\n")
        self.expect("kernels/cpu/extra.cpp:1: cmake: no CMakeLists.txt lists this file")
        self.write("kernels/cpu/CMakeLists.txt", "target_sources(a PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/extra.cpp)\n")
        self.expect_clean()
        self.write("kernels/cpu/CMakeLists.txt", "file(GLOB sources *.hpp)\nadd_library(c extra.cpp)\n")
        self.expect("kernels/cpu/CMakeLists.txt:1: cmake: list the sources")

    def test_scripts_are_executable_and_parse(self):
        os.chmod(os.path.join(self.root, "scripts/tool"), 0o644)
        self.expect("scripts/tool:1: script: is not executable")
        os.chmod(os.path.join(self.root, "scripts/tool"), 0o755)
        self.write("scripts/tool", "#!/usr/bin/env bash\nif true; then\n")
        self.expect("scripts/tool:1: script: ")

    def test_readmes_name_what_exists(self):
        self.write("README.md", "Run\n`./scripts/toil`.\n")
        self.expect("README.md:2: readme: scripts/toil does not exist")
        self.write("README.md", "See [there](docs/there.md).\n")
        self.expect("README.md:1: readme: links to docs/there.md")

    @unittest.skipUnless(shutil.which("clang-format"), "no clang-format")
    def test_formatting_is_that_of_clang_format(self):
        shutil.copy(os.path.join(TOP, ".clang-format"), self.root)
        self.assertEqual(self.check("--root", self.root)[0], 0)
        self.write("reports/row.hpp", "int   f( );\n", append=True)
        code, found, _ = self.check("--root", self.root)
        self.assertEqual((code, found), (1, ["reports/row.hpp:3: format: type: clang-format -i reports/row.hpp"]))

    def test_a_folder_that_is_no_checkout_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-B", CHECK, "--root", folder], capture_output=True, check=False)
            self.assertNotEqual(done.returncode, 0)


@unittest.skipUnless(os.path.exists(os.path.join(TOP, ".git")), "these files are no checkout of git's")
class ThisTree(unittest.TestCase):
    def test_the_tree_that_this_test_lies_in_keeps_the_rules(self):
        done = subprocess.run([sys.executable, "-B", CHECK, "--no-format"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
