// How training runs look on the terminal.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/cells.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

std::span<const Cell> training_cells();

/// "small B8 S512 x4 ckpt": model, sequences, tokens, micro-batches.
std::string training_shape(const Row& row);

/// What the reader must know of the rows, a sentence each: what exposed means, emulated links, shared processors.
std::vector<std::string> training_notes(const Document& document);

}  // namespace attnbench::reports
