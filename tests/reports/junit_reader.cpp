// JUnit by the letter of XML 1.0, as far as JUnit goes: elements, attributes, references.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>

#include "consumers.hpp"
#include "tests/reports/pattern.hpp"

namespace attnbench::tests {
namespace {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<Element> children;
};

class Xml {
 public:
  explicit Xml(const std::string& bytes) : text_(bytes) {}

  Element document() {
    check_characters();
    expect("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
    blanks();
    Element root = element();
    blanks();
    if (at_ != text_.size()) fail("bytes behind the root");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(at_));
  }

  void check_characters() {
    for (const char letter : text_) {
      const auto byte = static_cast<unsigned char>(letter);
      if (byte < 0x20 && letter != '\n' && letter != '\t' && letter != '\r') fail("a control character");
    }
  }

  void expect(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) fail("no " + word);
    at_ += word.size();
  }

  bool next_is(const std::string& word) const { return text_.compare(at_, word.size(), word) == 0; }

  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0)) ++at_;
    if (begin == at_) fail("no name");
    return text_.substr(begin, at_ - begin);
  }

  std::string value() {
    expect("\"");
    std::string result;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '<' || text_[at_] == '\n') fail("not in an attribute");
      if (text_[at_] != '&') {
        result += text_[at_++];
        continue;
      }
      const std::size_t end = text_.find(';', at_);
      if (end == std::string::npos) fail("an open reference");
      const std::string reference = text_.substr(at_ + 1, end - at_ - 1);
      static const std::map<std::string, char> kKnown{{"amp", '&'},  {"lt", '<'},   {"gt", '>'},  {"quot", '"'},
                                                      {"#10", '\n'}, {"#13", '\r'}, {"#9", '\t'}, {"apos", '\''}};
      if (!kKnown.contains(reference)) fail("unknown reference " + reference);
      result += kKnown.at(reference);
      at_ = end + 1;
    }
    expect("\"");
    return result;
  }

  Element element() {
    expect("<");
    Element found;
    found.name = name();
    for (blanks(); !next_is(">") && !next_is("/>"); blanks()) {
      const std::string key = name();
      expect("=");
      if (!found.attributes.emplace(key, value()).second) fail("an attribute twice");
    }
    if (next_is("/>")) {
      expect("/>");
      return found;
    }
    expect(">");
    for (blanks(); !next_is("</"); blanks()) found.children.push_back(element());
    expect("</" + found.name + ">");
    return found;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

double decimal(const std::string& text) {
  require(!groups_of(text, "^[0-9]+(\\.[0-9]+)?$").empty(), "not a decimal: " + text);
  return std::stod(text);
}

}  // namespace

std::vector<JunitCase> read_junit(const std::string& bytes) {
  const Element root = Xml(bytes).document();
  require(root.name == "testsuites" && root.children.size() == 1, "one suite in testsuites");
  const Element& suite = root.children.front();
  require(suite.name == "testsuite", "testsuite");
  std::vector<JunitCase> cases;
  std::map<std::string, std::size_t> counts{{"failure", 0}, {"error", 0}, {"skipped", 0}};
  double seconds = 0;
  for (const Element& element : suite.children) {
    require(element.name == "testcase" && element.children.size() <= 1, "testcase");
    JunitCase found{element.attributes.at("classname"), element.attributes.at("name"), "passed", "", {}};
    if (element.attributes.contains("time")) seconds += *(found.seconds = decimal(element.attributes.at("time")));
    if (!element.children.empty()) {
      const Element& outcome = element.children.front();
      require(counts.contains(outcome.name), "unknown outcome " + outcome.name);
      ++counts[outcome.name];
      found.outcome = outcome.name;
      found.message = outcome.attributes.at("message");
    }
    cases.push_back(found);
  }
  for (const Element& holder : {root, suite}) {
    require(holder.attributes.at("tests") == std::to_string(cases.size()), "tests");
    require(holder.attributes.at("failures") == std::to_string(counts["failure"]), "failures");
    require(holder.attributes.at("errors") == std::to_string(counts["error"]), "errors");
    require(holder.attributes.at("skipped") == std::to_string(counts["skipped"]), "skipped");
    const double sum = decimal(holder.attributes.at("time"));
    require(std::fabs(sum - seconds) <= 1e-6 * std::max(1.0, seconds), "time");
  }
  return cases;
}

}  // namespace attnbench::tests
