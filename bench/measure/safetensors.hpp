// Reads a safetensors file: named tensors with a JSON header in front.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::measure {

/// One tensor of the file: the dtype's word (F32, BF16, F16, I32, ...), its shape, its place in the data.
struct SafeTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};

class SafeTensors {
 public:
  /// Errors  kUnreadable, with the file's name and what is wrong: not there, too short, a header that is not JSON or
  /// not
  ///         of this layout, a tensor whose offsets leave the data, overlap, leave a hole or do not fit its shape
  static base::Result<SafeTensors> load(const std::string& path);

  /// As load, from bytes in memory; `name` is what messages call them.
  static base::Result<SafeTensors> parse(std::vector<unsigned char> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }

  /// Values of a tensor of F32, F64, BF16, F16 or I32, widened.
  ///
  /// Errors  kUnreadable: there is no such tensor, its shape is another one, or its dtype is not one of these
  base::Result<std::vector<double>> values(const std::string& tensor, std::span<const std::int64_t> shape) const;

 private:
  std::string name_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafeTensor> tensors_;
  std::vector<unsigned char> data_;
};

}  // namespace attnbench::measure
