// The reader of safetensors files believes nothing that a header claims.
#include "bench/measure/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace attnbench::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<std::int64_t>;

/// A file with this header, whose length is right, and this data.
std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

base::Result<SafeTensors> parse(const std::string& bytes) {
  return SafeTensors::parse({bytes.begin(), bytes.end()}, "some.safetensors");
}

void expect_refused(const std::string& header, const std::string& reason) {
  const auto file = parse(file_of(header, "12345678"));
  ASSERT_FALSE(file) << header;
  EXPECT_EQ(file.error().kind, base::ErrorKind::kUnreadable);
  EXPECT_THAT(file.error().message, HasSubstr(reason));
  EXPECT_THAT(file.error().message, HasSubstr("some.safetensors"));
}

TEST(Safetensors, GiveTensorsAndMetadata) {
  const float values[2] = {1.5f, -2.0f};
  const std::uint16_t halves[2] = {0x3c00, 0xc000};  // 1, -2
  const std::uint16_t brains[2] = {0x3f80, 0x4040};  // 1, 3
  std::string data(reinterpret_cast<const char*>(values), 8);
  data.append(reinterpret_cast<const char*>(halves), 4).append(reinterpret_cast<const char*>(brains), 4);
  const auto file = parse(file_of(R"({"__metadata__":{"scale":"0.5"},
    "a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},
    "h":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},
    "b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]}})",
                                  data));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("scale"), "0.5");
  EXPECT_THAT(file->tensors().at("a").shape, ElementsAre(2, 1));
  EXPECT_THAT(file->values("a", Shape{2, 1}).value(), ElementsAre(1.5, -2.0));
  EXPECT_THAT(file->values("h", Shape{2}).value(), ElementsAre(1.0, -2.0));
  EXPECT_THAT(file->values("b", Shape{2}).value(), ElementsAre(1.0, 3.0));
}

TEST(Safetensors, GiveIntegersExactly) {
  const std::int32_t values[2] = {2147483647, -9};
  const auto file = parse(file_of(R"({"t":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
                                  std::string(reinterpret_cast<const char*>(values), 8)));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->values("t", Shape{2}).value(), ElementsAre(2147483647.0, -9.0));
}

TEST(Safetensors, NameTheTensorThatIsNotThereOrHasAnotherShape) {
  const auto file = parse(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  ASSERT_TRUE(file);
  EXPECT_THAT(file->values("dq", Shape{2}).error().message, HasSubstr("dq"));
  EXPECT_THAT(file->values("a", Shape{1, 2}).error().message, HasSubstr("1, 2"));
}

TEST(Safetensors, MayHaveEmptyTensors) {
  const auto file = parse(file_of(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", ""));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->values("a", Shape{0, 5})->empty());
}

TEST(Safetensors, RefuseWhatIsNoFile) {
  const auto missing = SafeTensors::load("/nonexistent/file.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, base::ErrorKind::kUnreadable);
  const auto folder = SafeTensors::load("/");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().kind, base::ErrorKind::kUnreadable);
  EXPECT_THAT(folder.error().message, HasSubstr("/ cannot be read: Is a directory"));
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("short"));
  EXPECT_FALSE(parse(std::string(8, '\xff')));
  EXPECT_FALSE(parse(std::string("\x40\0\0\0\0\0\0\0{}", 10)));
}

TEST(Safetensors, RefuseHeadersThatAreNotWhatTheyShouldBe) {
  expect_refused("not json", "JSON");
  expect_refused("[]", "object");
  expect_refused(R"({"a":5})", "tensor a");
  expect_refused(R"({"a":{"dtype":"F32"}})", "tensor a");
  expect_refused(R"({"__metadata__":{"x":1}})", "metadata");
}

TEST(Safetensors, RefuseTensorsThatDoNotFit) {
  expect_refused(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "F31");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "16");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", "tensor a");
  expect_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "shape");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "shape");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", "shape");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "data_offsets");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,4]}})", "data_offsets");
}

TEST(Safetensors, RefuseOverlapsAndHoles) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "leave");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                     "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                 "overlap");
}

TEST(Safetensors, RefuseEveryCutOfAWholeFile) {
  const std::string whole = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, '\0'));
  for (std::size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(parse(whole.substr(0, length))) << length;
  EXPECT_TRUE(parse(whole));
}

}  // namespace
}  // namespace attnbench::measure
