// What becomes of a sweep whose GPU is lost to a kernel that reads where nothing is: in a process of its own, since no
// later call to the device can succeed there.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/plan/plan.hpp"
#include "bench/run/runner.hpp"
#include "tests/gpu/gpu_case.hpp"

namespace attnbench::kernels {
namespace {

const KernelInfo& naive() { return *gpu_kernels().front(); }

/// naive, with queries at an address that is nobody's.
base::Result<std::unique_ptr<PreparedKernel>> prepare_astray(const AttentionArgs& args, Device& device) {
  AttentionArgs astray = args;
  astray.q.data = reinterpret_cast<void*>(std::uintptr_t{4096});
  return naive().prepare(astray, device);
}

class Rows : public run::RowSink {
 public:
  base::Result<void> row(const reports::Row& row) override {
    all.push_back(row);
    return {};
  }
  std::vector<reports::Row> all;
};

/// Counts what is not as it should be, and says it on standard error.
class Complaints {
 public:
  void unless(bool right, const std::string& what) {
    if (right) return;
    std::fprintf(stderr, "not so: %s\n", what.c_str());
    ++count_;
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

run::RunSettings settings() {
  run::RunSettings s;
  s.sampling.samples_max = 3;
  s.sampling.time_min_s = 0;
  s.resume_command = "attnbench sweep --resume --out here";
  s.open = [](const std::string&) { return (*cuda_backend())->open(0); };
  return s;
}

/// Two points of two kernels, the first of which loses the device.
int lose_the_device() {
  KernelInfo astray = naive();
  astray.name = "astray";
  astray.prepare = &prepare_astray;
  const std::vector<const KernelInfo*> kernels{&astray, &naive()};
  const std::vector<plan::Candidate> candidates{{gpu()->facts(), kernels}};
  cli::SweepOptions options;
  options.axes.d_model = {64};
  options.axes.seq_len = {64, 128};
  options.axes.batch = {1};
  options.axes.dtype = {{Dtype::kFp32}};
  options.axes.pass = {Pass::kFwd};
  options.axes.kernels = {{"astray", ""}, {"naive", ""}};
  options.devices = {"cuda:0"};
  Complaints complaints;
  const auto plan = plan::make_plan(options, candidates);
  complaints.unless(plan.has_value(), plan ? "" : plan.error().message);
  if (!plan) return complaints.count();
  Rows rows;
  run::RowSink* const sink = &rows;
  const run::RunSummary summary = run::run_plan(*plan, candidates, settings(), {&sink, 1}, {});
  complaints.unless(!summary.error, "the run ends without an error of its own");
  complaints.unless(rows.all.size() == 4, "four rows, not " + std::to_string(rows.all.size()));
  for (std::size_t i = 0; i < rows.all.size(); ++i) {
    const reports::Row& row = rows.all[i];
    const std::string name = "row " + std::to_string(i) + " (" + row.status + ": " + row.reason + ") ";
    complaints.unless(row.status == "device_lost", name + "is device_lost");
    complaints.unless(!row.time_us_median, name + "has no time");
    const std::string wanted = i == 0 ? "illegal" : "attnbench sweep --resume";
    complaints.unless(row.reason.find(wanted) != std::string::npos, name + "says " + wanted);
    complaints.unless(run::is_final(row.status) == false, name + "is run again by --resume");
  }
  complaints.unless(!gpu()->allocate(256), "no memory comes from a lost device");
  const auto after = gpu()->allocate(256);
  complaints.unless(!after && after.error().kind == base::ErrorKind::kDeviceLost, "a lost device is not out of memory");
  return complaints.count();
}

TEST(LostDevice, EndsItsPointsWithAHintHowToGoOn) {
  if (gpu() == nullptr) GTEST_SKIP() << why_no_gpu();
  ASSERT_EQ(naive().name, "naive");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(lose_the_device()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attnbench::kernels
