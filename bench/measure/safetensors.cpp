// Layout: a little-endian 64-bit length, that many bytes of JSON, then the data that offsets count from.
#include "bench/measure/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kernels/dtype.hpp"

namespace attnbench::measure {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;

/// Bytes of an element; 0 for a word that the format does not have.
std::size_t element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

/// Elements times their size; empty when that is no size at all.
std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& shape, std::size_t element) {
  std::size_t product = element;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, static_cast<std::size_t>(extent), &product)) return std::nullopt;
  }
  return product;
}

tl::unexpected<base::Error> damaged(const std::string& name, const std::string& what) {
  return fail(ErrorKind::kUnreadable, fmt::format("{} is not a readable safetensors file: {}", name, what));
}

Result<SafeTensor> read_entry(const std::string& name, const std::string& tensor, const json& entry, std::size_t data) {
  const auto broken = [&](const std::string& what) { return damaged(name, fmt::format("tensor {} {}", tensor, what)); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return broken("has no dtype, shape and data_offsets");
  }
  SafeTensor result;
  result.dtype = entry["dtype"].get<std::string>();
  for (const json& extent : entry["shape"]) {
    // The library keeps an unsigned number as such; one beyond the signed range is no extent.
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX) return broken("has a bad shape");
    result.shape.push_back(extent.get<std::int64_t>());
  }
  for (const json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) return broken("has bad data_offsets");
  }
  result.begin = entry["data_offsets"][0].get<std::size_t>();
  result.end = entry["data_offsets"][1].get<std::size_t>();
  if (result.begin > result.end || result.end > data) {
    return broken(fmt::format("reaches to byte {} of {}", std::max(result.begin, result.end), data));
  }
  const std::size_t element = element_bytes(result.dtype);
  if (element == 0) return broken(fmt::format("has the unknown dtype {}", result.dtype));
  const auto wanted = bytes_of(result.shape, element);
  if (!wanted || *wanted != result.end - result.begin) {
    return broken(fmt::format("has {} bytes, which its shape and dtype do not", result.end - result.begin));
  }
  return result;
}

/// The data must be covered once and wholly.
bool covers(const std::map<std::string, SafeTensor>& tensors, std::size_t data) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& [name, tensor] : tensors) ranges.emplace_back(tensor.begin, tensor.end);
  std::sort(ranges.begin(), ranges.end());
  std::size_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at) return false;
    at = end;
  }
  return at == data;
}

template <typename Stored, typename Widen>
std::vector<double> widen(const unsigned char* data, std::size_t count, const Widen& to_double) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, data + i * sizeof(Stored), sizeof(Stored));
    values[i] = to_double(stored);
  }
  return values;
}

}  // namespace

Result<SafeTensors> SafeTensors::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorKind::kUnreadable, fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  // read() keeps a failure, a directory's among them, as a state of the stream; iterators would throw it.
  std::vector<unsigned char> bytes;
  std::vector<char> piece(std::size_t{1} << 20);
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + file.gcount());
  } while (file);
  if (file.bad()) return fail(ErrorKind::kUnreadable, fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  return parse(std::move(bytes), path);
}

Result<SafeTensors> SafeTensors::parse(std::vector<unsigned char> bytes, const std::string& name) {
  if (bytes.size() < kLengthBytes) return damaged(name, fmt::format("it has only {} bytes", bytes.size()));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > bytes.size() - kLengthBytes) {
    return damaged(name, fmt::format("its header claims {} bytes of {}", length, bytes.size() - kLengthBytes));
  }
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(kLengthBytes);
  const auto end = begin + static_cast<std::ptrdiff_t>(length);
  const json header = json::parse(begin, end, nullptr, false);
  if (!header.is_object()) return damaged(name, "its header is not a JSON object");

  SafeTensors result;
  result.name_ = name;
  const std::size_t data = bytes.size() - kLengthBytes - static_cast<std::size_t>(length);
  for (const auto& [key, entry] : header.items()) {
    if (key != "__metadata__") {
      auto tensor = read_entry(name, key, entry, data);
      if (!tensor) return tl::unexpected(tensor.error());
      result.tensors_.emplace(key, std::move(*tensor));
      continue;
    }
    if (!entry.is_object()) return damaged(name, "__metadata__ is not an object");
    for (const auto& [word, value] : entry.items()) {
      if (!value.is_string()) return damaged(name, fmt::format("metadata {} is not a string", word));
      result.metadata_.emplace(word, value.get<std::string>());
    }
  }
  if (!covers(result.tensors_, data)) return damaged(name, "its tensors overlap or leave bytes of the data out");
  result.data_.assign(end, bytes.end());
  return result;
}

Result<std::vector<double>> SafeTensors::values(const std::string& tensor, std::span<const std::int64_t> shape) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return damaged(name_, fmt::format("it has no tensor {}", tensor));
  const SafeTensor& entry = found->second;
  if (!std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end())) {
    return damaged(name_, fmt::format("tensor {} has the shape [{}], its metadata ask for [{}]", tensor,
                                      fmt::join(entry.shape, ", "), fmt::join(shape, ", ")));
  }
  const unsigned char* data = data_.data() + entry.begin;
  const std::size_t bytes = entry.end - entry.begin;
  if (entry.dtype == "F32") return widen<float>(data, bytes / 4, [](float value) { return double{value}; });
  if (entry.dtype == "F64") return widen<double>(data, bytes / 8, [](double value) { return value; });
  if (entry.dtype == "I32")
    return widen<std::int32_t>(data, bytes / 4, [](std::int32_t value) { return double(value); });
  if (entry.dtype == "BF16") {
    return widen<kernels::Bf16>(data, bytes / 2, [](kernels::Bf16 value) { return double{kernels::to_float(value)}; });
  }
  if (entry.dtype == "F16") {
    return widen<kernels::Fp16>(data, bytes / 2, [](kernels::Fp16 value) { return double{kernels::to_float(value)}; });
  }
  return damaged(name_, fmt::format("tensor {} is {}; F32, F64, BF16, F16 or I32 is needed", tensor, entry.dtype));
}

}  // namespace attnbench::measure
