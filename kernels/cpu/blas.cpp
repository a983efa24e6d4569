// libattnbench_onednn.so: the matrix products of blas_product.hpp by oneDNN, the only file that sees the library.
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>
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

dnnl::memory::data_type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return dnnl::memory::data_type::f32;
    case Dtype::kBf16:
      return dnnl::memory::data_type::bf16;
    case Dtype::kFp16:
      return dnnl::memory::data_type::f16;
  }
  return dnnl::memory::data_type::undef;
}

DnnlDesc describe(const MatrixShape& s) { return DnnlDesc({s.rows, s.columns}, type_of(s.dtype), {s.row, s.column}); }

dnnl::matmul::primitive_desc describe(const ProductShapes& shapes, bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc operation(describe(shapes.a), describe(shapes.b), describe(shapes.c));
  return {operation, attributes, cpu_engine()};
}

/// One primitive, and for each thread its memory objects, so that a launch only sets addresses.
class Product : public LibraryProduct {
 public:
  Product(const ProductShapes& shapes, const dnnl::matmul::primitive_desc& description, int threads)
      : primitive_(description), scratch_bytes_(description.scratchpad_desc().get_size()) {
    for (int thread = 0; thread < threads; ++thread) {
      Bound bound;
      bound.a = dnnl::memory(describe(shapes.a), cpu_engine(), nullptr);
      bound.b = dnnl::memory(describe(shapes.b), cpu_engine(), nullptr);
      bound.c = dnnl::memory(describe(shapes.c), cpu_engine(), nullptr);
      bound.scratch = dnnl::memory(description.scratchpad_desc(), cpu_engine(), nullptr);
      bound.arguments = {{DNNL_ARG_SRC, bound.a}, {DNNL_ARG_WEIGHTS, bound.b}, {DNNL_ARG_DST, bound.c}};
      if (scratch_bytes_ > 0) bound.arguments[DNNL_ARG_SCRATCHPAD] = bound.scratch;
      bound.stream = dnnl::stream(cpu_engine());
      bound_.push_back(std::move(bound));
    }
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }

  bool run(const void* a, const void* b, void* c, int thread, void* scratch) override {
    omp_set_num_threads(1);  // of this thread: the pool is the only parallelism, and OpenMP never starts a pool
    Bound& bound = bound_[static_cast<std::size_t>(thread)];
    bound.a.set_data_handle(const_cast<void*>(a));
    bound.b.set_data_handle(const_cast<void*>(b));
    bound.c.set_data_handle(c);
    if (scratch_bytes_ > 0) bound.scratch.set_data_handle(scratch);
    try {
      primitive_.execute(bound.stream, bound.arguments);
    } catch (const dnnl::error&) {
      return false;
    }
    return true;
  }

 private:
  struct Bound {
    dnnl::memory a, b, c, scratch;
    std::unordered_map<int, dnnl::memory> arguments;
    dnnl::stream stream;
  };
  dnnl::matmul primitive_;
  std::size_t scratch_bytes_;
  std::vector<Bound> bound_;
};

base::Result<std::unique_ptr<LibraryProduct>> make_product(const ProductShapes& shapes, bool accumulate, int threads) {
  omp_set_num_threads(1);  // what the library sees while it makes a primitive decides how that one divides its work
  try {
    const dnnl::matmul::primitive_desc description = describe(shapes, accumulate);
    if (std::string_view(description.impl_info_str()).starts_with("ref")) {
      return base::fail(base::ErrorKind::kUnsupported, "oneDNN has only its reference for this matrix product here");
    }
    return std::make_unique<Product>(shapes, description, threads);
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
