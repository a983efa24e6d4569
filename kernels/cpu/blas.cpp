// libattnbench_onednn.so: the matrix products of blas_product.hpp by oneDNN, the only file that sees the library.
#include <omp.h>

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/blas_product.hpp"

namespace attnbench::kernels {
namespace {

using DnnlDesc = dnnl::memory::desc;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

DnnlDesc describe(const MatrixShape& s, Dtype dtype) {
  using Type = dnnl::memory::data_type;
  return DnnlDesc({s.rows, s.columns}, dtype == Dtype::kBf16 ? Type::bf16 : Type::f32, {s.row, s.column});
}

/// One primitive, and for each thread its memory objects, so that a launch only sets addresses.
class Product : public LibraryProduct {
 public:
  Product(const ProductShapes& shapes, bool accumulate, int threads) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const DnnlDesc a = describe(shapes.a, shapes.input), b = describe(shapes.b, shapes.input);
    const DnnlDesc c = describe(shapes.c, Dtype::kFp32);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
    // A reference loop is no tuned product: fp32 has better ones everywhere.
    if (shapes.input != Dtype::kFp32 && std::strncmp(description.impl_info_str(), "ref", 3) == 0) {
      throw dnnl::error(dnnl_unimplemented, "only a reference loop");
    }
    primitive_ = dnnl::matmul(description);
    const DnnlDesc scratch = description.scratchpad_desc();
    for (int thread = 0; thread < threads; ++thread) {
      Bound bound;
      bound.scratch.resize(scratch.get_size());
      bound.a = dnnl::memory(a, cpu_engine(), nullptr);
      bound.b = dnnl::memory(b, cpu_engine(), nullptr);
      bound.c = dnnl::memory(c, cpu_engine(), nullptr);
      bound.arguments = {{DNNL_ARG_SRC, bound.a}, {DNNL_ARG_WEIGHTS, bound.b}, {DNNL_ARG_DST, bound.c}};
      if (!bound.scratch.empty()) {
        bound.arguments[DNNL_ARG_SCRATCHPAD] = dnnl::memory(scratch, cpu_engine(), bound.scratch.data());
      }
      bound.stream = dnnl::stream(cpu_engine());
      bound_.push_back(std::move(bound));
    }
  }

  bool run(const void* a, const void* b, float* c, int thread) override {
    omp_set_num_threads(1);  // of this thread: the pool is the only parallelism, and OpenMP never starts a pool
    Bound& bound = bound_[static_cast<std::size_t>(thread)];
    bound.a.set_data_handle(const_cast<void*>(a));
    bound.b.set_data_handle(const_cast<void*>(b));
    bound.c.set_data_handle(c);
    try {
      primitive_.execute(bound.stream, bound.arguments);
    } catch (const dnnl::error&) {
      return false;
    }
    return true;
  }

 private:
  struct Bound {
    dnnl::memory a, b, c;
    std::vector<unsigned char> scratch;
    std::unordered_map<int, dnnl::memory> arguments;
    dnnl::stream stream;
  };
  dnnl::matmul primitive_;
  std::vector<Bound> bound_;
};

base::Result<std::unique_ptr<LibraryProduct>> make_product(const ProductShapes& shapes, bool accumulate, int threads) {
  omp_set_num_threads(1);  // what the library sees while it makes a primitive decides how that one divides its work
  ATTNBENCH_ENSURE(shapes.input != Dtype::kFp16, "products of fp16 are not described here");
  try {
    return std::make_unique<Product>(shapes, accumulate, threads);
  } catch (const dnnl::error& error) {
    const bool declined = error.status == dnnl_unimplemented;
    return base::fail(declined ? base::ErrorKind::kUnsupported : base::ErrorKind::kFailed,
                      std::string("oneDNN makes no such matrix product: ") + error.what());
  }
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl::version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ProductModule* attnbench_product_module() {
  static const ProductModule module{ATTNBENCH_BUILD_ID, onednn_version(), &make_product};
  return &module;
}

}  // namespace attnbench::kernels
