// Every CPU kernel against tensors that another program computed in double precision.
#include <algorithm>
#include <filesystem>

#include "bench/measure/safetensors.hpp"
#include "kernel_case.hpp"

namespace attnbench::kernels {
namespace {

struct Golden {
  std::string name;
  Problem problem;
  measure::SafeTensors file;

  std::vector<double> reference(const std::string& tensor) const {
    return file.values(tensor, file.tensors().at(tensor).shape).value();
  }
  HostTensor input(const std::string& tensor, Dtype dtype) const {
    const std::vector<std::int64_t>& shape = file.tensors().at(tensor).shape;
    const std::vector<double> values = reference(tensor);
    HostTensor made({shape[0], shape[1], shape[2], shape[3]}, dtype);
    made.assign(std::vector<float>(values.begin(), values.end()));
    return made;
  }
};

Golden load(const std::filesystem::path& path) {
  auto file = measure::SafeTensors::load(path.string());
  if (!file) throw std::runtime_error(file.error().message);
  const auto number = [&](const char* key) { return std::stoll(file->metadata().at(key)); };
  Golden golden{path.stem().string(), {}, *file};
  golden.problem.batch = number("batch");
  golden.problem.heads = number("heads");
  golden.problem.kv_heads = number("kv_heads");
  golden.problem.seq_q = number("seq_q");
  golden.problem.seq_k = number("seq_k");
  golden.problem.head_dim = number("head_dim");
  golden.problem.causal = number("causal") != 0;
  golden.problem.window_left = number("window_left");
  golden.problem.scale = std::stof(file->metadata().at("scale"));
  return golden;
}

std::vector<Golden> golden_cases() {
  std::vector<Golden> cases;
  for (const auto& entry : std::filesystem::directory_iterator(ATTNBENCH_SOURCE_DIR "/tests/golden")) {
    if (entry.path().filename().string().rfind("attention_", 0) == 0) cases.push_back(load(entry.path()));
  }
  return cases;
}

double bound_of(const Golden& golden, Dtype dtype) {
  Problem problem = golden.problem;
  problem.dtype = dtype;
  // Logits of several hundred: their fp32 rounding alone is 1e-4 in the weights.
  if (dtype == Dtype::kFp32 && golden.name == "attention_large_logits") return 1e-3;
  return default_tolerance(problem).forward;
}

class GoldenTest : public CpuKernel {
 protected:
  void check(Dtype dtype) {
    const std::vector<Golden> cases = golden_cases();
    ASSERT_EQ(cases.size(), 15u) << "golden files are missing";
    for (const Golden& golden : cases) {
      SCOPED_TRACE(golden.name);
      Problem problem = golden.problem;
      problem.dtype = dtype;
      const Inputs inputs{golden.input("q", dtype), golden.input("k", dtype), golden.input("v", dtype),
                          golden.input("dout", dtype)};
      const Outputs out = run_kernel(kernel(), problem, inputs);
      const double bound = bound_of(golden, dtype);
      EXPECT_LE(error_of(out.o, golden.reference("o")), bound) << "o";
      EXPECT_LE(error_of(out.lse, golden.reference("lse")), bound) << "lse";
      EXPECT_LE(error_of(out.dq, golden.reference("dq")), bound) << "dq";
      EXPECT_LE(error_of(out.dk, golden.reference("dk")), bound) << "dk";
      EXPECT_LE(error_of(out.dv, golden.reference("dv")), bound) << "dv";
    }
  }
};

TEST_P(GoldenTest, AgreesInFp32) { check(Dtype::kFp32); }
TEST_P(GoldenTest, AgreesInBf16) { check(Dtype::kBf16); }
TEST_P(GoldenTest, AgreesInFp16) { check(Dtype::kFp16); }

INSTANTIATE_TEST_SUITE_P(Cpu, GoldenTest,
                         ::testing::ValuesIn(cpu_backend().kernels().begin(), cpu_backend().kernels().end()),
                         kernel_name);

/// The oracle and the files were written by different people in different languages: each checks the other.
TEST(Oracle, AgreesWithTheGoldenFiles) {
  for (const Golden& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const Inputs inputs{golden.input("q", Dtype::kFp32), golden.input("k", Dtype::kFp32),
                        golden.input("v", Dtype::kFp32), golden.input("dout", Dtype::kFp32)};
    const OracleForward forward = oracle_forward(golden.problem, inputs.oracle());
    const OracleBackward backward = oracle_backward(golden.problem, inputs.oracle());
    const auto expect_near = [&](const char* name, const std::vector<double>& x) {
      const std::vector<float> rounded(x.begin(), x.end());
      EXPECT_LE(error_of(rounded, golden.reference(name)), 2e-7) << name;  // the files are rounded to fp32
    };
    expect_near("o", forward.o);
    expect_near("lse", forward.lse);
    expect_near("dq", backward.dq);
    expect_near("dk", backward.dk);
    expect_near("dv", backward.dv);
  }
}

}  // namespace
}  // namespace attnbench::kernels
