// The random tensors that kernels are checked and timed on, in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device/thread_pool.hpp"
#include "kernels/oracle/oracle.hpp"
#include "kernels/problem.hpp"

namespace attnbench::measure {

/// A dense [B, H, S, D] tensor that owns its bytes.
struct HostTensor {
  std::vector<unsigned char> bytes;
  kernels::Tensor view;  // into bytes; a move keeps it right, copies are not made

  HostTensor() = default;
  HostTensor(const std::array<std::int64_t, 4>& extent, kernels::Dtype dtype);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;
  HostTensor(const HostTensor&) = delete;
  HostTensor& operator=(const HostTensor&) = delete;
};

/// What a launch reads. dout is empty when no backward follows.
struct Inputs {
  HostTensor q, k, v, dout;

  kernels::OracleInputs oracle() const { return {q.view, k.view, v.view, dout.view}; }
};

/// Shapes of the query side (q, o, dout, dq) and of the key side (k, v, dk, dv).
std::array<std::int64_t, 4> query_extent(const kernels::Problem& problem);
std::array<std::int64_t, 4> key_extent(const kernels::Problem& problem);

/// N(0, 1) rounded to the problem's dtype. Equal seeds give equal tensors, whatever the pass, the dtype (before
/// rounding) and the number of threads.
Inputs make_inputs(const kernels::Problem& problem, kernels::Pass pass, std::uint64_t seed, kernels::ThreadPool& pool);

/// Rounds `value` to the tensor's dtype and stores it as element `index` of its dense storage.
void store_element(HostTensor& tensor, std::int64_t index, float value);

/// Element `index` of dense storage of the dtype.
float load_element(const void* data, kernels::Dtype dtype, std::int64_t index);

}  // namespace attnbench::measure
