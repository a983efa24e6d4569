// A page that the ranks of one machine and the program that started them share: who is where. When a rank dies, the
// others cannot say what it was doing; the page can.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/base/error.hpp"
#include "fsdp/transport.hpp"

namespace attnbench::fsdp {

/// What the page says of one rank.
struct RankStatus {
  int pid = 0;
  bool started = false;
  bool finished = false;  // it left in good order
  std::string error;      // why it ended the run; empty: it did not
  std::string doing;      // the collective that it is in, or was in last; empty: none yet
  bool inside = false;    // in that collective now
};

/// Kept in a file that is mapped by everyone.
class Board {
 public:
  /// Makes the file for a world.   Errors  kFailed: the file cannot be made
  static base::Result<std::unique_ptr<Board>> create(const std::string& path, int size);
  /// Opens it to look at.   Errors  as of join
  static base::Result<std::unique_ptr<Board>> open(const std::string& path);
  /// Opens it as rank `rank` and says that the rank has started.   Errors  kFailed: it cannot be opened, or is another
  static base::Result<std::unique_ptr<Board>> join(const std::string& path, int rank);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int size() const;
  RankStatus status(int rank) const;
  /// For the rank that joined: what it does from now on is on the page.
  Observer& observer();
  void finished();
  void failed(const base::Error& error);

 private:
  struct Impl;
  explicit Board(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnbench::fsdp
