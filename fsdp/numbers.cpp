// An all-gather of doubles on the reduce channel.
#include "fsdp/numbers.hpp"

#include <algorithm>

namespace attnbench::fsdp {

base::Result<std::vector<double>> share_numbers(Communicator& communicator, std::span<const double> mine) {
  const WorldInfo& world = communicator.world();
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world.size));
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * world.rank);
  Collective collective;
  collective.kind = CollectiveKind::kExchange;
  collective.label = "measurements";
  collective.data = all.data();
  collective.part_bytes = mine.size_bytes();
  collective.host = true;
  auto ok = communicator.wait(communicator.post(Channel::kReduce, collective));
  if (!ok) return tl::unexpected(ok.error());
  return all;
}

}  // namespace attnbench::fsdp
