// Products with one weight, or with several that share their input.
#include <algorithm>
#include <array>

#include "fsdp/tools.hpp"

namespace attnbench::fsdp {
namespace {

using base::Result;
using kernels::GemmMatrix;
using kernels::GemmSpec;
using kernels::row_major;
using kernels::transpose;

enum Which : std::size_t { kForwardAll, kForwardOne, kInputAll, kInputOne, kWeightAll, kWeightOne, kCount };

/// The products of a shape: with all weights as one matrix, and with one of them.
std::array<GemmSpec, kCount> specs_of(const LinearShape& s) {
  const std::int64_t width = s.parts * s.out;
  const GemmMatrix x = row_major(s.rows, s.in, s.in, s.compute);
  const GemmMatrix y_all = row_major(s.rows, width, width, s.compute);
  const GemmMatrix y_one = row_major(s.rows, s.out, width, s.compute);
  const GemmMatrix w_all = row_major(width, s.in, s.in, s.compute);
  const GemmMatrix w_one = row_major(s.out, s.in, s.in, s.compute);
  const GemmMatrix dw_all = row_major(width, s.in, s.in, s.gradient);
  const GemmMatrix dw_one = row_major(s.out, s.in, s.in, s.gradient);
  return {GemmSpec{x, transpose(w_all), y_all},
          GemmSpec{x, transpose(w_one), y_one},
          GemmSpec{y_all, w_all, x},
          GemmSpec{y_one, w_one, x},
          GemmSpec{transpose(y_all), x, dw_all},
          GemmSpec{transpose(y_one), x, dw_one}};
}

/// True when the pointers are neighbours: `bytes` apart.
template <typename Pointer>
bool neighbours(std::span<const Pointer> items, std::size_t bytes, const void* (*address)(const Pointer&)) {
  for (std::size_t i = 1; i < items.size(); ++i) {
    if (static_cast<const std::byte*>(address(items[i - 1])) + bytes != address(items[i])) return false;
  }
  return true;
}

}  // namespace

Result<std::size_t> Linear::workspace_bytes(const LinearShape& shape, Device& device) {
  const auto tools = Tools::of(device);
  if (!tools) return tl::unexpected(tools.error());
  std::size_t most = 0;
  for (const GemmSpec& spec : specs_of(shape)) {
    const auto bytes = tools->gemm->workspace_bytes(spec, device);
    if (!bytes) return tl::unexpected(bytes.error());
    most = std::max(most, *bytes);
  }
  return most;
}

Result<Linear> Linear::make(const LinearShape& shape, void* workspace, Device& device) {
  const auto tools = Tools::of(device);
  if (!tools) return tl::unexpected(tools.error());
  Linear made;
  made.shape_ = shape;
  const auto specs = specs_of(shape);
  Product* const products[kCount] = {&made.forward_all_, &made.forward_one_, &made.input_all_,
                                     &made.input_one_,   &made.weight_all_,  &made.weight_one_};
  for (std::size_t i = 0; i < kCount; ++i) {
    if (shape.parts == 1 && i % 2 == 1) continue;
    auto product = tools->gemm->prepare(specs[i], workspace, device);
    if (!product) return tl::unexpected(product.error());
    *products[i] = std::move(*product);
  }
  return made;
}

const void* Linear::part(const void* rows, std::int64_t index) const {
  return static_cast<const std::byte*>(rows) +
         static_cast<std::size_t>(index * shape_.out) * kernels::size_of(shape_.compute);
}

void* Linear::part(void* rows, std::int64_t index) const {
  return static_cast<std::byte*>(rows) +
         static_cast<std::size_t>(index * shape_.out) * kernels::size_of(shape_.compute);
}

Result<void> Linear::forward(std::span<const void* const> weights, const void* x, const void* addend, void* y) {
  const std::size_t bytes = static_cast<std::size_t>(shape_.out * shape_.in) * kernels::size_of(shape_.compute);
  if (neighbours<const void*>(weights, bytes, [](const void* const& w) { return w; })) {
    return forward_all_->run(x, weights[0], addend, y);
  }
  for (std::int64_t i = 0; i < shape_.parts; ++i) {
    const void* const more = addend == nullptr ? nullptr : part(addend, i);
    auto ok = forward_one_->run(x, weights[static_cast<std::size_t>(i)], more, part(y, i));
    if (!ok) return ok;
  }
  return {};
}

Result<void> Linear::input_gradient(std::span<const void* const> weights, const void* dy, void* dx) {
  const std::size_t bytes = static_cast<std::size_t>(shape_.out * shape_.in) * kernels::size_of(shape_.compute);
  if (neighbours<const void*>(weights, bytes, [](const void* const& w) { return w; })) {
    return input_all_->run(dy, weights[0], nullptr, dx);
  }
  for (std::int64_t i = 0; i < shape_.parts; ++i) {
    auto ok = input_one_->run(part(dy, i), weights[static_cast<std::size_t>(i)], i == 0 ? nullptr : dx, dx);
    if (!ok) return ok;
  }
  return {};
}

Result<void> Linear::weight_gradient(std::span<const GradTarget> grads, const void* dy, const void* x) {
  const std::size_t bytes = static_cast<std::size_t>(shape_.out * shape_.in) * kernels::size_of(shape_.gradient);
  bool together = grads[0].data != nullptr &&
                  neighbours<GradTarget>(grads, bytes, [](const GradTarget& g) -> const void* { return g.data; });
  for (const GradTarget& grad : grads) together = together && grad.accumulate == grads[0].accumulate;
  if (together) {
    return weight_all_->run(dy, x, grads[0].accumulate ? grads[0].data : nullptr, grads[0].data);
  }
  for (std::int64_t i = 0; i < shape_.parts; ++i) {
    const GradTarget& grad = grads[static_cast<std::size_t>(i)];
    if (grad.data == nullptr) continue;
    Product& product = shape_.parts == 1 ? weight_all_ : weight_one_;
    auto ok = product->run(part(dy, i), x, grad.accumulate ? grad.data : nullptr, grad.data);
    if (!ok) return ok;
  }
  return {};
}

}  // namespace attnbench::fsdp
