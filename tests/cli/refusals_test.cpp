// What the program refuses: exit code 2 (4 for what is absent), one sentence on standard error, nothing on the other.
#include <gmock/gmock.h>

#include "tests/cli/program.hpp"

namespace attnbench::tests {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Refusal {
  const char* arguments;
  int code;
  const char* message;
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithTheExitCodeAndAHint) {
  const Outcome outcome = run_program(GetParam().arguments);
  EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: "));
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, Refused,
    testing::Values(
        Refusal{"swep", 2, "did you mean \"sweep\"?"}, Refusal{"sweep --seq-length 1k", 2, "did you mean --seq-len?"},
        Refusal{"sweep --seq-len 256,1o24", 2, "  256,1o24\n       ^\n"},
        Refusal{"sweep --seq-len 4k:1k", 2, "reversed"}, Refusal{"sweep --seq-len 99999999999999999999", 2, "64 bits"},
        Refusal{"sweep --dry-run --device cpu --kernels flahs", 2, "did you mean \"flash\"?"},
        Refusal{"sweep --dry-run --device cpu --exclude device=cpu", 2, "selection is empty"},
        Refusal{"sweep --dry-run --device cpu --d-model 16 --heads 3", 2, "not a multiple of --heads 3"},
        Refusal{"sweep --dry-run --device gpu", 2, "is not a device"},
        Refusal{"sweep --dry-run --device cpu:7", 4, "--device cpu:7"},
        Refusal{"sweep --dry-run --device cpu --timing graph", 2, "use auto or wall"},
        Refusal{"sweep --device mock --timing events", 2, "--timing events does not exist on mock"},
        Refusal{"gbench --device mock --timing wall", 2, "use auto or declared"},
        Refusal{"sweep --dry-run --device cpu --exclude kernel=flsh", 2, "did you mean \"flash\"?"},
        Refusal{"sweep --dry-run --device cpu --exclude kernel=naive:nosuch", 2, "known: loops"},
        Refusal{"sweep --dry-run --device cpu --exclude device=nosuch", 2, "one of cpu, cuda, mock"},
        Refusal{"sweep --dry-run --device cpu --exclude cache=both", 2, "one of cold, hot"},
        Refusal{"sweep --dry-run --device cpu --baseline naive:nosuch", 2, "known: loops"},
        Refusal{"sweep --device mock --quiet=maybe", 2, "--quiet: 'maybe' is not known\n  maybe\n  ^\n"},
        Refusal{"sweep --config /", 5, "it is a directory"},
        Refusal{"sweep --dry-run --device cpu --scale 1e39", 2, "not a number from 1.2e-38 to 3.4e+38"},
        Refusal{"sweep --dry-run --device cpu --scale 1e-39", 2, "not a number from 1.2e-38"},
        Refusal{"sweep --dry-run --device cpu --seq-len 1:10000 --batch 1:10000", 2, "10000 batch x 3 d_model"},
        Refusal{"verify " ATTNBENCH_SOURCE_DIR "/tests/golden --device cpu --kernels naive,flahs", 2,
                "did you mean \"flash\"?"},
        Refusal{"sweep --csv - --json -", 2, "both write to standard output"},
        Refusal{"sweep --config /no/such/file", 5, "cannot be read: No such file"},
        Refusal{"list kernel", 2, "did you mean \"kernels\"?"}, Refusal{"explain tflop", 2, "did you mean \"tflops\"?"},
        Refusal{"report", 2, "report needs RUN"}));

TEST(Refusals, AWrongVariableIsNamed) {
  const Outcome outcome = run_program("sweep --dry-run --device cpu", "ATTNBENCH_DTYPE=fp23");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ATTNBENCH_DTYPE"));
}

TEST(Refusals, AMistypedVariableIsNotIgnored) {
  const Outcome outcome = run_program("sweep --dry-run --device cpu", "ATTNBENCH_SEQLEN=64");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "error: unknown variable ATTNBENCH_SEQLEN; did you mean ATTNBENCH_SEQ_LEN?\n");
}

}  // namespace
}  // namespace attnbench::tests
