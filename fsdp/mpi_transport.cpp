// Ranks as processes: every rank sends each other rank its part directly, and sums are made here in rank order.
//
// Measured against the library's own collectives (2 cores, OpenMPI 4.1, 2 and 4 ranks, 1 to 64 MiB): an all-gather of
// direct sends takes as long, a reduce-scatter 4 to 10 times less, since the library's allocates its receive buffer
// anew in every call. Nonblocking collectives make no progress outside MPI calls; blocking on a thread of its own does.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/mpi_module.hpp"
#include "fsdp/reduce.hpp"

namespace attnbench::fsdp {
namespace {

using base::Error;
using base::ErrorKind;
using base::Result;

constexpr std::size_t kMessage = std::size_t{1} << 30;  // MPI 3 counts are int
constexpr int kSignatureTag = 1;
constexpr int kDataTag = 2;
constexpr int kYields = 64;                           // before a rank that waits goes to sleep
constexpr auto kLastWords = std::chrono::seconds(1);  // for signatures after a transfer that failed
constexpr auto kNap = std::chrono::microseconds(50);  // between looks, so that waiting costs no processor

std::byte* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

/// What ended the run: the first error of either channel.
class Failure {
 public:
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void set(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = error;
    set_.store(true, std::memory_order_release);
  }
  Error get() {
    const std::scoped_lock lock(mutex_);
    return *error_;
  }

 private:
  std::atomic<bool> set_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
};

/// Every rank's messages of one channel, on a communicator of its own.
class Exchange {
 public:
  void open(MPI_Comm world, int rank, int size) {
    MPI_Comm_dup(world, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    rank_ = rank;
    size_ = size;
    const auto ranks = static_cast<std::size_t>(size);
    theirs_.resize(ranks);
    seen_.resize(ranks);
    came_.resize(ranks);
    requests_.assign(4 * ranks, MPI_REQUEST_NULL);
    done_.resize(4 * ranks);
    parts_.resize(ranks);
  }
  void close() { MPI_Comm_free(&comm_); }

  /// Tells every rank what this one is about to do.
  void begin(const Signature& mine, Clock::time_point deadline) {
    mine_ = &mine;
    deadline_ = deadline;
    std::fill(came_.begin(), came_.end(), char{0});
    came_[static_cast<std::size_t>(rank_)] = 1;
    joined_ = size_ == 1 ? Clock::now() : Clock::time_point{};
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      auto& theirs = theirs_[static_cast<std::size_t>(peer)];
      MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, peer, kSignatureTag, comm_, slot(0, peer));
      MPI_Isend(&mine, sizeof mine, MPI_BYTE, peer, kSignatureTag, comm_, slot(1, peer));
    }
  }

  /// Sends part `to_offset(peer)` of `send` to each peer and receives one part from it into `receive`.
  template <typename SendOffset, typename ReceiveOffset>
  Result<void> swap(void* send, void* receive, std::size_t part_bytes, const SendOffset& send_offset,
                    const ReceiveOffset& receive_offset, Failure& failure, double deadline_s) {
    for (std::size_t begin = 0; begin == 0 || begin < part_bytes; begin += kMessage) {
      const int length = static_cast<int>(std::min(kMessage, part_bytes - begin));
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        MPI_Irecv(at(receive, receive_offset(peer) + begin), length, MPI_BYTE, peer, kDataTag, comm_, slot(2, peer));
        MPI_Isend(at(send, send_offset(peer) + begin), length, MPI_BYTE, peer, kDataTag, comm_, slot(3, peer));
      }
      if (auto ok = finish(failure, deadline_s); !ok) return ok;
    }
    return {};
  }

  Clock::time_point joined() const { return joined_; }
  std::vector<const void*>& parts() { return parts_; }

 private:
  /// Requests by purpose (signature in, out, data in, out) and peer.
  MPI_Request* slot(int purpose, int peer) { return &requests_[static_cast<std::size_t>(purpose * size_ + peer)]; }

