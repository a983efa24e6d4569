// Lays parameters out one after the other, trainable ones first, and pads each run to the world size.
#include "fsdp/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;

using Owners = std::map<std::string, std::pair<int, int>, std::less<>>;  // name: unit, index in it

Result<Placement> checked(const ParamSpec& spec, const Owners& known) {
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0) return fail(ErrorKind::kUsage, fmt::format("parameter {} has a negative extent", spec.name));
  }
  if (known.count(spec.name) != 0) {
    return fail(ErrorKind::kUsage, fmt::format("two parameters are named {}; names are unique in a model", spec.name));
  }
  Placement place;
  place.spec = spec;
  place.elements = spec.elements();
  place.tied = !spec.tied_to.empty();
  return place;
}

/// Points a tied parameter at the values of its owner.
Result<void> tie_to_owner(Layout& layout, const ParamSpec& spec, const Owners& known, int unit, Placement& place) {
  const auto found = known.find(spec.tied_to);
  if (found == known.end()) {
    return fail(ErrorKind::kUsage, fmt::format("{} is tied to {}, which is no parameter before it; the owner of the "
                                               "values comes first",
                                               spec.name, spec.tied_to));
  }
  Placement& owner = layout.units[static_cast<std::size_t>(found->second.first)]
                         .params[static_cast<std::size_t>(found->second.second)];
  if (owner.tied || owner.spec.shape != spec.shape) {
    return fail(ErrorKind::kUsage,
                fmt::format("{} cannot be tied to {}: {}", spec.name, spec.tied_to,
                            owner.tied ? "that is tied itself; name the owner of the values" : "the shapes differ"));
  }
  if (owner.spec.frozen && !spec.frozen) {
    return fail(ErrorKind::kUsage,
                fmt::format("{} is tied to {}, which is frozen: freeze both, or neither", spec.name, spec.tied_to));
  }
  place.owner = found->second.first;
  place.owner_param = found->second.second;
  place.offset = owner.offset;
  if (place.owner == unit) {
    place.shared = owner.shared = true;
  } else {
    layout.units[static_cast<std::size_t>(place.owner)].tied_to = true;
  }
  return {};
}

/// Gives every owned parameter of one kind its offset, and the segment its extent.
Segment place_segment(std::vector<Placement>& params, bool frozen, std::int64_t begin, const Layout& layout) {
  Segment segment;
  segment.offset = begin;
  std::int64_t end = begin;
  for (Placement& param : params) {
    if (param.tied || param.spec.frozen != frozen) continue;
    param.offset = round_up(end, kAlignElements);
    end = param.offset + param.elements;
  }
  segment.used = end - begin;
  segment.padded = round_up(segment.used, layout.world * kAlignElements);
  segment.part = segment.padded / layout.world;
  segment.kept = layout.replicated ? segment.padded : segment.part;
  return segment;
}

Result<void> add_unit(Layout& layout, const Layer& layer, Owners& known) {
  const int index = static_cast<int>(layout.units.size());
  layout.units.emplace_back();
  Unit& unit = layout.units.back();
  unit.name = layer.name();
  for (const ParamSpec& spec : layer.params()) {
    auto place = checked(spec, known);
    if (!place) return tl::unexpected(place.error());
    place->owner = index;
    place->owner_param = static_cast<int>(unit.params.size());
    unit.params.push_back(std::move(*place));
    known.emplace(spec.name, std::pair(index, static_cast<int>(unit.params.size()) - 1));
  }
  unit.trainable = place_segment(unit.params, false, 0, layout);
  unit.frozen = place_segment(unit.params, true, unit.trainable.padded, layout);
  for (std::size_t i = 0; i < unit.params.size(); ++i) {
    if (!unit.params[i].tied) continue;
    if (auto ok = tie_to_owner(layout, layer.params()[i], known, index, unit.params[i]); !ok) return ok;
  }
  return {};
}

}  // namespace

Result<Layout> make_layout(const Model& model, int world, bool replicated) {
  if (world < 1) return fail(ErrorKind::kUsage, fmt::format("a world of {} ranks; 1 is the least", world));
  Layout layout;
  layout.world = world;
  layout.replicated = replicated;
  layout.units.reserve(model.layers.size());
  Owners known;
  for (const auto& layer : model.layers) {
    if (auto ok = add_unit(layout, *layer, known); !ok) return tl::unexpected(ok.error());
  }
  for (Unit& unit : layout.units) {
    unit.trainable.store = layout.trainable_kept;
    unit.frozen.store = layout.frozen_kept;
    layout.trainable_kept += unit.trainable.kept;
    layout.frozen_kept += unit.frozen.kept;
    for (const Placement& param : unit.params) layout.parameters += param.tied ? 0 : param.elements;
  }
  return layout;
}

bool in_trainable(const Layout& layout, const Placement& param) {
  return param.offset < layout.units[static_cast<std::size_t>(param.owner)].frozen.offset ||
         (param.elements == 0 && !param.spec.frozen);
}

KeptRange kept_range(const Layout& layout, const Placement& param, int rank) {
  const Unit& unit = layout.units[static_cast<std::size_t>(param.owner)];
  const Segment& segment = in_trainable(layout, param) ? unit.trainable : unit.frozen;
  const std::int64_t kept_begin = segment.offset + (layout.replicated ? 0 : rank * segment.part);
  const std::int64_t begin = std::clamp(kept_begin - param.offset, std::int64_t{0}, param.elements);
  const std::int64_t end = std::clamp(kept_begin + segment.kept - param.offset, begin, param.elements);
  return {begin, end, segment.store + std::max<std::int64_t>(0, param.offset - kept_begin)};
}

}  // namespace attnbench::fsdp
