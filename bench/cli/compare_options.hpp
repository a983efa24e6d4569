// What `compare` asks of two runs, as plain values.
#pragma once

#include <string>
#include <vector>

namespace attnbench::cli {

struct Comparing {
  std::vector<std::string> gates{"time_us_median:+5%"};
  std::vector<std::string> allowed;  // columns of the set-up that may differ; "all" for every one
  double alpha = 0.05;               // chance of any false alarm among the rows of a gate
  std::string noise_file;            // floors that `attnbench noise` wrote
  double floor_pct = 0;              // noise floor of the rows that are not in it
  bool strict = false;
  bool self_test = false;
};

}  // namespace attnbench::cli
