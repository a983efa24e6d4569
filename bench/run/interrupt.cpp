// Signal handlers that only set a flag, or end the program.
#include "bench/run/interrupt.hpp"

#include <unistd.h>

#include <array>
#include <csignal>

namespace attnbench::run {
namespace {

constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t caught = 0;
std::array<struct sigaction, kSignals.size()> previous;

/// Async-signal-safe: a flag, or the end.
void on_signal(int signal) {
  if (caught != 0) _exit(128 + signal);
  caught = signal;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  caught = 0;
  struct sigaction action {};
  action.sa_handler = &on_signal;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &previous[i]);
    // nohup asks that the end of the terminal is not the end of the program.
    if (kSignals[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &previous[i], nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int interrupt_signal() { return caught; }

}  // namespace attnbench::run
