// Where every parameter of a model lives: one flat buffer per layer, cut into equal shards, one per rank. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/base/error.hpp"
#include "fsdp/layer.hpp"

namespace attnbench::fsdp {

/// Offsets are multiples of this many elements: 256 bytes in the narrowest element type, 512 in fp32.
inline constexpr std::int64_t kAlignElements = 128;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// One parameter in the flat buffer of its unit; a tied one in that of the unit that owns its values.
struct Placement {
  ParamSpec spec;
  std::int64_t elements = 0;
  std::int64_t offset = 0;  // in elements, from the start of the owner's flat buffer
  bool tied = false;
  bool shared = false;  // another parameter of the same layer has the same values: gradients are added from zero
  int owner = 0;        // unit that holds the values, and which of its parameters has them
  int owner_param = 0;
};

/// A run of the flat buffer that is gathered, reduced and stored as one: all its elements are trainable, or all are
/// frozen. Rank r owns [offset + r * part, offset + (r + 1) * part).
struct Segment {
  std::int64_t offset = 0;  // in the flat buffer
  std::int64_t used = 0;    // up to the end of the last parameter
  std::int64_t padded = 0;  // a multiple of world * kAlignElements; the padding holds 0 for ever
  std::int64_t part = 0;    // padded / world: what one rank gives to a gather and takes from a reduction
  std::int64_t kept = 0;    // what one rank keeps: part, or all of it where weights are replicated
  std::int64_t store = 0;   // where, in what a rank keeps of all trainable (or all frozen) segments
};

/// The flat buffer of one layer: its trainable parameters, then its frozen ones.
struct Unit {
  std::string name;
  std::vector<Placement> params;  // in the order of Layer::params
  Segment trainable, frozen;
  bool tied_to = false;  // a parameter of another layer is tied to one of these

  std::int64_t padded() const { return trainable.padded + frozen.padded; }
};

/// What one rank keeps of all units.
struct Layout {
  int world = 1;
  bool replicated = false;  // every rank keeps everything
  std::vector<Unit> units;  // one per layer; a layer without storage has empty segments
  std::int64_t trainable_kept = 0;
  std::int64_t frozen_kept = 0;
  std::int64_t parameters = 0;  // elements of the model, each value once, without padding
};

/// Places the parameters of every layer for `world` ranks, which share them, or each keep all (`replicated`).
///
/// Errors  kUsage: world below 1; a name that appears twice; tied_to names no earlier parameter, or one of another
///         shape, or a tied one; a trainable parameter tied to a frozen one; a negative extent
base::Result<Layout> make_layout(const Model& model, int world, bool replicated);

/// The part of a parameter that one rank keeps: elements [begin, end) of it lie at `store` in the rank's trainable (or
/// frozen) store. Empty when begin == end.
struct KeptRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t store = 0;
};

KeptRange kept_range(const Layout& layout, const Placement& param, int rank);

/// Whether the values of the parameter are in the trainable segment of their owner.
bool in_trainable(const Layout& layout, const Placement& param);

}  // namespace attnbench::fsdp
