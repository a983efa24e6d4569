// What the fsdp verb can be asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/options.hpp"

namespace attnbench::cli {

/// Latency per message and bandwidth of an emulated link.
struct LinkChoice {
  std::string text;  // as typed, for the rows
  double latency_s = 0;
  double bandwidth_bytes_per_s = 0;
};

/// The rows are the product of world sizes, strategies, batches, lengths and prefetch depths.
struct FsdpOptions {
  std::vector<std::int64_t> world_size;  // empty: 1 and 2; under mpiexec or srun, that world
  std::vector<fsdp::Strategy> strategy{fsdp::Strategy::kFsdp};
  std::vector<std::int64_t> batch{4};      // sequences of one rank and micro-batch
  std::vector<std::int64_t> seq_len{128};  // tokens
  std::vector<std::int64_t> prefetch{2};

  std::string model = "tiny";
  std::optional<std::int64_t> d_model, d_ff, layers, heads, vocab;  // in place of the model's

  std::string attention = "auto";  // a word of --kernels; auto: flash where it is as exact as the dtype
  kernels::Dtype param_dtype = kernels::Dtype::kFp32;
  kernels::Dtype reduce_dtype = kernels::Dtype::kFp32;
  int micro_batches = 1;
  std::optional<fsdp::Accumulation> accumulation;  // sharded; ddp: unsharded
  bool checkpoint = false;
  double clip_norm = 0;
  fsdp::OptimizerKind optimizer = fsdp::OptimizerKind::kAdamW;
  double lr = 1e-3;

  std::string device = "cpu";      // cpu, cuda, cuda:N
  std::string transport = "auto";  // auto, local, mpi, nccl
  std::optional<LinkChoice> link;
  double deadline_s = 60;
  bool ring_order = false;  // of reductions; ordered otherwise
  int threads = 0;          // of one rank; 0: processors over ranks, 1 at the least

  int steps = 10;
  int warmup = 3;
  std::string verify;  // a training file to follow
  std::string worker;  // set by the launcher: the directory that ranks and launcher share
};

}  // namespace attnbench::cli
