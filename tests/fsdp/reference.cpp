// The formulas. Matrices are row-major; weights are [out, in].
#include "reference.hpp"

#include <algorithm>
#include <cmath>

namespace attnbench::fsdp {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Values product(const Values& x, const Values& weight, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / in;
  Values y(at(rows * out), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i) y[at(r * out + o)] += x[at(r * in + i)] * weight[at(o * in + i)];
    }
  }
  return y;
}

Values norm(const Values& x, const Values& gain, std::int64_t width, double eps) {
  Values y(x.size());
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(x.size()) / width; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += x[at(r * width + i)] * x[at(r * width + i)];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::int64_t i = 0; i < width; ++i) y[at(r * width + i)] = x[at(r * width + i)] * inverse * gain[at(i)];
  }
  return y;
}

/// Pairs (2i, 2i + 1) of every head turn by position * theta^(-2i / d).
void rotate(Values& x, const BlockConfig& c, const TokenShape& shape) {
  const std::int64_t d = c.width / c.heads;
  for (std::int64_t row = 0; row < shape.tokens(); ++row) {
    for (std::int64_t pair = 0; pair < c.width / 2; ++pair) {
      const double speed = std::pow(c.theta, -2.0 * static_cast<double>(pair % (d / 2)) / static_cast<double>(d));
      const double angle = static_cast<double>(row % shape.seq) * speed;
      double& a = x[at(row * c.width + 2 * pair)];
      double& b = x[at(row * c.width + 2 * pair + 1)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }
}

Values attention(const Values& q, const Values& k, const Values& v, const BlockConfig& c, const TokenShape& shape) {
  const std::int64_t d = c.width / c.heads;
  Values out(q.size(), 0.0);
  for (std::int64_t row = 0; row < shape.tokens(); ++row) {
    const std::int64_t start = row / shape.seq * shape.seq;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const auto place = [&](std::int64_t r, std::int64_t i) { return at(r * c.width + h * d + i); };
      Values weights;
      double sum = 0;
      for (std::int64_t key = start; key <= row; ++key) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i) score += q[place(row, i)] * k[place(key, i)];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
        sum += weights.back();
      }
      for (std::int64_t key = start; key <= row; ++key) {
        for (std::int64_t i = 0; i < d; ++i) {
          out[place(row, i)] += weights[at(key - start)] / sum * v[place(key, i)];
        }
      }
    }
  }
  return out;
}

}  // namespace

ReferenceForward reference_embedding(std::int64_t width) {
  return [width](const ReferenceCall& call) {
    Values out;
    for (const std::int32_t token : call.tokens) {
      const auto row = call.params[0].begin() + token * width;
      out.insert(out.end(), row, row + width);
    }
    return out;
  };
}

ReferenceForward reference_block(const BlockConfig& c) {
  return [c](const ReferenceCall& call) {
    const std::vector<Values>& p = call.params;
    const Values normed = norm(call.in, p[0], c.width, double{c.eps});
    Values q = product(normed, p[1], c.width, c.width), k = product(normed, p[2], c.width, c.width);
    rotate(q, c, call.shape);
    rotate(k, c, call.shape);
    const Values attended = attention(q, k, product(normed, p[3], c.width, c.width), c, call.shape);
    Values x = product(attended, p[4], c.width, c.width);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += call.in[i];
    const Values y = norm(x, p[5], c.width, double{c.eps});
    Values act = product(y, p[6], c.width, c.ff);
    const Values up = product(y, p[7], c.width, c.ff);
    for (std::size_t i = 0; i < act.size(); ++i) act[i] = act[i] / (1 + std::exp(-act[i])) * up[i];
    Values out = product(act, p[8], c.ff, c.width);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += x[i];
    return out;
  };
}

ReferenceForward reference_norm(std::int64_t width, double eps) {
  return [=](const ReferenceCall& call) { return norm(call.in, call.params[0], width, eps); };
}

ReferenceForward reference_linear(std::int64_t in, std::int64_t out) {
  return [=](const ReferenceCall& call) { return product(call.in, call.params[0], in, out); };
}

ReferenceForward reference_relu() {
  return [](const ReferenceCall& call) {
    Values out = call.in;
    for (double& x : out) x = std::max(x, 0.0);
    return out;
  };
}

ReferenceForward reference_head(std::int64_t width, std::int64_t vocab, bool normed, double eps) {
  return [=](const ReferenceCall& call) {
    const Values x = normed ? norm(call.in, call.params[0], width, eps) : call.in;
    const Values logits = product(x, call.params.back(), width, vocab);
    double loss = 0;
    for (std::int64_t row = 0; row < call.shape.tokens(); ++row) {
      double sum = 0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(logits[at(row * vocab + v)]);
      loss += std::log(sum) - logits[at(row * vocab + call.targets[at(row)])];
    }
    return Values{loss / static_cast<double>(call.shape.tokens())};
  };
}

Values difference_gradient(const ReferenceForward& forward, ReferenceCall& call, Values& values, const Values& dout) {
  constexpr double kStep = 1e-5;
  const auto objective = [&] {
    const Values out = forward(call);
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  Values gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double here = values[i];
    values[i] = here + kStep;
    const double above = objective();
    values[i] = here - kStep;
    gradient[i] = (above - objective()) / (2 * kStep);
    values[i] = here;
  }
  return gradient;
}

}  // namespace attnbench::fsdp
