// Instruction sets that the flash kernel and its probe are compiled for: include before any Highway header.
#pragma once

// SSSE3 gains nothing over SSE2 here; the scalable sets have no vector arrays, which the micro-kernel is made of.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
