// How bytes get from rank to rank, as blocking calls: what a threaded communicator runs on its own threads.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "bench/base/error.hpp"
#include "fsdp/communicator.hpp"

namespace attnbench::fsdp {

/// What a collective is, as ranks tell each other: equal on all ranks, or they do not run the same program.
struct Signature {
  std::uint64_t number = 0;  // of the collective on its channel, from 1
  std::uint64_t chain = 0;   // hash of this collective and all before it on the channel
  std::uint64_t bytes = 0;   // of the full buffer
  Channel channel = Channel::kGather;
  CollectiveKind kind = CollectiveKind::kAllGather;
  char label[46] = {};  // cut short where longer
};

/// The signature that follows `last` on its channel.
Signature next_signature(const Signature& last, Channel channel, const Collective& collective, int world);

/// "reduce-scatter of layers.3 (1.00 MiB, number 17 of the reduce channel)".
std::string describe(const Signature& signature);

/// Errors  kFailed: the two differ; the sentence names both ranks and what each was about to do
base::Result<void> check_same(int rank, const Signature& mine, int other_rank, const Signature& theirs);

/// The error of a rank that did not come: it names the rank, the collective and what the rank was last seen in.
base::Error missing(int rank, const Signature& mine, int missing_rank, const Signature* last_seen, double deadline_s);

/// A blocking collective; `scratch` holds scratch_parts parts.
struct Call {
  const Collective* collective = nullptr;
  const Signature* signature = nullptr;
  void* scratch = nullptr;
};

/// One rank's end. Calls of one channel come from one thread; the two channels are called at the same time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const WorldInfo& world() const = 0;
  virtual std::int64_t scratch_parts() const = 0;
  /// Does the collective; returns when it was that all ranks had joined it. Fails once the deadline has passed.
  virtual base::Result<Clock::time_point> run(Channel channel, const Call& call) = 0;
  /// Makes calls on all ranks fail, now and later.
  virtual void fail(const base::Error& error) noexcept = 0;
};

/// Told of what happens on the channels, from their threads.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void began(const Signature& signature) = 0;
  virtual void ended(const CollectiveSpan& span) = 0;
  virtual void failed(const base::Error& error) = 0;
};

/// How a transport behaves, whatever it is made of.
struct TransportOptions {
  double deadline_s = 60;  // a collective that takes longer ends the run
  ReductionOrder order = ReductionOrder::kOrdered;
  Observer* observer = nullptr;
};

/// One communicator from a transport: two threads and two queues.
std::unique_ptr<Communicator> make_threaded(std::unique_ptr<Transport> transport, const TransportOptions& options);

}  // namespace attnbench::fsdp
