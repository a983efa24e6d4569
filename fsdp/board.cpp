// Fixed-size records of plain bytes behind atomic counters: a rank writes its own, everyone reads.
#include "fsdp/board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

constexpr std::uint64_t kMagic = 0x6174746e62303031;  // "attnb001"
constexpr std::size_t kErrorBytes = 1000;

/// Records of a channel are written by its thread, the others by the thread of the rank or of either channel.
struct ChannelRecord {
  std::atomic<std::uint64_t> version;  // odd while it is written
  std::atomic<int> inside;
  Signature signature;
};

struct RankRecord {
  std::atomic<int> pid;
  std::atomic<int> started, finished, failed;
  ChannelRecord channels[kChannels];
  char error[kErrorBytes];
};

struct Page {
  std::uint64_t magic;
  std::int64_t size;
};

constexpr std::size_t page_bytes(int size) {
  return sizeof(Page) + static_cast<std::size_t>(size) * sizeof(RankRecord);
}

std::string system_reason() { return std::strerror(errno); }

}  // namespace

struct Board::Impl : public Observer {
  void* memory = nullptr;
  std::size_t bytes = 0;
  int rank = -1;

  ~Impl() override {
    if (memory != nullptr) munmap(memory, bytes);
  }

  Page& page() const { return *static_cast<Page*>(memory); }
  RankRecord& record(int which) const {
    return reinterpret_cast<RankRecord*>(static_cast<std::byte*>(memory) + sizeof(Page))[which];
  }

  void began(const Signature& signature) override {
    ChannelRecord& channel = record(rank).channels[static_cast<std::size_t>(signature.channel)];
    channel.version.fetch_add(1, std::memory_order_acq_rel);
    std::memcpy(&channel.signature, &signature, sizeof signature);
    channel.version.fetch_add(1, std::memory_order_acq_rel);
    channel.inside.store(1, std::memory_order_release);
  }
  void ended(const CollectiveSpan& span) override {
    record(rank).channels[static_cast<std::size_t>(span.channel)].inside.store(0, std::memory_order_release);
  }
  void failed(const base::Error& error) override {
    RankRecord& mine = record(rank);
    int expected = 0;
    if (!mine.failed.compare_exchange_strong(expected, 1)) return;  // the first error is the one to tell
    const std::size_t length = std::min(error.message.size(), kErrorBytes - 1);
    std::memcpy(mine.error, error.message.data(), length);
    mine.failed.store(2, std::memory_order_release);
  }

  Result<void> map(const std::string& path, int file) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) return {};
    memory = nullptr;
    return fail(ErrorKind::kFailed, fmt::format("{} cannot be mapped: {}", path, system_reason()));
  }
};

Board::Board(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Board::~Board() = default;

Result<std::unique_ptr<Board>> Board::create(const std::string& path, int size) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return fail(ErrorKind::kFailed, fmt::format("{} cannot be made: {}", path, system_reason()));
  auto impl = std::make_unique<Impl>();
  impl->bytes = page_bytes(size);
  if (ftruncate(file, static_cast<off_t>(impl->bytes)) != 0) {
    close(file);
    return fail(ErrorKind::kFailed, fmt::format("{} cannot be made: {}", path, system_reason()));
  }
  auto mapped = impl->map(path, file);
  close(file);
  if (!mapped) return tl::unexpected(mapped.error());
  impl->page().size = size;
  impl->page().magic = kMagic;
  return std::unique_ptr<Board>(new Board(std::move(impl)));
}

Result<std::unique_ptr<Board>> Board::join(const std::string& path, int rank) {
  auto board = open(path);
  if (!board) return board;
  Impl& impl = *(*board)->impl_;
  if (rank < 0 || rank >= impl.page().size) {
    return fail(ErrorKind::kFailed, fmt::format("{} is not the board of a world with a rank {}", path, rank));
  }
  impl.rank = rank;
  impl.record(rank).pid.store(static_cast<int>(getpid()));
  impl.record(rank).started.store(1, std::memory_order_release);
  return board;
}

Result<std::unique_ptr<Board>> Board::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return fail(ErrorKind::kFailed, fmt::format("{} cannot be opened: {}", path, system_reason()));
  auto impl = std::make_unique<Impl>();
  struct stat facts {};
  fstat(file, &facts);
  impl->bytes = static_cast<std::size_t>(facts.st_size);
  auto mapped = impl->bytes >= sizeof(Page) ? impl->map(path, file)
                                            : Result<void>(fail(ErrorKind::kFailed, path + " is not a board"));
  close(file);
  if (!mapped) return tl::unexpected(mapped.error());
  if (impl->page().magic != kMagic || impl->bytes != page_bytes(static_cast<int>(impl->page().size))) {
    return fail(ErrorKind::kFailed, path + " is not a board");
  }
  return std::unique_ptr<Board>(new Board(std::move(impl)));
}

int Board::size() const { return static_cast<int>(impl_->page().size); }

RankStatus Board::status(int rank) const {
  const RankRecord& record = impl_->record(rank);
  RankStatus status;
  status.started = record.started.load(std::memory_order_acquire) != 0;
  status.pid = record.pid.load();
  status.finished = record.finished.load(std::memory_order_acquire) != 0;
  if (record.failed.load(std::memory_order_acquire) == 2) status.error = record.error;
  for (const ChannelRecord& channel : record.channels) {
    Signature signature;
    const std::uint64_t version = channel.version.load(std::memory_order_acquire);
    std::memcpy(static_cast<void*>(&signature), &channel.signature, sizeof signature);
    if (version == 0 || version % 2 != 0 || channel.version.load(std::memory_order_acquire) != version) continue;
    const bool inside = channel.inside.load(std::memory_order_acquire) != 0;
    if (status.doing.empty() || (inside && !status.inside)) status.doing = describe(signature);
    status.inside = status.inside || inside;
  }
  return status;
}

Observer& Board::observer() { return *impl_; }
void Board::finished() { impl_->record(impl_->rank).finished.store(1, std::memory_order_release); }
void Board::failed(const base::Error& error) { impl_->failed(error); }

}  // namespace attnbench::fsdp
