// Norms, rotary embedding, gating, tables and loss over ranges of rows, for every instruction set and element type.
#include "kernels/cpu/layer_rows.hpp"

#include "kernels/cpu/flash_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_rows.cpp"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/layer_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnbench::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
T* at(void* base, std::int64_t offset) {
  return static_cast<T*>(base) + offset;
}
template <typename T>
const T* at(const void* base, std::int64_t offset) {
  return static_cast<const T*>(base) + offset;
}

// Writes or adds `count` values of a parameter's gradient from element `offset` on.
template <typename T>
void store_gradient(T* target, bool accumulate, const float* values, std::int64_t count) {
  if (accumulate) {
    add_narrow(values, target, target, count);
  } else {
    narrow(values, target, count);
  }
}

template <typename T>
void store_gradient(const GradOut& grad, std::int64_t offset, const float* values, std::int64_t count) {
  if (grad.dtype == Dtype::kFp32) {
    store_gradient(at<float>(grad.data, offset), grad.accumulate, values, count);
  } else {
    store_gradient(at<T>(grad.data, offset), grad.accumulate, values, count);
  }
}

template <typename T>
void rms_norm(const RmsNorm& call, std::int64_t begin, std::int64_t end) {
  Piece xs, gains, out;
  const T* const gain = at<T>(call.gain, 0);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = at<T>(call.x, row * call.width);
    T* const y = at<T>(call.y, row * call.width);
    Lanes squares;
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      const float* const values = read(x + j, n, xs);
      add_products(squares, values, values, n);
    }
    const double mean = squares.total() / static_cast<double>(call.width);
    const float inverse = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(call.eps)));
    call.inverse[row] = inverse;
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      const float* HWY_RESTRICT const values = read(x + j, n, xs);
      const float* HWY_RESTRICT const factors = read(gain + j, n, gains);
      float* HWY_RESTRICT const target = results(y + j, out);
      for (std::int64_t i = 0; i < n; ++i) target[i] = values[i] * inverse * factors[i];
      commit(out, y + j, n);
    }
  }
}

// With h = x inverse and g = dy gain: dx = addend + inverse (g - h mean(g h)).
template <typename T>
void rms_norm_backward(const RmsNormBackward& call, std::int64_t begin, std::int64_t end, float* dgain_part) {
  Piece xs, gains, dys, addends, out;
  const T* const gain = at<T>(call.gain, 0);
  std::fill(dgain_part, dgain_part + call.width, 0.0f);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = at<T>(call.x, row * call.width);
    const T* const dy = at<T>(call.dy, row * call.width);
    T* const dx = at<T>(call.dx, row * call.width);
    const float inverse = call.inverse[row];
    Lanes products;
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      const float* HWY_RESTRICT const values = read(x + j, n, xs);
      const float* HWY_RESTRICT const factors = read(gain + j, n, gains);
      const float* HWY_RESTRICT const slopes = read(dy + j, n, dys);
      float* HWY_RESTRICT const weighted = out.data();
      float* HWY_RESTRICT const part = dgain_part + j;
      for (std::int64_t i = 0; i < n; ++i) {
        part[i] += slopes[i] * (values[i] * inverse);
        weighted[i] = slopes[i] * factors[i];
      }
      add_products(products, weighted, values, n);
    }
    const double inverse_wide = static_cast<double>(inverse);
    const auto shrink = static_cast<float>(products.total() * inverse_wide * inverse_wide * inverse_wide /
                                           static_cast<double>(call.width));
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      const float* const values = read(x + j, n, xs);
      const float* const factors = read(gain + j, n, gains);
      const float* const slopes = read(dy + j, n, dys);
      float* const target = out.data();
      for (std::int64_t i = 0; i < n; ++i) target[i] = slopes[i] * factors[i] * inverse - values[i] * shrink;
      if (call.addend != nullptr) {
        const float* const more = read(at<T>(call.addend, row * call.width + j), n, addends);
        for (std::int64_t i = 0; i < n; ++i) target[i] += more[i];
      }
      narrow(target, dx + j, n);
    }
  }
}

template <typename T>
void rms_norm_gain(const RmsNormBackward& call, std::int64_t parts, std::int64_t begin, std::int64_t end) {
  Piece sums;
  const float* const scratch = static_cast<const float*>(call.scratch);
  for (std::int64_t j = begin; j < end; j += kPiece) {
    const std::int64_t n = std::min(kPiece, end - j);
    std::fill(sums.begin(), sums.begin() + n, 0.0f);
    for (std::int64_t part = 0; part < parts; ++part) {
      const float* HWY_RESTRICT const row = scratch + part * call.width + j;
      for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] += row[i];
    }
    store_gradient<T>(call.dgain, j, sums.data(), n);
  }
}

