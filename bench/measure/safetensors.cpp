// Checks everything a header claims before it is believed: these files come from anywhere.
#include "bench/measure/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/dtype.hpp"

namespace attnbench::measure {
namespace {

using base::ErrorKind;
using base::fail;
using base::Result;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian and read in place");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;  // far above any file, far below overflow

tl::unexpected<base::Error> unreadable(const std::string& path, const std::string& reason) {
  return fail(ErrorKind::kUnreadable, path + ": not a readable safetensors file: " + reason);
}

std::optional<std::size_t> element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::size_t> kSizes{
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4},     {"I32", 4},     {"U32", 4}, {"F16", 2},  {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},  {"BOOL", 1},
  };
  const auto found = kSizes.find(dtype);
  if (found == kSizes.end()) return std::nullopt;
  return found->second;
}

/// An unsigned integer of the header, or nothing.
std::optional<std::uint64_t> unsigned_in(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<std::uint64_t>();
}

/// Product of the extents, or nothing when one is not a number or the product is absurd.
std::optional<std::uint64_t> elements_of(const Json& shape, std::vector<std::int64_t>& extents) {
  if (!shape.is_array()) return std::nullopt;
  std::uint64_t product = 1;
  for (const Json& entry : shape) {
    const auto extent = unsigned_in(entry);
    if (!extent || *extent > kMostElements) return std::nullopt;
    if (*extent != 0 && product > kMostElements / *extent) return std::nullopt;
    product *= *extent;
    extents.push_back(static_cast<std::int64_t>(*extent));
  }
  return product;
}

/// The reason why one entry of the header is wrong, or nothing and the tensor.
std::optional<std::string> parse_tensor(const Json& entry, std::size_t data_bytes, StoredTensor& tensor) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
    return "has no dtype, shape and data_offsets";
  }
  if (!entry["dtype"].is_string()) return "has a dtype that is not a word";
  tensor.dtype = entry["dtype"].get<std::string>();
  const auto width = element_bytes(tensor.dtype);
  if (!width) return "has the unknown dtype " + tensor.dtype;
  const auto elements = elements_of(entry["shape"], tensor.shape);
  if (!elements) return "has a shape that is not a list of extents";
  const Json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return "has data_offsets that are not two numbers";
  const auto begin = unsigned_in(offsets[0]);
  const auto end = unsigned_in(offsets[1]);
  if (!begin || !end || *begin > *end || *end > data_bytes) return "lies outside the file";
  if (*end - *begin != *elements * *width) {
    return "has " + std::to_string(*end - *begin) + " bytes where its shape needs " +
           std::to_string(*elements * *width);
  }
  tensor.begin = static_cast<std::size_t>(*begin);
  tensor.end = static_cast<std::size_t>(*end);
  return std::nullopt;
}

std::optional<std::string> parse_header(const Json& header, SafetensorsFile& file) {
  if (!header.is_object()) return "the header is not a JSON object";
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return "__metadata__ is not an object";
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return "__metadata__ entry " + key + " is not a string";
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    StoredTensor tensor;
    if (const auto reason = parse_tensor(entry, file.bytes.size(), tensor)) return "tensor " + name + " " + *reason;
    file.tensors[name] = tensor;
  }
  return std::nullopt;
}

template <typename T, typename Convert>
std::vector<float> convert(const unsigned char* source, std::size_t count, Convert to) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, source + i * sizeof(T), sizeof(T));
    values[i] = to(value);
  }
  return values;
}

}  // namespace

std::int64_t StoredTensor::size() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Result<std::vector<float>> SafetensorsFile::floats(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return fail(ErrorKind::kUnreadable, "the file has no tensor " + name);
  const StoredTensor& tensor = found->second;
  const unsigned char* source = bytes.data() + tensor.begin;
  const auto count = static_cast<std::size_t>(tensor.size());
  if (tensor.dtype == "F32") return convert<float>(source, count, [](float x) { return x; });
  if (tensor.dtype == "F64") return convert<double>(source, count, [](double x) { return static_cast<float>(x); });
  if (tensor.dtype == "I32") return convert<std::int32_t>(source, count, [](auto x) { return static_cast<float>(x); });
  if (tensor.dtype == "BF16") {
    return convert<kernels::Bf16>(source, count, [](kernels::Bf16 x) { return kernels::to_float(x); });
  }
  if (tensor.dtype == "F16") {
    return convert<kernels::Fp16>(source, count, [](kernels::Fp16 x) { return kernels::to_float(x); });
  }
  return fail(ErrorKind::kUnreadable,
              "tensor " + name + " is " + tensor.dtype + "; F32, F64, F16, BF16 or I32 can be read as numbers");
}

Result<SafetensorsFile> read_safetensors(const std::string& path) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) return unreadable(path, "it cannot be opened");
  const auto total = static_cast<std::uint64_t>(std::max<std::streamoff>(0, stream.tellg()));
  if (total < kLengthBytes) return unreadable(path, "it is shorter than the 8 bytes of the header's length");
  stream.seekg(0);
  std::uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), kLengthBytes);
  if (length > total - kLengthBytes) {
    return unreadable(path, "the header would be " + std::to_string(length) + " bytes, the file has " +
                                std::to_string(total - kLengthBytes));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(length));
  SafetensorsFile file;
  file.bytes.resize(static_cast<std::size_t>(total - kLengthBytes - length));
  stream.read(reinterpret_cast<char*>(file.bytes.data()), static_cast<std::streamsize>(file.bytes.size()));
  if (!stream) return unreadable(path, "it ended while it was read");
  const Json header = Json::parse(text, nullptr, false);
  if (header.is_discarded()) return unreadable(path, "the header is not JSON");
  if (const auto reason = parse_header(header, file)) return unreadable(path, *reason);
  return file;
}

}  // namespace attnbench::measure
