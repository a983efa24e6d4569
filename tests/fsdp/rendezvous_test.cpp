#include "fsdp/rendezvous.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

namespace attnbench::fsdp {
namespace {

int some_port() { return 20000 + getpid() % 20000; }

TEST(Rendezvous, EveryRankGetsTheBytesOfRankZeroWhoeverComesFirst) {
  constexpr int kRanks = 5;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::array<char, 300>> bytes(kRanks);
    for (std::size_t i = 0; i < bytes[0].size(); ++i)
      bytes[0][i] = static_cast<char>(i + static_cast<std::size_t>(round));
    std::vector<base::Result<void>> results(kRanks);
    std::vector<std::thread> threads;
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      threads.emplace_back([&, rank] {
        const auto index = static_cast<std::size_t>(rank);
        results[index] = hand_out({"127.0.0.1", some_port(), 10}, rank, kRanks, bytes[index]);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(results[rank]) << results[rank].error().message;
      EXPECT_EQ(bytes[rank], bytes[0]);
    }
  }
}

TEST(Rendezvous, AMissingRankEndsTheOthersWithinTheDeadline) {
  std::array<char, 4> bytes{};
  const auto alone = hand_out({"127.0.0.1", some_port(), 0.3}, 0, 3, bytes);
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("0 of 2 other ranks have come within 0.3 s"), std::string::npos);
  const auto nobody = hand_out({"127.0.0.1", some_port(), 0.3}, 1, 3, bytes);
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().message.find("rank 1: rank 0 does not answer at 127.0.0.1:"), std::string::npos);
}

}  // namespace
}  // namespace attnbench::fsdp
