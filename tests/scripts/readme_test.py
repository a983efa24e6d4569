"""What README.md and scripts/test say of the tests holds: the labels are those there are, the patterns match some."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = re.compile(r"`(unit(?: \w+)+)`|label: (unit(?: \w+)+)$", re.MULTILINE)


def labels_of_cmake():
    """The words after LABELS, and those that a script's test is added with."""
    found = set()
    for path in (ROOT / "tests").rglob("CMakeLists.txt"):
        text = path.read_text()
        found.update(re.findall(r"\bLABELS ([a-z_]+)", text))
        found.update(re.findall(r"^attnbench_script_test\(\w+ (\w+)\)", text, re.MULTILINE))
    return found


class Readme(unittest.TestCase):
    def test_the_labels_are_those_that_tests_have(self):
        labels = labels_of_cmake()
        self.assertIn("unit", labels)
        for name in ("README.md", "scripts/test"):
            lists = [set("".join(words).split()) for words in WORDS.findall((ROOT / name).read_text())]
            self.assertEqual(lists, [labels], name)

    def test_the_patterns_match_a_test(self):
        tests = " ".join(path.read_text() for path in (ROOT / "tests").rglob("*_test.cpp"))
        names = re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", tests, re.MULTILINE)
        for name in ("README.md", "scripts/test"):
            patterns = re.findall(r"\./scripts/test -R (\S+)", (ROOT / name).read_text())
            self.assertTrue(patterns, name)
            for pattern in patterns:
                self.assertTrue(any(re.search(pattern, ".".join(words)) for words in names), f"{name}: {pattern}")


if __name__ == "__main__":
    unittest.main()
