// What the terminal at the other end can show.
#pragma once

#include "bench/cli/options.hpp"

namespace attnbench::cli {

/// --color first, then NO_COLOR, then whether a terminal that can show it reads along.
bool use_color(Color color, int descriptor);

/// Columns of the terminal; 0 where there is none.
int terminal_width(int descriptor);

}  // namespace attnbench::cli
