// Golden files through the reader of `attnbench verify`.
#include "tests/kernels/golden_case.hpp"

#include <cstdlib>
#include <stdexcept>

namespace attnbench::kernels {
namespace {

HostTensor rounded(const std::vector<double>& values, const Index4& extent, Dtype dtype) {
  HostTensor made(extent, dtype);
  made.assign(std::vector<float>(values.begin(), values.end()));
  return made;
}

GoldenCase load(const std::filesystem::path& path) {
  const auto file = measure::SafeTensors::load(path.string());
  if (!file) throw std::runtime_error(file.error().message);
  auto golden = measure::read_golden(*file);
  if (!golden) throw std::runtime_error(golden.error().message);
  return {path.stem().string(), std::move(*golden)};
}

}  // namespace

Inputs GoldenCase::inputs(Dtype dtype) const {
  const Problem& p = golden.problem;
  const Index4 query{p.batch, p.heads, p.seq_q, p.head_dim};
  const Index4 key{p.batch, p.kv_heads, p.seq_k, p.head_dim};
  return {rounded(golden.q, query, dtype), rounded(golden.k, key, dtype), rounded(golden.v, key, dtype),
          rounded(golden.dout, query, dtype)};
}

double GoldenCase::bound(Dtype dtype, double usual) const {
  return dtype == Dtype::kFp32 && name == "attention_large_logits" ? 1e-3 : usual;
}

void GoldenCase::expect_near(const Outputs& out, double bound) const {
  EXPECT_LE(error_of(out.o, golden.reference.forward.o), bound) << "o";
  EXPECT_LE(error_of(out.lse, golden.reference.forward.lse), bound) << "lse";
  EXPECT_LE(error_of(out.dq, golden.reference.backward.dq), bound) << "dq";
  EXPECT_LE(error_of(out.dk, golden.reference.backward.dk), bound) << "dk";
  EXPECT_LE(error_of(out.dv, golden.reference.backward.dv), bound) << "dv";
}

std::filesystem::path golden_folder() {
  if (const char* folder = std::getenv("ATTNBENCH_GOLDEN")) return folder;
  const std::filesystem::path built = ATTNBENCH_SOURCE_DIR "/tests/golden";
  return std::filesystem::exists(built) ? built : std::filesystem::path("tests/golden");
}

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = [] {
    std::vector<GoldenCase> all;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
      if (entry.path().filename().string().rfind("attention_", 0) == 0) all.push_back(load(entry.path()));
    }
    return all;
  }();
  return cases;
}

}  // namespace attnbench::kernels
