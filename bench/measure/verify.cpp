// Compares element by element and remembers the worst.
#include "bench/measure/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnbench::measure {
namespace {

using kernels::Dtype;
using kernels::Pass;
using kernels::Problem;

/// Follows the largest error of one tensor, element by element.
class Tracker {
 public:
  Tracker(std::string_view tensor, double tolerance) { error_.tensor = tensor, error_.tolerance = tolerance; }

  /// `place` is called for the worst element alone.
  template <typename Place>
  void add(double got, double want, const Place& place) {
    if (std::isfinite(want)) largest_ = std::max(largest_, std::abs(want));
    if (std::isnan(want) && std::isnan(got)) return;
    if (!std::isfinite(want) || !std::isfinite(got)) {
      if (got == want) return;
      if (!error_.wrong) error_.worst = text(got, want, place());
      error_.wrong = true;
      return;
    }
    const double difference = std::abs(got - want);
    if (difference <= absolute_) return;
    absolute_ = difference;
    if (!error_.wrong) error_.worst = text(got, want, place());
  }

  /// An element outside the sample that holds a NaN.
  void unwritten(const std::string& place) {
    if (!error_.wrong) error_.worst = fmt::format("{}[{}] is NaN or was not written", error_.tensor, place);
    error_.wrong = true;
  }

  bool is_wrong() const { return error_.wrong; }

  TensorError finish() {
    if (error_.wrong) return error_;
    error_.absolute = absolute_;
    error_.relative = absolute_ / std::max(1.0, largest_);
    return error_;
  }

 private:
  std::string text(double got, double want, const std::string& place) const {
    return fmt::format("{}[{}] is {:.7g}, should be {:.7g}", error_.tensor, place, got, want);
  }

  TensorError error_;
  double absolute_ = 0;
  double largest_ = 0;
};

std::string place_of(std::int64_t batch, std::int64_t head, char letter, std::int64_t row, std::int64_t d) {
  return fmt::format("batch {}, head {}, {} {}, d {}", batch, head, letter == 'q' ? "query" : "key", row, d);
}

/// Batch, head, row and d of a dense index.
std::string place_of(const HostTensor& tensor, char letter, std::int64_t index) {
  const auto& e = tensor.view.extent;
  return place_of(index / (e[1] * e[2] * e[3]), index / (e[2] * e[3]) % e[1], letter, index / e[3] % e[2],
                  index % e[3]);
}

void compare_all(Tracker& tracker, const HostTensor& got, const std::vector<double>& want, char letter) {
  for (std::int64_t i = 0; i < got.view.size(); ++i) {
    tracker.add(load_element(got.view.data, got.view.dtype, i), want[static_cast<std::size_t>(i)],
                [&] { return place_of(got, letter, i); });
  }
}

void compare_row(Tracker& tracker, const HostTensor& got, std::int64_t batch, std::int64_t head, std::int64_t row,
                 const std::vector<double>& want, char letter) {
  const auto& e = got.view.extent;
  const std::int64_t begin = ((batch * e[1] + head) * e[2] + row) * e[3];
  for (std::int64_t d = 0; d < e[3]; ++d) {
    tracker.add(load_element(got.view.data, got.view.dtype, begin + d), want[static_cast<std::size_t>(d)],
                [&] { return place_of(batch, head, letter, row, d); });
  }
}

/// Poison is a NaN in every dtype, so one look finds what was not written and what went wrong.
void scan(Tracker& tracker, const HostTensor& got, char letter) {
  for (std::int64_t i = 0; i < got.view.size() && !tracker.is_wrong(); ++i) {
    if (std::isnan(load_element(got.view.data, got.view.dtype, i))) tracker.unwritten(place_of(got, letter, i));
  }
}

TensorError check_o(const Reference& reference, const Outputs& outputs, double tolerance) {
  Tracker tracker("o", tolerance);
  if (reference.complete) {
    compare_all(tracker, outputs.o, reference.forward.o, 'q');
    return tracker.finish();
  }
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const auto& row = reference.rows[i];
    compare_row(tracker, outputs.o, row.batch, row.head, row.query, reference.row_results[i].o, 'q');
  }
  scan(tracker, outputs.o, 'q');
  return tracker.finish();
}

TensorError check_lse(const Problem& p, const Reference& reference, const Outputs& outputs, double tolerance) {
  Tracker tracker("lse", tolerance);
  const auto place = [&](std::int64_t i) {
    return fmt::format("batch {}, head {}, query {}", i / (p.heads * p.seq_q), i / p.seq_q % p.heads, i % p.seq_q);
  };
  if (reference.complete) {
    for (std::size_t i = 0; i < outputs.lse.size(); ++i) {
      tracker.add(outputs.lse[i], reference.forward.lse[i], [&] { return place(static_cast<std::int64_t>(i)); });
    }
    return tracker.finish();
  }
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const auto& row = reference.rows[i];
    const std::int64_t index = (row.batch * p.heads + row.head) * p.seq_q + row.query;
    tracker.add(outputs.lse[static_cast<std::size_t>(index)], reference.row_results[i].lse,
                [&] { return place(index); });
  }
  for (std::size_t i = 0; i < outputs.lse.size() && !tracker.is_wrong(); ++i) {
    if (std::isnan(outputs.lse[i])) tracker.unwritten(place(static_cast<std::int64_t>(i)));
  }
  return tracker.finish();
}

