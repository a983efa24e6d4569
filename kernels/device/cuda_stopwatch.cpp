// Times launches on a stream with CUDA events, directly or as replays of a CUDA graph.
//
// One sample on the stream: gate (holds the device until the host has enqueued everything), flush when cold, event,
// launches or graph, event. The flush is outside the events; so is every call to NVML.
#include "kernels/device/cuda_stopwatch.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/device/cuda_error.hpp"
#include "kernels/device/cuda_timing.hpp"

namespace attnbench::kernels {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using SteadyClock = std::chrono::steady_clock;

constexpr double kLeastSampleUs = 50;  // 100 times the resolution of an event
constexpr double kGraphBelowUs = 100;  // auto: where the gaps between launches begin to count
constexpr int kMaxPacked = 64;         // keeps what waits behind the gate far below the launch queue's length
constexpr auto kReadingAge = std::chrono::milliseconds(5);  // NVML refreshes its answers no faster

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class CudaStopwatch : public Stopwatch {
 public:
  CudaStopwatch(Launch launch, const CudaStopwatchParts& parts) : launch_(std::move(launch)), parts_(parts) {}
  ~CudaStopwatch() override {
    (void)cudaSetDevice(parts_.ordinal);
    release();
    (void)cudaStreamSynchronize(parts_.stream);  // the gate reads host memory that goes away with this object
  }

  Result<void> start(const SampleSpec& spec) {
    if (auto ok = make_handles(); !ok) return ok;
    if (auto ok = warm_up(); !ok) return ok;
    const Result<double> estimate = estimate_us();
    if (!estimate) return tl::unexpected(estimate.error());
    const bool hot = parts_.flush == nullptr;
    if (hot && *estimate < kLeastSampleUs) {
      const double wanted = std::ceil(kLeastSampleUs / std::max(*estimate, 0.5));
      info_.launches_per_sample = static_cast<int>(std::min<double>(wanted, kMaxPacked));
    }
    info_.flush_bytes = parts_.flush_bytes;
    info_.timing = Timing::kEvents;
    if (spec.timing == Timing::kGraph || (spec.timing == Timing::kAuto && *estimate < kGraphBelowUs)) {
      auto captured = capture();
      if (captured) {
        info_.timing = Timing::kGraph;
      } else if (captured.error().kind == ErrorKind::kDeviceLost || spec.timing == Timing::kGraph) {
        return captured;
      } else {
        info_.note = "timed with events: " + captured.error().message;
      }
    }
    return measure_overhead();
  }

  Result<Sample> take() override {
    (void)cudaSetDevice(parts_.ordinal);
    bool waited = false;
    Result<double> time = timed([this] { return work(); }, &waited);
    if (!time) return tl::unexpected(time.error());
    if (waited) {
      // The launch itself waits for the device: the sample holds the gate's time-out and is taken again without one.
      gated_ = false;
      info_.note +=
          std::string(info_.note.empty() ? "" : "; ") + "host launch not hidden: the launch waits for the device";
      time = timed([this] { return work(); }, &waited);
      if (!time) return tl::unexpected(time.error());
    }
    Sample sample;
    sample.time_us = *time / info_.launches_per_sample;
    sample.clock_mhz = clock_mhz_;
    sample.throttled = throttled_;
    return sample;
  }

  StopwatchInfo info() const override { return info_; }

 private:
  Result<void> make_handles() {
    (void)cudaSetDevice(parts_.ordinal);
    // A kernel that reserved part of the cache would keep the flush out of it.
    if (cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0) != cudaSuccess) (void)cudaGetLastError();
    if (cudaCtxResetPersistingL2Cache() != cudaSuccess) (void)cudaGetLastError();
    for (CudaEvent* event : {&begin_, &end_}) {
      cudaEvent_t raw = nullptr;
      if (auto ok = check_cuda(cudaEventCreate(&raw), "cannot make an event"); !ok) return ok;
      event->reset(raw);
    }
    void* host = nullptr;
    void* device = nullptr;
    if (auto ok = check_cuda(cudaHostAlloc(&host, sizeof(HostGate), cudaHostAllocMapped), "cannot map memory"); !ok)
      return ok;
    gate_memory_.reset(host);
    gate_ = new (host) HostGate;
    if (auto ok = check_cuda(cudaHostGetDevicePointer(&device, host, 0), "cannot map memory"); !ok) return ok;
    device_gate_ = static_cast<HostGate*>(device);
    return {};
  }

  /// The first call of everything, without the gate: loading a module waits for the device.
  Result<void> warm_up() {
    if (auto ok = launch_(); !ok) return ok;
    if (auto ok = flush(); !ok) return ok;
    if (auto ok = check_cuda(launch_gate(device_gate_, gate_->released, parts_.stream), "gate"); !ok) return ok;
    if (auto ok = check_cuda(cudaEventRecord(begin_.get(), parts_.stream), "event"); !ok) return ok;
    return check_cuda(cudaStreamSynchronize(parts_.stream), "the launch to be timed failed");
  }

