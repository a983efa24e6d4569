// Counter-based random numbers: element i of a stream depends on (seed, stream, i) alone, so any part of a tensor can
// be made anywhere, on any number of threads, and a row can be reproduced from its seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace attnbench::base {

/// SplitMix64 finaliser (Steele, Lea, Flood 2014): a bijection whose output passes BigCrush on a counter.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// One independent stream of random numbers.
class Rng {
 public:
  constexpr Rng(std::uint64_t seed, std::uint64_t stream) : key_(mix64(mix64(seed) ^ (stream * 0xd1342543de82ef95u))) {}

  constexpr std::uint64_t bits(std::uint64_t index) const { return mix64(key_ ^ mix64(index)); }

  /// In [0, 1), 53 bits.
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }

  /// N(0, 1) by Box-Muller; full float mantissa. Elements 2i and 2i + 1 share one pair of uniforms.
  float normal(std::uint64_t index) const {
    const std::uint64_t pair = index & ~std::uint64_t{1};
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(pair)));
    const double angle = 2.0 * std::numbers::pi * uniform(pair + 1);
    return static_cast<float>(radius * ((index & 1) != 0 ? std::sin(angle) : std::cos(angle)));
  }

 private:
  std::uint64_t key_;
};

}  // namespace attnbench::base
