// Values of options that are words, not numbers: dtypes, passes, kernels, exclude rules, axis names. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "bench/cli/options.hpp"
#include "bench/plan/axis.hpp"

namespace attnbench::cli {

template <typename T>
using Words = tl::expected<std::vector<T>, plan::SyntaxError>;

/// A comma-separated item and where it starts.
struct Item {
  std::string_view text;
  std::size_t position = 0;
};

/// Splits at `separator`, trims blanks. An empty item is an error.
Words<Item> split_items(std::string_view text, char separator = ',');

/// Looks every item up in a table of words; repeated values are dropped. Error: the place and the nearest word.
template <typename T>
Words<T> parse_words(std::string_view text, std::span<const std::pair<std::string_view, T>> table);

Words<kernels::Dtype> parse_dtypes(std::string_view text);
Words<kernels::Pass> parse_passes(std::string_view text);
Words<bool> parse_causal(std::string_view text);
Words<kernels::CacheState> parse_cache(std::string_view text);
tl::expected<kernels::Timing, plan::SyntaxError> parse_timing(std::string_view text);
tl::expected<bool, plan::SyntaxError> parse_switch(std::string_view text);

/// NAME or NAME:VARIANT; cublas and onednn are taken for blas. Whether a kernel exists, the planner knows.
Words<KernelChoice> parse_kernels(std::string_view text);

/// `a,b` or, for several groups, `a,b;c,d`. Names as in the options, with - or _.
Words<std::vector<std::string>> parse_zip(std::string_view text);

/// `kernel=naive,seq_len=8k:64k;dtype=bf16,d_model=16`: rules end with ';', the terms of a rule must all hold.
Words<ExcludeRule> parse_exclude(std::string_view text);

/// The axes, by the name rows give them (d_model). Zip takes these; exclude takes also kernel, variant and device.
std::span<const std::string_view> axis_names();

}  // namespace attnbench::cli
