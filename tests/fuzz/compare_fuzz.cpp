// Any two texts as runs, split at the first NUL byte: compared and printed in every format, without a crash, and with
// verdicts that cannot be otherwise: a run against itself has not regressed, and a row that is not ok is never
// improved.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/base/error.hpp"
#include "reports/compare_text.hpp"
#include "reports/noise_json.hpp"
#include "reports/rows_io.hpp"
#include "reports/self_test.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attnbench::reports;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t split = bytes.find('\0');
  const std::string_view second = split == std::string_view::npos ? bytes : bytes.substr(split + 1);
  static_cast<void>(parse_noise(bytes, "fuzz"));
  const auto base = parse_rows(bytes.substr(0, split), "base");
  const auto next = parse_rows(second, "new");
  if (!base || !next) return 0;
  CompareOptions options;
  for (const char* gate : {"time_us_median:+5%", "peak_bytes:+2%", "tflops:-5%"}) {
    options.gates.push_back(*parse_gate(gate));
  }
  const Comparison comparison = compare({*base}, {*next}, options);
  for (const Change& change : comparison.changes) {
    const bool judged = change.verdict == Verdict::kImproved || change.verdict == Verdict::kRegressed;
    ATTNBENCH_ENSURE(!judged || (change.base.status == status::kOk && change.next.status == status::kOk),
                     "only rows that are ok are better or worse");
  }
  for (const std::string_view format : kCompareFormats) {
    ATTNBENCH_ENSURE(emit_comparison(format, comparison, true).has_value(), "every format can be written");
  }
  ATTNBENCH_ENSURE(!compare({*base}, {*base}, options).regressed(), "a run against itself has not regressed");
  static_cast<void>(self_test({*base}, options));
  return 0;
}
