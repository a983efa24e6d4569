// A measured training run as a row.
#pragma once

#include "bench/run/fsdp_case.hpp"
#include "bench/run/provenance.hpp"
#include "reports/row.hpp"

namespace attnbench::run {

/// Identity of the case and provenance; the outcome is empty.
reports::Row describe_fsdp(const FsdpCase& c, const kernels::DeviceFacts& device, const Provenance& provenance);

/// Times, rates, communication and memory.
void add_measurement(reports::Row& row, const FsdpCase& c, const FsdpMeasurement& measured,
                     std::optional<double> gemm_peak_gflops);

/// Tokens per second and rank against the smallest world size among `earlier` rows that is alike otherwise.
void add_scaling(reports::Row& row, const std::vector<reports::Row>& earlier);

}  // namespace attnbench::run
