// libnccl.so.2, opened at run time: the program starts without it.
#pragma once

#include <nccl.h>

#include <string>

#include "bench/base/error.hpp"

namespace attnbench::fsdp {

/// The functions of NCCL that are called here, under their own names without the prefix.
struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
};

/// Errors  kAbsent: with what to install
base::Result<const NcclLibrary*> nccl_library();

}  // namespace attnbench::fsdp
