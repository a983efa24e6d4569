#include "fsdp/communicator.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "bench/base/rng.hpp"
#include "fsdp/reduce.hpp"
#include "toy.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using tests::expect_world;
using tests::run_world;
using tests::WorldOptions;

float value_of(int rank, std::int64_t i) {
  return base::Rng(static_cast<std::uint64_t>(rank) + 1, 9).normal(static_cast<std::uint64_t>(i));
}

Result<void> gather_and_check(int rank, Communicator& communicator, std::int64_t part) {
  const int size = communicator.world().size;
  std::vector<float> data(static_cast<std::size_t>(part * size), -1.0f);
  for (std::int64_t i = 0; i < part; ++i) data[static_cast<std::size_t>(rank * part + i)] = value_of(rank, i);
  Collective collective;
  collective.label = "gathered";
  collective.data = data.data();
  collective.part_bytes = static_cast<std::size_t>(part) * sizeof(float);
  auto ok = communicator.wait(communicator.post(Channel::kGather, collective));
  for (int q = 0; q < size && ok; ++q) {
    for (std::int64_t i = 0; i < part; ++i) EXPECT_EQ(data[static_cast<std::size_t>(q * part + i)], value_of(q, i));
  }
  return ok;
}

TEST(LocalCommunicator, GathersEveryPartAtEveryWorldSize) {
  for (const int size : {1, 2, 3, 4, 5, 7, 8}) {
    for (const std::int64_t part : {0, 1, 3, 1000}) {
      expect_world(size, {}, [&](int rank, Communicator& c) { return gather_and_check(rank, c, part); });
    }
  }
}

TEST(LocalCommunicator, OrderedReductionHasTheBitsOfOneRankThatAddsInTurn) {
  constexpr std::int64_t kPart = 5000;
  for (const int size : {1, 2, 3, 4, 8}) {
    for (const bool accumulate : {false, true}) {
      expect_world(size, {}, [&](int rank, Communicator& communicator) -> Result<void> {
        std::vector<float> data, out(kPart, 0.25f);
        for (std::int64_t i = 0; i < kPart * size; ++i) data.push_back(value_of(rank, i));
        Collective collective;
        collective.kind = CollectiveKind::kReduceScatter;
        collective.data = data.data();
        collective.part_bytes = kPart * sizeof(float);
        collective.out = out.data();
        collective.accumulate = accumulate;
        auto ok = communicator.wait(communicator.post(Channel::kReduce, collective));
        for (std::int64_t i = 0; i < kPart && ok; ++i) {
          float sum = accumulate ? 0.25f : value_of(0, rank * kPart + i);
          for (int q = accumulate ? 0 : 1; q < size; ++q) sum += value_of(q, rank * kPart + i);
          EXPECT_EQ(out[static_cast<std::size_t>(i)], sum);
        }
        return ok;
      });
    }
  }
}

TEST(LocalCommunicator, AllReduceInPlaceGivesEveryRankTheSameBits) {
  constexpr std::int64_t kPart = 777;
  for (const int size : {2, 3, 5}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
    expect_world(size, {}, [&](int rank, Communicator& communicator) -> Result<void> {
      std::vector<float> data;
      for (std::int64_t i = 0; i < kPart * size; ++i) data.push_back(value_of(rank, i));
      Collective collective;
      collective.kind = CollectiveKind::kAllReduce;
      collective.data = collective.out = data.data();
      collective.part_bytes = kPart * sizeof(float);
      auto ok = communicator.wait(communicator.post(Channel::kReduce, collective));
      results[static_cast<std::size_t>(rank)] = data;
      return ok;
    });
    for (std::int64_t i = 0; i < kPart * size; ++i) {
      float sum = value_of(0, i);
      for (int q = 1; q < size; ++q) sum += value_of(q, i);
      for (const auto& result : results) ASSERT_EQ(result[static_cast<std::size_t>(i)], sum);
    }
  }
}

TEST(LocalCommunicator, HalvesTravelAndSumsAreInFp32) {
  // 8 times 60000 overflows fp16; the sum is made in fp32.
  constexpr int kSize = 8;
  expect_world(kSize, {}, [&](int, Communicator& communicator) -> Result<void> {
    std::vector<kernels::Fp16> data(kSize, kernels::to_fp16(60000.0f));
    float out = 0;
    Collective collective;
    collective.kind = CollectiveKind::kReduceScatter;
    collective.data = data.data();
    collective.part_bytes = sizeof(kernels::Fp16);
    collective.wire = Dtype::kFp16;
    collective.out = &out;
    auto ok = communicator.wait(communicator.post(Channel::kReduce, collective));
    EXPECT_EQ(out, 480000.0f);
    return ok;
  });
}

