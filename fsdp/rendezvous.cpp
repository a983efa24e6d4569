// One short TCP connection for each rank; each ends with an acknowledgement, so that nobody leaves early.
#include "fsdp/rendezvous.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// Every read, write and accept gives up after this.
void limit(const Socket& socket, double seconds) {
  timeval patience{};
  patience.tv_sec = static_cast<time_t>(seconds);
  patience.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(patience.tv_sec)) * 1e6);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

bool send_all(const Socket& socket, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

double seconds_until(Clock::time_point end) {
  return std::max(1e-3, std::chrono::duration<double>(end - Clock::now()).count());
}

Result<void> serve(const MeetingPoint& point, int size, std::span<const char> bytes, Clock::time_point end) {
  const Socket listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);  // both families
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(point.port));
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), size) != 0) {
    return fail(ErrorKind::kFailed,
                fmt::format("rank 0 cannot listen on port {}: {}; set MASTER_PORT to a free one, less one", point.port,
                            std::strerror(errno)));
  }
  for (int served = 1; served < size; ++served) {
    limit(listener, seconds_until(end));
    const Socket peer(accept(listener.get(), nullptr, nullptr));
    char acknowledged = 0;
    if (peer) limit(peer, seconds_until(end));
    if (peer && send_all(peer, bytes) && receive_all(peer, {&acknowledged, 1})) continue;
    return fail(ErrorKind::kFailed, fmt::format("rank 0: {} of {} other ranks have come within {:.1f} s", served - 1,
                                                size - 1, point.deadline_s));
  }
  return {};
}

/// One attempt; false where rank 0 does not listen (yet).
bool fetch(const MeetingPoint& point, std::span<char> bytes, Clock::time_point end) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(point.host.c_str(), std::to_string(point.port).c_str(), &hints, &found) != 0) return false;
  bool done = false;
  for (const addrinfo* each = found; each != nullptr && !done; each = each->ai_next) {
    const Socket socket_to(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_to) continue;
    limit(socket_to, seconds_until(end));
    done = connect(socket_to.get(), each->ai_addr, each->ai_addrlen) == 0 && receive_all(socket_to, bytes) &&
           send_all(socket_to, std::span<const char>("k", 1));
  }
  freeaddrinfo(found);
  return done;
}

}  // namespace

Result<void> hand_out(const MeetingPoint& point, int rank, int size, std::span<char> bytes) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(point.deadline_s));
  if (rank == 0) return serve(point, size, bytes, end);
  while (!fetch(point, bytes, end)) {
    if (Clock::now() > end) {
      return fail(ErrorKind::kFailed, fmt::format("rank {}: rank 0 does not answer at {}:{} within {:.1f} s", rank,
                                                  point.host, point.port, point.deadline_s));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

}  // namespace attnbench::fsdp
