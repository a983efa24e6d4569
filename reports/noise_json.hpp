// How much a row's median moves from launch to launch of one program: measured once, kept in a file, held against every
// change that a gate looks at.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"
#include "reports/row.hpp"

namespace attnbench::reports {

/// Of one key.
struct NoiseFloor {
  std::vector<double> medians_us;  // one a launch, in order
  double floor_pct = 0;            // the largest of them over the smallest, minus one
};

struct Noise {
  std::string fingerprint;  // of the machine; empty where the rows have none
  std::string commit;
  std::map<std::string, NoiseFloor> rows;
};

/// The largest change between any two launches: what a comparison of this program with itself could have shown. Rows
/// that have a time in fewer than two launches are left out.
Noise noise_of(const std::vector<Document>& launches);

/// {"attnbench_noise":1,"fingerprint":...,"commit":...,"rows":[{"key":...,"floor_pct":...,"medians_us":[...]}, ...]},
/// one row a line.
std::string to_json(const Noise& noise);

/// Errors  kUnreadable: cannot be read, is not such a file, has another version, a floor below 0, or a key twice
base::Result<Noise> load_noise(const std::string& path);
base::Result<Noise> parse_noise(std::string_view bytes, const std::string& source);

}  // namespace attnbench::reports
