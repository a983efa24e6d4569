// Opens the matrix library at run time and cuts products into blocks of rows.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "kernels/cpu/blas_product.hpp"
#include "kernels/cpu/libraries.hpp"

namespace attnbench::kernels {
namespace {

std::string program_folder() {
  char path[4096];
  const auto length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return {};
  const std::string program(path, static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/') + 1);
}

base::Result<const ProductModule*> open_module() {
  using base::ErrorKind;
  using base::fail;
  const std::string folder = program_folder();
  void* library = nullptr;
  // Beside the program, or above it for the tests; then where the loader looks. Whole paths, since under
  // AddressSanitizer the loader does not see the program's own run path.
  for (const std::string& place : {folder, folder + "../", folder + "../../", std::string()}) {
    library = dlopen((place + kProductModuleFile).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) return fail(ErrorKind::kAbsent, "oneDNN cannot be loaded: " + std::string(dlerror()));
  const auto entry = reinterpret_cast<ProductModuleFunction>(dlsym(library, kProductModuleSymbol));
  if (entry == nullptr || std::string(entry()->build_id) != ATTNBENCH_BUILD_ID) {
    return fail(ErrorKind::kAbsent,
                std::string(kProductModuleFile) + " belongs to another build of this program; build both again");
  }
  return entry();
}

constexpr std::size_t kScratchAlignment = 64;  // what LibraryProduct::run asks for

}  // namespace

base::Result<const ProductModule*> product_module() {
  static const base::Result<const ProductModule*> module = open_module();
  return module;
}

base::Result<BlockedProduct> BlockedProduct::make(std::int64_t rows, std::int64_t block, bool accumulate,
                                                  Device& device,
                                                  const std::function<ProductShapes(std::int64_t rows)>& shapes) {
  const auto module = product_module();
  if (!module) return tl::unexpected(module.error());
  return make(rows, block, device,
              [&](std::int64_t count) { return (*module)->make(shapes(count), accumulate, device.threads()); });
}

base::Result<BlockedProduct> BlockedProduct::make(std::int64_t rows, std::int64_t block, Device& device,
                                                  const MakeProduct& product) {
  BlockedProduct made;
  made.block_ = std::min(rows, block);
  for (const std::int64_t count : {made.block_, rows % made.block_}) {
    if (count == 0) continue;
    auto next = product(count);
    if (!next) return tl::unexpected(next.error());
    made.products_.push_back(std::move(*next));
  }
  std::size_t scratch = 0;
  for (const auto& one : made.products_) scratch = std::max(scratch, one->scratch_bytes());
  made.scratch_bytes_ = (scratch + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  auto memory = device.allocate(made.scratch_bytes_ * static_cast<std::size_t>(device.threads()));
  if (!memory) return tl::unexpected(memory.error());
  made.scratch_ = std::move(*memory);
  return made;
}

bool BlockedProduct::run(std::int64_t rows, const void* a, const void* b, float* c, int thread) {
  void* const scratch = static_cast<std::byte*>(scratch_.data()) + static_cast<std::size_t>(thread) * scratch_bytes_;
  return products_[rows == block_ ? 0 : 1]->run(a, b, c, thread, scratch);
}

base::Result<Dtype> bind_products(Dtype problem, const std::function<base::Result<void>(Dtype input)>& bind) {
  if (problem == Dtype::kBf16) {
    const base::Result<void> ok = bind(Dtype::kBf16);
    if (ok) return Dtype::kBf16;
    if (ok.error().kind != base::ErrorKind::kUnsupported) return tl::unexpected(ok.error());
  }
  if (const base::Result<void> ok = bind(Dtype::kFp32); !ok) return tl::unexpected(ok.error());
  return Dtype::kFp32;
}

std::string onednn_version() {
  const auto module = product_module();
  return module ? (*module)->version : std::string();
}

}  // namespace attnbench::kernels
