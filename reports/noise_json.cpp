// Noise floors to JSON and back.
#include "reports/noise_json.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "reports/columns.hpp"
#include "reports/rows_io.hpp"

namespace attnbench::reports {
namespace {

using base::ErrorKind;
using base::fail;
using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kVersionKey = "attnbench_noise";
constexpr std::uintmax_t kMostBytes = 1 << 28;

tl::unexpected<base::Error> wrong(const std::string& source, const std::string& what) {
  return fail(ErrorKind::kUnreadable,
              fmt::format("{}: {}; give a file that `attnbench noise --write` wrote", source, what));
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Into `noise`; a sentence on what is wrong with the row, or nothing.
std::string add_row(Noise& noise, const Json& json) {
  if (!json.is_object()) return "a row is not an object";
  const std::string key = text_of(json, "key");
  if (key.empty()) return "a row has no key";
  const auto floor = json.find("floor_pct");
  if (floor == json.end() || !floor->is_number() || !(floor->get<double>() >= 0)) {
    return fmt::format("{} has no floor_pct of 0 or more", key);
  }
  NoiseFloor row;
  row.floor_pct = floor->get<double>();
  const auto medians = json.find("medians_us");
  if (medians != json.end() && medians->is_array()) {
    for (const Json& median : *medians) {
      if (!median.is_number()) return fmt::format("medians_us of {} must hold numbers", key);
      row.medians_us.push_back(median.get<double>());
    }
  }
  return noise.rows.emplace(key, std::move(row)).second ? "" : fmt::format("{} is there twice", key);
}

}  // namespace

Noise noise_of(const std::vector<Document>& launches) {
  Noise noise;
  for (const Document& launch : launches) {
    for (const Row& row : launch.rows) {
      if (noise.fingerprint.empty()) noise.fingerprint = row.fingerprint;
      if (noise.commit.empty()) noise.commit = row.commit;
      if (row.time_us_median && *row.time_us_median > 0) noise.rows[row.key].medians_us.push_back(*row.time_us_median);
    }
  }
  std::erase_if(noise.rows, [](const auto& entry) { return entry.second.medians_us.size() < 2; });
  for (auto& [key, floor] : noise.rows) {
    const auto [low, high] = std::minmax_element(floor.medians_us.begin(), floor.medians_us.end());
    floor.floor_pct = 100 * (*high / *low - 1);
  }
  return noise;
}

std::string to_json(const Noise& noise) {
  std::string json = fmt::format("{{\"{}\":{},\"fingerprint\":{},\"commit\":{},\"rows\":[", kVersionKey, kVersion,
                                 json_quote(noise.fingerprint), json_quote(noise.commit));
  const char* separator = "\n";
  for (const auto& [key, floor] : noise.rows) {
    std::string medians;
    for (const double median : floor.medians_us) medians.append(medians.empty() ? "" : ",").append(number_text(median));
    json += fmt::format("{}{{\"key\":{},\"floor_pct\":{},\"medians_us\":[{}]}}", separator, json_quote(key),
                        number_text(floor.floor_pct), medians);
    separator = ",\n";
  }
  return json + "\n]}\n";
}

base::Result<Noise> parse_noise(std::string_view bytes, const std::string& source) {
  const Json json = Json::parse(bytes, nullptr, false);
  if (json.is_discarded()) return wrong(source, "this is not JSON");
  const auto version = json.is_object() ? json.find(kVersionKey) : json.end();
  if (!json.is_object() || version == json.end()) return wrong(source, "these are not noise floors");
  if (!version->is_number_integer() || version->get<std::int64_t>() != kVersion) {
    return wrong(source, fmt::format("version {} is not known, only {}", version->dump(), kVersion));
  }
  const auto rows = json.find("rows");
  if (rows == json.end() || !rows->is_array()) return wrong(source, "there is no array of rows");
  Noise noise{text_of(json, "fingerprint"), text_of(json, "commit"), {}};
  for (const Json& row : *rows) {
    if (const std::string fault = add_row(noise, row); !fault.empty()) return wrong(source, fault);
  }
  return noise;
}

base::Result<Noise> load_noise(const std::string& path) {
  const auto cannot = [&path](const std::string& why) {
    return fail(ErrorKind::kUnreadable, fmt::format("cannot read {}: {}", path, why));
  };
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return cannot(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) return cannot("not a file");
  if (static_cast<std::uintmax_t>(facts.st_size) > kMostBytes) return cannot("longer than 256 MiB");
  std::ifstream file(path, std::ios::binary);
  if (!file) return cannot(std::strerror(errno));
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return parse_noise(bytes, path);
}

}  // namespace attnbench::reports