  Result<void> finish(Failure& failure, double deadline_s) {
    int idle = 0, broken = MPI_SUCCESS;
    while (true) {
      int count = 0;
      const int status =
          MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), MPI_STATUSES_IGNORE);
      if (status == MPI_SUCCESS && count == MPI_UNDEFINED && broken == MPI_SUCCESS) return {};
      if (auto ok = look(count == MPI_UNDEFINED ? 0 : count); !ok) return ok;
      if (status != MPI_SUCCESS && broken == MPI_SUCCESS) {
        // Two programs that differ send messages of other sizes: their signatures say it better, if they come.
        broken = status;
        deadline_ = std::min(deadline_, Clock::now() + kLastWords);
      }
      if (failure.is_set()) return tl::unexpected(failure.get());
      if (Clock::now() > deadline_) {
        if (broken != MPI_SUCCESS) return base::fail(ErrorKind::kFailed, transfer_error(broken));
        return tl::unexpected(late(deadline_s));
      }
      if (count > 0) {
        idle = 0;
      } else if (++idle < kYields) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  /// Compares the signatures among the `count` requests that are done.
  Result<void> look(int count) {
    for (int i = 0; i < count; ++i) {
      const int index = done_[static_cast<std::size_t>(i)];
      if (index >= size_) continue;
      const auto peer = static_cast<std::size_t>(index);
      seen_[peer] = theirs_[peer];
      came_[peer] = 1;
      if (auto ok = check_same(rank_, *mine_, index, theirs_[peer]); !ok) return ok;
      if (std::count(came_.begin(), came_.end(), char{0}) == 0) joined_ = Clock::now();
    }
    return {};
  }

  std::string transfer_error(int status) const {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(status, text.data(), &length);
    return "rank " + std::to_string(rank_) + ", " + describe(*mine_) + ": " +
           std::string(text.data(), static_cast<std::size_t>(length));
  }

  Error late(double deadline_s) const {
    for (int peer = 0; peer < size_; ++peer) {
      const auto index = static_cast<std::size_t>(peer);
      if (came_[index] == 0) return missing(rank_, *mine_, peer, &seen_[index], deadline_s);
    }
    for (int peer = 0; peer < size_; ++peer) {
      const bool sends = outstanding(2, peer), takes = outstanding(1, peer) || outstanding(3, peer);
      if (!sends && !takes) continue;
      return {ErrorKind::kFailed, "rank " + std::to_string(peer) + " came to the " + describe(*mine_) + " and then " +
                                      (sends ? "sent nothing more" : "took nothing more from rank ") +
                                      (sends ? "" : std::to_string(rank_)) +
                                      " within the deadline: it is dead or stuck"};
    }
    return {ErrorKind::kFailed, "rank " + std::to_string(rank_) + " lost its way in the " + describe(*mine_)};
  }

