// Signatures of collectives, and the sentences about ranks whose signature is another one or does not come.
#include "fsdp/transport.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/base/rng.hpp"
#include "bench/base/units.hpp"

namespace attnbench::fsdp {
namespace {

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = base::mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

Signature next_signature(const Signature& last, Channel channel, const Collective& collective, int world) {
  Signature next;
  next.number = last.number + 1;
  next.bytes = collective.part_bytes * static_cast<std::uint64_t>(world);
  next.channel = channel;
  next.kind = collective.kind;
  const std::size_t length = std::min(collective.label.size(), sizeof next.label - 1);
  std::copy_n(collective.label.data(), length, next.label);
  const std::uint64_t own = hash_text(collective.label) ^ (static_cast<std::uint64_t>(collective.kind) << 56);
  next.chain = base::mix64(base::mix64(last.chain ^ own) ^ next.bytes);
  return next;
}

std::string describe(const Signature& signature) {
  return fmt::format("{} of {} ({}, number {} of the {} channel)", to_string(signature.kind), signature.label,
                     base::format_bytes(static_cast<double>(signature.bytes)), signature.number,
                     to_string(signature.channel));
}

base::Result<void> check_same(int rank, const Signature& mine, int other_rank, const Signature& theirs) {
  if (mine.number == theirs.number && mine.chain == theirs.chain) return {};
  return base::fail(base::ErrorKind::kFailed,
                    fmt::format("ranks {} and {} do not run the same program: rank {} is at {}, rank {} at {}; give "
                                "every rank the same model and options",
                                std::min(rank, other_rank), std::max(rank, other_rank), rank, describe(mine),
                                other_rank, describe(theirs)));
}

base::Error missing(int rank, const Signature& mine, int missing_rank, const Signature* last_seen, double deadline_s) {
  const std::string seen = last_seen == nullptr || last_seen->number == 0
                               ? std::string("it has joined none on this channel")
                               : "it was last seen in " + describe(*last_seen);
  return {base::ErrorKind::kFailed,
          fmt::format("rank {} did not come to the {} within {}, as rank {} did; {}. It is dead, stuck or slower than "
                      "the deadline (--deadline)",
                      missing_rank, describe(mine), base::format_time_us(deadline_s * 1e6), rank, seen)};
}

}  // namespace attnbench::fsdp
