// A device by its id.
#pragma once

#include <memory>
#include <string>

#include "bench/base/error.hpp"
#include "kernels/device/device.hpp"

namespace attnbench::cli {

/// Opens the device that a DeviceFacts::id names: cpu, cuda:0, mock.
base::Result<std::unique_ptr<kernels::Device>> open_device(const std::string& id);

}  // namespace attnbench::cli
