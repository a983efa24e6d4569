// Values of options as text, for the help: what is printed there is what the fields hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/options.hpp"

namespace attnbench::cli::shown {

/// Numbers as the option takes them; `empty` says what an empty list stands for.
std::string axis(std::span<const std::int64_t> values, std::string_view empty = {});
std::string windows(std::span<const std::int64_t> values);
std::string threads(std::span<const int> values);

std::string dtypes(std::span<const kernels::Dtype> values);
std::string passes(std::span<const kernels::Pass> values);
std::string caches(std::span<const kernels::CacheState> values);
std::string causal(const std::vector<bool>& values);

/// With nothing set, what each kind of device takes.
std::string sweep_dtypes(const std::optional<std::vector<kernels::Dtype>>& values);
std::string verify_dtypes(const std::optional<std::vector<kernels::Dtype>>& values);
std::string kernels(const std::vector<KernelChoice>& values);

/// `list` reads auto as everything that can be measured, the others as the best of it.
std::string devices(const std::vector<std::string>& values, bool listing);

std::string scale(std::optional<double> value);
std::string seconds(double value);
std::string run_limit(double value);
std::string number(double value);
std::string thermal(bool sustained);
/// How samples are taken, as options; what keys hold (cache, deterministic) is left out.
std::string sampling(const Sampling& value);
std::string color(Color value);
/// Only a sweep keeps its rows unasked.
std::string out_dir(const std::string& value, bool kept_unasked);

}  // namespace attnbench::cli::shown
