// Lines that GitHub turns into annotations of a run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnbench::reports::annotations {

struct Annotation {
  std::string title;
  std::string message;
};

/// As `::LEVEL title=TITLE::MESSAGE` lines (level error or warning). A step shows ten of a level: of more, nine are
/// written and the tenth says how many there are.
std::string lines(std::string_view level, const std::vector<Annotation>& all);

}  // namespace attnbench::reports::annotations