TEST(LocalCommunicator, ManyCollectivesOnBothChannelsStayInOrder) {
  expect_world(3, {}, [&](int rank, Communicator& communicator) -> Result<void> {
    constexpr int kCount = 600;  // more than a queue holds
    std::vector<std::array<std::int32_t, 3>> buffers(kCount);
    std::vector<Ticket> tickets;
    for (int i = 0; i < kCount; ++i) {
      buffers[static_cast<std::size_t>(i)][static_cast<std::size_t>(rank)] = 1000 * rank + i;
      Collective collective;
      collective.data = buffers[static_cast<std::size_t>(i)].data();
      collective.part_bytes = sizeof(std::int32_t);
      tickets.push_back(communicator.post(i % 2 == 0 ? Channel::kGather : Channel::kReduce, collective));
    }
    for (const Ticket ticket : tickets) {
      if (auto ok = communicator.wait(ticket); !ok) return ok;
    }
    for (int i = 0; i < kCount; ++i) {
      for (int q = 0; q < 3; ++q) {
        EXPECT_EQ(buffers[static_cast<std::size_t>(i)][static_cast<std::size_t>(q)], 1000 * q + i);
      }
    }
    EXPECT_EQ(communicator.totals()[0].count, kCount);
    return {};
  });
}

// pytorch#64803: one channel must not wait behind the other.
TEST(LocalCommunicator, ASlowReductionDoesNotHoldUpAGather) {
  WorldOptions options;
  options.link = LinkModel{0, 1e6};  // 1 MB/s: 200 kB take 100 ms, 8 bytes nothing
  expect_world(2, options, [&](int, Communicator& communicator) -> Result<void> {
    std::vector<float> large(50000), out(25000);
    std::array<float, 2> small{};
    Collective slow;
    slow.kind = CollectiveKind::kReduceScatter;
    slow.data = large.data();
    slow.part_bytes = 100000;
    slow.out = out.data();
    Collective quick;
    quick.data = small.data();
    quick.part_bytes = sizeof(float);
    const auto begin = Clock::now();
    const Ticket reduction = communicator.post(Channel::kReduce, slow);
    auto ok = communicator.wait(communicator.post(Channel::kGather, quick));
    const auto gathered = Clock::now();
    if (ok) ok = communicator.wait(reduction);
    EXPECT_LT(gathered - begin, std::chrono::milliseconds(80));
    EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(99));
    return ok;
  });
}

TEST(EmulatedLink, TakesLatencyPerPeerAndBytesOverBandwidth) {
  EXPECT_DOUBLE_EQ(link_time_s({1e-3, 1e9}, CollectiveKind::kAllGather, 4'000'000, 4), 3e-3 + 3e-3);
  EXPECT_DOUBLE_EQ(link_time_s({1e-3, 1e9}, CollectiveKind::kAllReduce, 4'000'000, 4), 2 * (3e-3 + 3e-3));
  EXPECT_DOUBLE_EQ(link_time_s({1e-3, 0}, CollectiveKind::kReduceScatter, 4'000'000, 2), 1e-3);
  EXPECT_DOUBLE_EQ(link_time_s({1e-3, 1e9}, CollectiveKind::kAllGather, 4'000'000, 1), 0);
}

/// Every rank of a run that must fail: the messages.
std::vector<std::string> failures(int size, const WorldOptions& options,
                                  const std::function<Result<void>(int, Communicator&)>& body) {
  std::vector<std::string> messages;
  for (const auto& result : run_world(size, options, body)) {
    EXPECT_FALSE(result);
    messages.push_back(result ? "" : result.error().message);
  }
  return messages;
}

Result<void> gather_once(Communicator& communicator, std::string_view label, std::size_t part = 4) {
  std::vector<std::byte> data(part * static_cast<std::size_t>(communicator.world().size));
  Collective collective;
  collective.label = label;
  collective.data = data.data();
  collective.part_bytes = part;
  return communicator.wait(communicator.post(Channel::kGather, collective));
}

