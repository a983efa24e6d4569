// Opens libnccl.so.2 and looks its functions up.
#include "fsdp/nccl_library.hpp"

#include <dlfcn.h>

namespace attnbench::fsdp {
namespace {

using base::Result;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<NcclLibrary> open() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return base::fail(base::ErrorKind::kAbsent,
                      "--transport nccl: " + std::string(dlerror()) +
                          "; install NCCL (Debian: libnccl2), or add its folder to LD_LIBRARY_PATH");
  }
  NcclLibrary l;
  const bool all =
      find(library, "ncclGetVersion", l.get_version) && find(library, "ncclGetUniqueId", l.get_unique_id) &&
      find(library, "ncclCommInitRankConfig", l.comm_init_rank_config) &&
      find(library, "ncclCommGetAsyncError", l.comm_get_async_error) && find(library, "ncclCommAbort", l.comm_abort) &&
      find(library, "ncclGetErrorString", l.get_error_string) && find(library, "ncclGroupStart", l.group_start) &&
      find(library, "ncclGroupEnd", l.group_end) && find(library, "ncclSend", l.send) &&
      find(library, "ncclRecv", l.receive) && find(library, "ncclAllGather", l.all_gather) &&
      find(library, "ncclReduceScatter", l.reduce_scatter);
  if (all) return l;
  return base::fail(base::ErrorKind::kAbsent, "--transport nccl: libnccl.so.2 is older than 2.14, which is needed");
}

}  // namespace

Result<const NcclLibrary*> nccl_library() {
  static const Result<NcclLibrary> library = open();
  if (!library) return tl::unexpected(library.error());
  return &*library;
}

}  // namespace attnbench::fsdp
