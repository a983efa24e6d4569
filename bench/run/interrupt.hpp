// Ctrl-C, SIGTERM and the loss of the terminal as a flag that is looked at between samples.
#pragma once

namespace attnbench::run {

/// Takes over SIGINT, SIGTERM and (unless nohup had it ignored) SIGHUP while it lives. The first signal sets the flag,
/// so that what was measured is kept; a second one ends the program at once. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// The signal that asked to stop, 0 when none did.
int interrupt_signal();
inline bool interrupted() { return interrupt_signal() != 0; }
/// 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, as a shell would say of a program that one of them ended.
inline int interrupt_exit_code() { return 128 + interrupt_signal(); }

}  // namespace attnbench::run