template <typename T>
void rotate_head(T* head, std::int64_t half, const float* cosines, const float* sines, Piece& values) {
  widen(head, values.data(), 2 * half);
  for (std::int64_t i = 0; i < half; ++i) {
    float* const pair = values.data() + 2 * i;
    const float a = pair[0], b = pair[1];
    pair[0] = a * cosines[i] - b * sines[i];
    pair[1] = a * sines[i] + b * cosines[i];
  }
  narrow(values.data(), head, 2 * half);
}

template <typename T>
void rotary(const Rotary& call, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kMostPairs = kPiece / 2;
  double speeds[kMostPairs];
  float cosines[kMostPairs], sines[kMostPairs];
  Piece values;
  const std::int64_t half = call.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    speeds[i] = std::pow(call.theta, -2.0 * static_cast<double>(i) / static_cast<double>(call.head_dim));
  }
  for (std::int64_t position = begin; position < end; ++position) {
    for (std::int64_t i = 0; i < half; ++i) cos_sin(static_cast<double>(position) * speeds[i], cosines[i], sines[i]);
    if (call.inverse) {
      for (std::int64_t i = 0; i < half; ++i) sines[i] = -sines[i];
    }
    for (std::int64_t b = 0; b < call.batch; ++b) {
      T* const row = at<T>(call.x, (b * call.seq + position) * call.stride);
      for (std::int64_t h = 0; h < call.heads; ++h) rotate_head(row + h * call.head_dim, half, cosines, sines, values);
    }
  }
}

template <typename T>
void swiglu(const SwiGlu& call, std::int64_t begin, std::int64_t end) {
  Piece gates, ups, out;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const gate = at<T>(call.gate_up, row * 2 * call.width);
    const T* const up = gate + call.width;
    T* const act = at<T>(call.act, row * call.width);
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      const float* HWY_RESTRICT const g = read(gate + j, n, gates);
      const float* HWY_RESTRICT const u = read(up + j, n, ups);
      float* HWY_RESTRICT const target = results(act + j, out);
      for (std::int64_t i = 0; i < n; ++i) target[i] = g[i] * sigmoid(g[i]) * u[i];
      commit(out, act + j, n);
    }
  }
}

template <typename T>
void swiglu_backward(const SwiGluBackward& call, std::int64_t begin, std::int64_t end) {
  Piece gates, ups, slopes;
  for (std::int64_t row = begin; row < end; ++row) {
    T* const gate = at<T>(call.gate_up, row * 2 * call.width);
    T* const up = gate + call.width;
    T* const dact = at<T>(call.dact, row * call.width);
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      float* HWY_RESTRICT const g = gates.data();
      float* HWY_RESTRICT const u = ups.data();
      float* HWY_RESTRICT const d = slopes.data();
      widen(gate + j, g, n);
      widen(up + j, u, n);
      widen(dact + j, d, n);
      for (std::int64_t i = 0; i < n; ++i) {
        const float s = sigmoid(g[i]);
        const float silu = g[i] * s;
        const float dgate = d[i] * u[i] * (s + silu * (1.0f - s));
        const float act = silu * u[i];
        u[i] = d[i] * silu;
        g[i] = dgate;
        d[i] = act;
      }
      narrow(g, gate + j, n);
      narrow(u, up + j, n);
      narrow(d, dact + j, n);
    }
  }
}

template <typename T>
void embedding_backward(const EmbeddingBackward& call, const std::int32_t* first, const std::int32_t* order,
                        std::int64_t begin, std::int64_t end) {
  Piece sums, values;
  for (std::int64_t v = begin; v < end; ++v) {
    if (first[v] == first[v + 1] && call.dtable.accumulate) continue;
    for (std::int64_t j = 0; j < call.width; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.width - j);
      std::fill(sums.begin(), sums.begin() + n, 0.0f);
      for (std::int32_t t = first[v]; t < first[v + 1]; ++t) {
        const float* HWY_RESTRICT const row = read(at<T>(call.dout, order[t] * call.width + j), n, values);
        for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] += row[i];
      }
      store_gradient<T>(call.dtable, v * call.width + j, sums.data(), n);
    }
  }
}

float largest_of(const float* values, std::int64_t count) {
  Lanes most;
  std::fill(most.lane, most.lane + kLanes, -HUGE_VALF);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      most.lane[lane] = values[i + lane] > most.lane[lane] ? values[i + lane] : most.lane[lane];
    }
  }
  for (; i < count; ++i) most.lane[0] = values[i] > most.lane[0] ? values[i] : most.lane[0];
  return *std::max_element(most.lane, most.lane + kLanes);
}