  /// Device time of one launch, the least of three: a guess that decides how samples are made, never a result.
  Result<double> estimate_us() {
    double least = 1e30;
    std::vector<double> host;
    for (int i = 0; i < 3; ++i) {
      const Result<double> time = timed([this, &host] {
        const auto begin = SteadyClock::now();
        auto ok = launch_();
        host.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - begin).count());
        return ok;
      });
      if (!time) return time;
      least = std::min(least, *time);
    }
    info_.launch_us = median(host);
    return least;
  }

  Result<void> measure_overhead() {
    std::vector<double> empty;
    for (int i = 0; i < 31; ++i) {
      const Result<double> time = timed([] { return Result<void>{}; });
      if (!time) return tl::unexpected(time.error());
      empty.push_back(*time);
    }
    info_.overhead_us = median(empty);
    return {};
  }

  Result<void> flush() {
    if (parts_.flush == nullptr) return {};
    return check_cuda(cudaMemsetAsync(parts_.flush, ++flush_value_ & 0xff, parts_.flush_bytes, parts_.stream), "flush");
  }

  Result<void> work() {
    if (replay_) return check_cuda(cudaGraphLaunch(replay_.get(), parts_.stream), "graph launch");
    for (int i = 0; i < info_.launches_per_sample; ++i) {
      if (auto ok = launch_(); !ok) return ok;
    }
    return {};
  }

  void release() {
    if (gate_ != nullptr) static_cast<volatile HostGate*>(gate_)->released = ticket_;
  }

  /// Microseconds between the events around `body`. `waited`: the gate timed out, so the figure means nothing.
  template <typename Body>
  Result<double> timed(Body&& body, bool* waited = nullptr) {
    Result<void> ok{};
    if (gated_) {
      ++ticket_;
      ok = check_cuda(launch_gate(device_gate_, ticket_, parts_.stream), "gate");
    }
    if (ok) ok = flush();
    if (ok) ok = check_cuda(cudaEventRecord(begin_.get(), parts_.stream), "event");
    if (ok) ok = body();
    if (ok) ok = check_cuda(cudaEventRecord(end_.get(), parts_.stream), "event");
    release();
    if (!ok) {
      (void)cudaStreamSynchronize(parts_.stream);
      return tl::unexpected(ok.error());
    }
    read_clock();
    if (auto done = check_cuda(cudaEventSynchronize(end_.get()), "the timed launch failed"); !done)
      return tl::unexpected(done.error());
    if (waited != nullptr)
      *waited = gated_ && static_cast<volatile HostGate*>(gate_)->timed_out == ticket_ && ticket_ != 0;
    float milliseconds = 0;
    if (auto read = check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "event"); !read)
      return tl::unexpected(read.error());
    return 1000.0 * static_cast<double>(milliseconds);
  }

  /// While the device works on the sample: afterwards the clock may already be falling.
  void read_clock() {
    const auto now = SteadyClock::now();
    if (last_reading_ != SteadyClock::time_point{} && now - last_reading_ < kReadingAge) return;
    last_reading_ = now;
    clock_mhz_ = parts_.nvml->sm_clock_mhz();
    throttled_ = parts_.nvml->throttled();
  }

  /// Turns the packed launches into a graph and replays it once, untimed.
  Result<void> capture() {
    if (auto ok = check_cuda(cudaStreamBeginCapture(parts_.stream, cudaStreamCaptureModeThreadLocal), "capture"); !ok)
      return ok;
    Result<void> launched{};
    for (int i = 0; i < info_.launches_per_sample && launched; ++i) launched = launch_();
    cudaGraph_t raw = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(parts_.stream, &raw);
    CudaGraph graph(raw);
    if (!launched || ended != cudaSuccess) {
      if (ended != cudaSuccess && is_sticky(ended)) return tl::unexpected(cuda_error(ended, "capture"));
      (void)cudaGetLastError();
      return fail(ErrorKind::kUnsupported,
                  "the launch cannot be captured in a CUDA graph: " +
                      (launched ? std::string(cudaGetErrorString(ended)) : launched.error().message));
    }
    cudaGraphExec_t exec = nullptr;
    if (auto ok = check_cuda(cudaGraphInstantiate(&exec, graph.get(), 0), "graph"); !ok) return ok;
    CudaGraphExec replay(exec);
    if (auto ok = check_cuda(cudaGraphUpload(replay.get(), parts_.stream), "graph"); !ok) return ok;
    if (auto ok = check_cuda(cudaGraphLaunch(replay.get(), parts_.stream), "graph launch"); !ok) return ok;
    if (auto ok = check_cuda(cudaStreamSynchronize(parts_.stream), "the graph's first replay failed"); !ok) return ok;
    replay_ = std::move(replay);
    return {};
  }

  Launch launch_;
  CudaStopwatchParts parts_;
  StopwatchInfo info_;
  CudaEvent begin_, end_;
  CudaHostMemory gate_memory_;
  HostGate* gate_ = nullptr;
  HostGate* device_gate_ = nullptr;
  unsigned ticket_ = 0;
  bool gated_ = true;
  int flush_value_ = 0;
  CudaGraphExec replay_;
  std::optional<double> clock_mhz_;
  std::optional<bool> throttled_;
  SteadyClock::time_point last_reading_{};
};

}  // namespace

Result<std::unique_ptr<Stopwatch>> make_cuda_stopwatch(Launch launch, const SampleSpec& spec,
                                                       const CudaStopwatchParts& parts) {
  if (spec.timing == Timing::kWall || spec.timing == Timing::kDeclared) {
    return fail(ErrorKind::kUsage, "timing " + std::string(to_string(spec.timing)) +
                                       " does not exist on a cuda device; use auto, events or graph");
  }
  auto stopwatch = std::make_unique<CudaStopwatch>(std::move(launch), parts);
  if (auto ok = stopwatch->start(spec); !ok) return tl::unexpected(ok.error());
  return stopwatch;
}

}  // namespace attnbench::kernels
