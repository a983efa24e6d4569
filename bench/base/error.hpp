// Two kinds of error: a programmer's (ensure, aborts, on in release) and an operating one (Result<T>).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace attnbench::base {

/// What kind of operating error happened; the command line maps each to an exit code, the runner to a row status.
enum class ErrorKind {
  kUsage,        // wrong flag, wrong value, empty selection
  kAbsent,       // a backend, device or library that is not here
  kUnreadable,   // an input file that cannot be read as what it should be
  kOutOfMemory,  // an allocation failed
  kUnsupported,  // a kernel declines the problem, by name and reason
  kTimeout,      // a time limit was reached
  kDeviceLost,   // the device cannot be used any more (sticky error)
  kInterrupted,  // the user asked to stop
  kFailed,       // anything else that went wrong while running
};

/// An operating error: a full sentence that says what was asked, what is wrong and what to type instead.
struct Error {
  ErrorKind kind = ErrorKind::kFailed;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error{kind, std::move(message)});
}

/// Exit codes of the program. Fixed: scripts and CI jobs depend on them.
namespace exit_code {
inline constexpr int kOk = 0;
inline constexpr int kGateFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRowFailed = 3;
inline constexpr int kBackendAbsent = 4;
inline constexpr int kUnreadable = 5;
inline constexpr int kTimeLimit = 124;
inline constexpr int kInterrupted = 130;
inline constexpr int kTerminated = 143;
}  // namespace exit_code

/// Exit code of an error that ends a verb.
inline int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return exit_code::kUsage;
    case ErrorKind::kAbsent:
      return exit_code::kBackendAbsent;
    case ErrorKind::kUnreadable:
      return exit_code::kUnreadable;
    case ErrorKind::kTimeout:
      return exit_code::kTimeLimit;
    case ErrorKind::kInterrupted:
      return exit_code::kInterrupted;
    default:
      return exit_code::kRowFailed;
  }
}

/// Aborts with the place and the sentence: for what only a mistake in this program can break. On in release.
#define ATTNBENCH_ENSURE(condition, sentence)                                                                          \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::fprintf(stderr, "attnbench: internal error at %s:%d: %s (%s)\n", __FILE__, __LINE__, sentence, #condition); \
      std::abort();                                                                                                    \
    }                                                                                                                  \
  } while (false)

}  // namespace attnbench::base