// The row is read from memory once: the sum of exponentials is kept relative to the largest logit so far.
template <typename T>
void cross_entropy(const CrossEntropy& call, std::int64_t begin, std::int64_t end) {
  Piece piece, exponentials, ones;
  ones.fill(1.0f);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const logits = at<T>(call.logits, row * call.vocab);
    float most = std::numeric_limits<float>::lowest();  // finite: -inf minus it is -inf, whose power is 0
    double sum = 0;
    for (std::int64_t j = 0; j < call.vocab; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.vocab - j);
      const float* HWY_RESTRICT const values = read(logits + j, n, piece);
      const float here = largest_of(values, n);
      if (here > most) {
        sum *= std::exp(static_cast<double>(most) - static_cast<double>(here));
        most = here;
      }
      float* HWY_RESTRICT const powers = exponentials.data();
      for (std::int64_t i = 0; i < n; ++i) powers[i] = exp_negative(values[i] - most);
      Lanes sums;
      add_products(sums, powers, ones.data(), n);
      sum += sums.total();
    }
    call.lse[row] = static_cast<float>(static_cast<double>(most) + std::log(sum));
  }
}

template <typename T>
void cross_entropy_backward(const CrossEntropyBackward& call, std::int64_t begin, std::int64_t end) {
  Piece piece;
  const float factor = call.scale / static_cast<float>(call.rows);
  for (std::int64_t row = begin; row < end; ++row) {
    T* const logits = at<T>(call.logits, row * call.vocab);
    const float lse = call.lse[row];
    const std::int64_t target = call.targets[row];
    for (std::int64_t j = 0; j < call.vocab; j += kPiece) {
      const std::int64_t n = std::min(kPiece, call.vocab - j);
      float* const values = piece.data();
      widen(logits + j, values, n);
      for (std::int64_t i = 0; i < n; ++i) {
        const float below = values[i] - lse;
        values[i] = exp_negative(below > 0.0f ? 0.0f : below);  // lse is rounded; NaN stays NaN
      }
      if (target >= j && target < j + n) values[target - j] -= 1.0f;
      for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
      narrow(values, logits + j, n);
    }
  }
}

template <typename T>
void relu(const Relu& call, std::int64_t begin, std::int64_t end) {
  Piece xs;
  for (std::int64_t j = begin; j < end; j += kPiece) {
    const std::int64_t n = std::min(kPiece, end - j);
    widen(at<T>(call.x, j), xs.data(), n);
    float* const x = xs.data();
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
    narrow(xs.data(), at<T>(call.y, j), n);
  }
}

template <typename T>
void relu_backward(const ReluBackward& call, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const bool shut = to_float(*at<T>(call.x, i)) <= 0.0f;
    *at<T>(call.dx, i) = shut ? T{} : *at<T>(call.dy, i);
  }
}

template <typename T>
void widen_any(const void* source, float* target, std::int64_t count) {
  widen(at<T>(source, 0), target, count);
}
template <typename T>
void narrow_any(const float* source, void* target, std::int64_t count) {
  narrow(source, at<T>(target, 0), count);
}
template <typename T>
void add_narrow_any(const float* source, const void* addend, void* target, std::int64_t count) {
  add_narrow(source, at<T>(addend, 0), at<T>(target, 0), count);
}

template <typename T>
constexpr LayerRows kRows{&rms_norm<T>,
                          &rms_norm_backward<T>,
                          &rms_norm_gain<T>,
                          &rotary<T>,
                          &swiglu<T>,
                          &swiglu_backward<T>,
                          &embedding_backward<T>,
                          &cross_entropy<T>,
                          &cross_entropy_backward<T>,
                          &relu<T>,
                          &relu_backward<T>,
                          &widen_any<T>,
                          &narrow_any<T>,
                          &add_narrow_any<T>};

}  // namespace

const LayerRows* layer_rows_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return &kRows<float>;
    case Dtype::kBf16:
      return &kRows<Bf16>;
    case Dtype::kFp16:
      return &kRows<Fp16>;
  }
  return nullptr;
}

}  // namespace attnbench::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnbench::kernels {

HWY_EXPORT(layer_rows_of);

const LayerRows& layer_rows(Dtype dtype) { return *HWY_DYNAMIC_DISPATCH(layer_rows_of)(dtype); }

}  // namespace attnbench::kernels
#endif
