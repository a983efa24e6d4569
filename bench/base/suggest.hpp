// Near matches: what somebody who typed this word may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attnbench::base {

/// Least number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
/// Case does not count, nor does _ for -.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word nearest to `word`, empty when none is near enough (a third of the letters, at least one).
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

/// `; did you mean "x"?` or, when nothing is near, `; known: a, b, c`.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace attnbench::base
