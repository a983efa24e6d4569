// Facts of the build. Nothing is opened or loaded for them.
#include "bench/cli/version_text.hpp"

#include <fmt/format.h>

#include "bench/base/version.hpp"

namespace attnbench::cli {
namespace {

std::string_view or_unknown(std::string_view text) { return text.empty() ? "unknown" : text; }

#ifdef ATTNBENCH_CUDA_BUILT
constexpr std::string_view kCuda = "built as a plug-in, libattnbench_cuda.so";
#else
constexpr std::string_view kCuda = "not built (no CUDA compiler at configure time, or ATTNBENCH_CUDA=OFF)";
#endif

}  // namespace

std::string version_text() {
  const base::BuildInfo& info = base::build_info();
  return fmt::format(
      "attnbench {}\ncommit    {}\ncompiler  {}\nflags     {}\nbuilt for {}\ncpu       built\ncuda      {}\n",
      info.version, or_unknown(info.commit), or_unknown(info.compiler), or_unknown(info.flags), or_unknown(info.system),
      kCuda);
}

}  // namespace attnbench::cli
