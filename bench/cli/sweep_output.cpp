// The live table, the progress line and the files that a sweep writes at its end.
#include "bench/cli/sweep_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "bench/base/units.hpp"
#include "bench/cli/print.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/cli/writers.hpp"
#include "bench/run/provenance.hpp"
#include "reports/emit.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::cli {
namespace {

constexpr std::size_t kBarWidth = 20;

/// The files that were asked for.
std::vector<EmitTarget> targets_of(const Outputs& outputs) {
  std::vector<EmitTarget> targets{
      {"csv", outputs.csv}, {"json", outputs.json}, {"md", outputs.md}, {"gbench", outputs.gbench_json}};
  targets.insert(targets.end(), outputs.emit.begin(), outputs.emit.end());
  std::erase_if(targets, [](const EmitTarget& target) { return target.path.empty(); });
  return targets;
}

/// Whether making the folder `out` makes `folder` too: it is `out` itself or above it, and not there yet.
bool will_be_made(const std::filesystem::path& folder, const std::filesystem::path& out) {
  std::error_code ignored;
  if (folder.empty()) return false;
  for (std::filesystem::path made = out; !made.empty() && !std::filesystem::exists(made, ignored);) {
    if (same_place(folder, made)) return true;
    const std::filesystem::path above = made.parent_path();
    if (above == made) break;
    made = above;
  }
  return false;
}

}  // namespace

reports::TableStyle style_for(const plan::Plan& plan, Color color, std::FILE* stream) {
  reports::TableFit fit;
  for (const plan::Point& point : plan.points) {
    for (const plan::Case& c : point.cases) fit.add(run::identity(c));
  }
  const int descriptor = ::fileno(stream);
  return fit.applied_to({use_color(color, descriptor), terminal_width(descriptor)});
}

ProgressLine::ProgressLine(bool quiet, double predicted_s)
    : enabled_(!quiet && isatty(STDERR_FILENO) == 1), predicted_s_(predicted_s) {}

void ProgressLine::show(const run::RunProgress& progress) {
  if (!enabled_ || progress.total == 0) return;
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double share = static_cast<double>(progress.done) / static_cast<double>(progress.total);
  // The prediction alone at first; what was seen counts more and more.
  const double seen_s = share > 0 ? elapsed_s / share : predicted_s_;
  const double total_s = share * seen_s + (1 - share) * std::max(predicted_s_, elapsed_s);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  std::string line =
      fmt::format("[{}{}] {}/{}, {} left", std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
                  progress.done, progress.total, base::format_time_us(std::max(0.0, total_s - elapsed_s) * 1e6));
  if (progress.current != nullptr) line += "  " + progress.current->key;
  const int width = terminal_width(STDERR_FILENO);
  if (width > 1) line.resize(std::min(line.size(), static_cast<std::size_t>(width - 1)));
  print_to(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  print_to(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

void TableSink::header() {
  if (!quiet_) print_to(stream_, "{}", reports::table_header(style_));
}

base::Result<void> TableSink::row(const reports::Row& row) {
  document_.rows.push_back(row);
  if (quiet_) return {};
  progress_.clear();
  // A table that cannot be shown is no reason to stop measuring: the rows are in their file.
  print_to(stream_, "{}", reports::table_row(row, style_));
  static_cast<void>(std::fflush(stream_));
  return {};
}

base::Result<void> check_writable(const Outputs& outputs) {
  const std::filesystem::path out =
      (std::filesystem::path(outputs.out_dir) / reports::kRowsFile).parent_path();  // without a last slash
  for (const EmitTarget& target : targets_of(outputs)) {
    if (will_be_made(std::filesystem::path(target.path).parent_path(), out)) continue;
    if (auto ok = reports::can_write_output(target.path); !ok) return ok;
  }
  return {};
}

base::Result<void> write_reports(const Outputs& outputs, const reports::Document& document,
                                 const std::string& baseline) {
  for (const EmitTarget& target : targets_of(outputs)) {
    const auto bytes = reports::emit(target.format, document, {baseline});
    if (!bytes) return tl::unexpected(bytes.error());
    if (auto ok = reports::write_format(target.format, target.path, *bytes); !ok) return ok;
  }
  return {};
}

}  // namespace attnbench::cli