TEST(Deadline, ARankThatStaysAwayIsNamedOnAllRanksWithTheCollective) {
  WorldOptions options;
  options.transport.deadline_s = 0.3;
  const auto begin = Clock::now();
  const auto messages = failures(3, options, [&](int rank, Communicator& communicator) -> Result<void> {
    if (auto ok = gather_once(communicator, "layers.0"); !ok) return ok;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    return gather_once(communicator, "layers.1");
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 1 did not come to the all-gather of layers.1"), std::string::npos) << message;
    EXPECT_NE(message.find("last seen in all-gather of layers.0"), std::string::npos) << message;
  }
}

// pytorch#158719, DeepSpeed#7044: a difference between ranks is an error that names the first collective that differs.
TEST(Deadline, RanksThatRunDifferentProgramsAreToldWhereTheyPart) {
  const auto messages = failures(2, {}, [&](int rank, Communicator& communicator) -> Result<void> {
    if (auto ok = gather_once(communicator, "layers.0"); !ok) return ok;
    return gather_once(communicator, rank == 0 ? "layers.1" : "layers.2");
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("do not run the same program"), std::string::npos) << message;
    EXPECT_NE(message.find("layers.1"), std::string::npos) << message;
    EXPECT_NE(message.find("layers.2"), std::string::npos) << message;
  }
  const auto sizes = failures(2, {}, [&](int rank, Communicator& communicator) {
    return gather_once(communicator, "layers.0", rank == 0 ? 4 : 8);
  });
  for (const std::string& message : sizes) EXPECT_NE(message.find("(16 B"), std::string::npos) << message;
}

// DeepSpeed#860: ranks that call forward a different number of times hang; here the deadline names the one behind.
TEST(Deadline, ARankThatIsDoneEarlierEndsTheOthers) {
  WorldOptions options;
  options.transport.deadline_s = 0.2;
  const auto results = run_world(2, options, [&](int rank, Communicator& communicator) -> Result<void> {
    if (auto ok = gather_once(communicator, "layers.0"); !ok || rank == 1) return ok;
    return gather_once(communicator, "layers.1");
  });
  EXPECT_TRUE(results[1]);
  ASSERT_FALSE(results[0]);
  EXPECT_NE(results[0].error().message.find("rank 1 did not come"), std::string::npos) << results[0].error().message;
}

TEST(Deadline, AbortOnOneRankEndsAll) {
  const auto messages = failures(3, {}, [&](int rank, Communicator& communicator) -> Result<void> {
    if (rank == 2) {
      communicator.abort({base::ErrorKind::kFailed, "rank 2 ran out of luck"});
      return communicator.wait({Channel::kGather, 1});
    }
    return gather_once(communicator, "layers.0");
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "rank 2 ran out of luck");
}

TEST(Deadline, FailuresUnderLoadLeaveNoMemoryBehindThatOthersRead) {
  // Ranks fail at random points while others copy; sanitizers look on.
  for (int round = 0; round < 30; ++round) {
    WorldOptions options;
    options.transport.deadline_s = 0.02;
    run_world(4, options, [&](int rank, Communicator& communicator) -> Result<void> {
      for (int i = 0; i < 20; ++i) {
        if (rank == round % 4 && i == round % 20)
          std::this_thread::sleep_for(std::chrono::milliseconds(19 + round % 4));
        if (auto ok = gather_once(communicator, "a", 20000); !ok) return ok;
      }
      return {};
    });
  }
}

TEST(Reduce, AddsInTheOrderOfItsParts) {
  const std::vector<float> big{1e8f}, small{1.0f}, minus{-1e8f};
  float out = 0;
  const std::array<const void*, 3> one{big.data(), small.data(), minus.data()};
  sum_in_order(&out, false, one, Dtype::kFp32, 1);
  EXPECT_EQ(out, 0.0f);  // the 1 is lost beside 1e8
  const std::array<const void*, 3> other{big.data(), minus.data(), small.data()};
  sum_in_order(&out, false, other, Dtype::kFp32, 1);
  EXPECT_EQ(out, 1.0f);
  out = 3.0f;
  sum_in_order(&out, true, other, Dtype::kFp32, 1);
  EXPECT_EQ(out, 1.0f);  // 3 + 1e8 is 1e8, minus 1e8 is 0, plus 1
}

}  // namespace
}  // namespace attnbench::fsdp
