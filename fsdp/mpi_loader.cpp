// Looks for the module beside the program, as other modules are looked for.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <string>

#include "fsdp/mpi_module.hpp"

namespace attnbench::fsdp {
namespace {

using base::ErrorKind;
using base::fail;

constexpr const char* kAdvice =
    "; install OpenMPI (Debian: libopenmpi-dev openmpi-bin) and build again, or take --transport local";

std::string program_folder() {
  std::array<char, 4096> path{};
  const auto length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return {};
  const std::string program(path.data(), static_cast<std::size_t>(length));
  return program.substr(0, program.rfind('/') + 1);
}

base::Result<const MpiModule*> open_module() {
  const std::string folder = program_folder();
  void* library = nullptr;
  std::string reason;
  for (const std::string& place : {folder, folder + "../", folder + "../../"}) {
    const std::string path = place + kMpiModuleFile;
    if (access(path.c_str(), F_OK) != 0) continue;
    // Its names are global: OpenMPI opens plugins of its own that look for them.
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) break;
    reason = dlerror();
  }
  if (library == nullptr && reason.empty()) {
    return fail(ErrorKind::kAbsent, std::string("this program was built without MPI") + kAdvice);
  }
  if (library == nullptr) return fail(ErrorKind::kAbsent, "MPI cannot be loaded: " + reason + kAdvice);
  const auto entry = reinterpret_cast<MpiModuleFunction>(dlsym(library, kMpiModuleSymbol));
  if (entry == nullptr || std::string(entry()->build_id) != ATTNBENCH_FSDP_BUILD_ID) {
    return fail(ErrorKind::kAbsent,
                std::string(kMpiModuleFile) + " belongs to another build of this program; build both again");
  }
  return entry();
}

}  // namespace

base::Result<const MpiModule*> mpi_module() {
  static const base::Result<const MpiModule*> module = open_module();
  return module;
}

}  // namespace attnbench::fsdp