  /// Whether a message of this purpose (see slot) is still on its way.
  bool outstanding(int purpose, int peer) const {
    return requests_[static_cast<std::size_t>(purpose * size_ + peer)] != MPI_REQUEST_NULL;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  const Signature* mine_ = nullptr;
  Clock::time_point deadline_, joined_;
  std::vector<Signature> theirs_, seen_;
  std::vector<char> came_;
  std::vector<MPI_Request> requests_;
  std::vector<int> done_;
  std::vector<const void*> parts_;
};

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(const TransportOptions& options) : options_(options) {
    MPI_Comm_rank(MPI_COMM_WORLD, &world_.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_.size);
    world_.transport = "mpi";
    int here = 0;
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_.rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    MPI_Comm_free(&node);
    world_.time_shared = static_cast<unsigned>(here) > std::thread::hardware_concurrency();
    for (Exchange& exchange : exchanges_) exchange.open(MPI_COMM_WORLD, world_.rank, world_.size);
  }
  ~MpiTransport() override {
    if (failure_.is_set()) return;  // freeing is collective, and the others may be gone
    for (Exchange& exchange : exchanges_) exchange.close();
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  const WorldInfo& world() const override { return world_; }
  std::int64_t scratch_parts() const override { return world_.size - 1; }
  void fail(const Error& error) noexcept override { failure_.set(error); }

  Result<Clock::time_point> run(Channel channel, const Call& call) override {
    Exchange& exchange = exchanges_[static_cast<std::size_t>(channel)];
    const auto patience =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.deadline_s));
    exchange.begin(*call.signature, Clock::now() + patience);
    const Collective& mine = *call.collective;
    auto ok = gathers(mine.kind) ? gather(exchange, mine.data, mine.part_bytes) : reduce(exchange, mine, call.scratch);
    if (ok && mine.kind == CollectiveKind::kAllReduce) {
      ok = gather(exchange, mine.out, mine.part_bytes / kernels::size_of(mine.wire) * sizeof(float));
    }
    if (!ok) {
      failure_.set(ok.error());
      return tl::unexpected(failure_.get());
    }
    return exchange.joined();
  }

 private:
  Result<void> gather(Exchange& exchange, void* data, std::size_t part_bytes) {
    const auto own = [&](int) { return static_cast<std::size_t>(world_.rank) * part_bytes; };
    const auto theirs = [&](int peer) { return static_cast<std::size_t>(peer) * part_bytes; };
    return exchange.swap(data, data, part_bytes, own, theirs, failure_, options_.deadline_s);
  }

  Result<void> reduce(Exchange& exchange, const Collective& mine, void* scratch) {
    const auto to = [&](int peer) { return static_cast<std::size_t>(peer) * mine.part_bytes; };
    const auto from = [&](int peer) {
      return static_cast<std::size_t>(peer < world_.rank ? peer : peer - 1) * mine.part_bytes;
    };
    auto ok = exchange.swap(mine.data, scratch, mine.part_bytes, to, from, failure_, options_.deadline_s);
    if (!ok) return ok;
    std::vector<const void*>& parts = exchange.parts();
    for (int i = 0; i < world_.size; ++i) {
      const bool ordered = options_.order == ReductionOrder::kOrdered;
      const int rank = ordered ? i : (world_.rank + i) % world_.size;
      parts[static_cast<std::size_t>(i)] = rank == world_.rank ? at(mine.data, to(rank)) : at(scratch, from(rank));
    }
    const auto count = static_cast<std::int64_t>(mine.part_bytes / kernels::size_of(mine.wire));
    const bool everywhere = mine.kind == CollectiveKind::kAllReduce;
    sum_in_order(mine.out + (everywhere ? world_.rank * count : 0), mine.accumulate && !everywhere, parts, mine.wire,
                 count);
    return {};
  }

  TransportOptions options_;
  WorldInfo world_;
  std::array<Exchange, kChannels> exchanges_;
  Failure failure_;
};

Result<std::unique_ptr<Transport>> join(const TransportOptions& options) {
  int started = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (started == 0 && MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    return base::fail(ErrorKind::kFailed, "MPI could not start");
  }
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    return base::fail(ErrorKind::kFailed, "this MPI allows one thread at a time (MPI_THREAD_MULTIPLE is needed)");
  }
  return std::make_unique<MpiTransport>(options);
}

bool running() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  return started != 0 && ended == 0;
}

void leave() {
  if (running()) MPI_Finalize();
}

void abort(int code) {
  if (running()) MPI_Abort(MPI_COMM_WORLD, code);
}

const char* version() {
  static const std::string text = [] {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> all{};
    int length = 0;
    MPI_Get_library_version(all.data(), &length);
    const std::string line(all.data(), static_cast<std::size_t>(length));
    return line.substr(0, line.find_first_of(",\n"));
  }();
  return text.c_str();
}

}  // namespace
}  // namespace attnbench::fsdp

extern "C" __attribute__((visibility("default"))) const attnbench::fsdp::MpiModule* attnbench_mpi_module() {
  static const attnbench::fsdp::MpiModule module{ATTNBENCH_FSDP_BUILD_ID, &attnbench::fsdp::join,
                                                 &attnbench::fsdp::leave, &attnbench::fsdp::abort,
                                                 &attnbench::fsdp::version};
  return &module;
}
