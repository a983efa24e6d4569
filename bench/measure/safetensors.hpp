// Reader of safetensors files: 8 bytes little-endian header length, a JSON header, then the tensors' bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/base/error.hpp"

namespace attnbench::measure {

/// One tensor, dense and row-major. The bytes belong to the file object.
struct StoredTensor {
  std::string dtype;  // as the file says: F32, F64, F16, BF16, I32, I64, ...
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // its bytes in SafetensorsFile::bytes
  std::size_t end = 0;

  std::int64_t size() const;
};

/// A file read whole.
struct SafetensorsFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;
  std::vector<unsigned char> bytes;  // the data section

  /// Values of a floating-point or integer tensor of at most 32 bits as float, exact (F64 is rounded).
  /// Errors  kUnreadable: no such tensor, or a dtype that is not one of F32, F64, F16, BF16, I32
  base::Result<std::vector<float>> floats(const std::string& name) const;
};

/// Errors  kUnreadable, with path and reason: missing, short, a header that is not JSON or longer than the file, a
///         tensor outside the file, of an unknown dtype, or of a size that does not fit its shape
base::Result<SafetensorsFile> read_safetensors(const std::string& path);

}  // namespace attnbench::measure
