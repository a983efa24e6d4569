// Opens the CUDA backend at run time, so that the program starts fast and runs where there is no driver.
#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "kernels/build_features.hpp"
#include "kernels/catalog.hpp"

namespace attnbench::kernels {
namespace {

constexpr const char* kLibrary = "libattnbench_cuda.so";

std::string beside_the_program() {
  char path[4096];
  const auto length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return {};
  const std::string program(path, static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/') + 1) + kLibrary;
}

base::Result<const Backend*> open_plugin() {
  using base::ErrorKind;
  using base::fail;
  const std::string beside = beside_the_program();
  // Beside the program first, so that two builds never mix; then wherever the loader looks for an installed one.
  const bool here = access(beside.c_str(), F_OK) == 0;
  void* library = dlopen(here ? beside.c_str() : kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && !here) {
    return fail(ErrorKind::kAbsent, kCudaBuilt ? "the CUDA backend is missing: this build made " +
                                                     std::string(kLibrary) + ", but it is neither at " + beside +
                                                     " nor where the loader looks; copy it there"
                                               : "the CUDA backend was " + std::string(kCudaBuildNote));
  }
  if (library == nullptr)
    return fail(ErrorKind::kAbsent, "the CUDA backend cannot be loaded: " + std::string(dlerror()));
  const auto entry = reinterpret_cast<PluginEntryFunction>(dlsym(library, kPluginSymbol));
  if (entry == nullptr) return fail(ErrorKind::kAbsent, beside + " is not a CUDA backend of this program");
  const PluginEntry* plugin = entry();
  if (std::string(plugin->build_id) != ATTNBENCH_BUILD_ID) {
    return fail(ErrorKind::kAbsent, beside + " belongs to another build (" +
                                        std::string(plugin->build_id).substr(0, 12) + ", this program is " +
                                        std::string(ATTNBENCH_BUILD_ID).substr(0, 12) + "); build both again");
  }
  return plugin->backend;
}

}  // namespace

base::Result<const Backend*> cuda_backend() {
  static const base::Result<const Backend*> backend = open_plugin();
  return backend;
}

}  // namespace attnbench::kernels