TensorError check_dq(const Reference& reference, const Outputs& outputs, double tolerance) {
  Tracker tracker("dq", tolerance);
  if (reference.complete) {
    compare_all(tracker, outputs.dq, reference.backward.dq, 'q');
    return tracker.finish();
  }
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const auto& row = reference.rows[i];
    compare_row(tracker, outputs.dq, row.batch, row.head, row.query, reference.row_results[i].dq, 'q');
  }
  scan(tracker, outputs.dq, 'q');
  return tracker.finish();
}

/// `whole` and `part` are dk or dv of the two kinds of reference.
TensorError check_key_side(std::string_view name, const Reference& reference, const HostTensor& got,
                           const std::vector<double>& whole, std::vector<double> kernels::KeyResult::*part,
                           double tolerance) {
  Tracker tracker(name, tolerance);
  if (reference.complete) {
    compare_all(tracker, got, whole, 'k');
    return tracker.finish();
  }
  for (std::size_t i = 0; i < reference.keys.size(); ++i) {
    compare_row(tracker, got, reference.key_batch, reference.key_head, reference.keys[i],
                reference.key_results[i].*part, 'k');
  }
  scan(tracker, got, 'k');
  return tracker.finish();
}

/// Relative error in units of the tolerance; wrong beats everything.
double badness(const TensorError& error) {
  if (error.wrong || !error.relative) return HUGE_VAL;
  return error.tolerance > 0 ? *error.relative / error.tolerance : *error.relative > 0 ? HUGE_VAL : 0;
}

}  // namespace

std::string TensorError::reason() const {
  if (!relative) return worst + " (not finite, or should not be: no error can be computed)";
  return fmt::format("{} (relative error {:.3g}, {:.3g} is accepted)", worst, *relative, tolerance);
}

bool Verdict::passed() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const TensorError& error) { return error.passed(); });
}

const TensorError& Verdict::worst() const {
  ATTNBENCH_ENSURE(!tensors.empty(), "a verdict is on at least one tensor");
  return *std::max_element(tensors.begin(), tensors.end(),
                           [](const TensorError& a, const TensorError& b) { return badness(a) < badness(b); });
}

std::string Verdict::reason() const { return "wrong result, so no time is given: " + worst().reason(); }

double largest_lse(const Reference& reference) {
  double largest = 0;
  const auto add = [&](double lse) {
    if (std::isfinite(lse)) largest = std::max(largest, std::abs(lse));
  };
  for (const double lse : reference.forward.lse) add(lse);
  for (const kernels::RowResult& row : reference.row_results) add(row.lse);
  return largest;
}

Bounds bounds_for(const kernels::Tolerance& tolerance, double lse) {
  constexpr double kUlps = 16;
  const auto value = static_cast<float>(lse);
  const double ulp = double{std::nextafter(value, std::numeric_limits<float>::infinity())} - double{value};
  const double logits = std::min(kMostForLogits, kUlps * ulp);
  const double backward = std::max(tolerance.backward, logits);
  return {std::max(tolerance.forward, logits), tolerance.forward, backward, backward, backward};
}

Verdict compare(const Problem& problem, Pass pass, const Reference& reference, const Outputs& outputs,
                const Bounds& bounds) {
  Verdict verdict;
  verdict.checked_rows = reference.checked_rows();
  if (pass != Pass::kBwd) {
    verdict.tensors.push_back(check_o(reference, outputs, bounds.o));
    verdict.tensors.push_back(check_lse(problem, reference, outputs, bounds.lse));
  }
  if (pass != Pass::kFwd) {
    verdict.tensors.push_back(check_dq(reference, outputs, bounds.dq));
    verdict.tensors.push_back(
        check_key_side("dk", reference, outputs.dk, reference.backward.dk, &kernels::KeyResult::dk, bounds.dk));
    verdict.tensors.push_back(
        check_key_side("dv", reference, outputs.dv, reference.backward.dv, &kernels::KeyResult::dv, bounds.dv));
    if (reference.first_checked_key > 0) {
      verdict.caveat =
          fmt::format("dk and dv were compared at keys from {} on alone; the rest was looked through for NaN",
                      reference.first_checked_key);
    }
  }
  return verdict;
}

}  // namespace attnbench::measure
