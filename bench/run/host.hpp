// Facts of the machine that rows carry so that they can be judged later.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/device/device.hpp"

namespace attnbench::run {

/// What does not change during a run. Empty: not known.
struct HostFacts {
  std::string host;      // name of the machine
  std::string os;        // distribution and kernel
  std::string governor;  // frequency governor; each different one once
};

HostFacts host_facts();

/// Load average over one minute, now.
std::optional<double> load_average();

/// Now, UTC, ISO 8601 to the second.
std::string utc_now();

/// 16 hex digits over what must be equal for two runs of a device to be comparable: device, cores, instruction set,
/// memory, driver, libraries, operating system. Not the commit, since commits are what gets compared.
std::string fingerprint(const HostFacts& host, const kernels::DeviceFacts& device);

/// "oneDNN 2.6.3; OpenMP 4.5".
std::string libraries_text(const kernels::DeviceFacts& device);

}  // namespace attnbench::run
