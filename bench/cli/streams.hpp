// Standard input, output and error as the program finds and leaves them.
#pragma once

namespace attnbench::cli {

/// Fills the places of those that the caller closed (`>&-`), before any other file is opened: it would get the number,
/// and what is printed would go into it. What stands there refuses to be used, as a closed stream does.
void fill_closed_streams();

/// Writes out what is left. False: something that was printed to standard output, now or earlier, did not get there.
bool flush_standard_output();

}  // namespace attnbench::cli
