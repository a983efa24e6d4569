#!/usr/bin/env bash
# Builds the flash developer's benchmark without CMake: build_flash_bench.sh OUT_DIR [JOBS] [WIDTHS...]
# Objects newer than every source they could depend on are kept. ARCH (default 90a) picks the machine code.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
out=$1
jobs=${2:-$(nproc)}
shift; shift || true
arch=${ARCH:-90a}
widths=${*:-16 32 64 96 128 192 256}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"
flags="-std=c++20 -O3 -I. ${EXPECTED_INCLUDE:-} -gencode=arch=compute_$arch,code=sm_$arch -Xptxas -v"
sources="kernels/cuda/dev/flash_bench.cu kernels/cuda/flash.cu kernels/cuda/flash_prepare.cu"
for d in $widths; do sources="$sources kernels/cuda/flash_bwd_d$d.cu kernels/cuda/flash_fwd_d$d.cu"; done
newest=$(ls -t kernels/cuda/*.cuh kernels/cuda/*.hpp | head -1)
compile() {
  object=$out/$(basename "$1").o
  newest=$2
  if [ "$object" -nt "$1" ] && [ "$object" -nt "$newest" ]; then exit 0; fi
  # shellcheck disable=SC2086
  nvcc $3 -c "$1" -o "$object" > "$object.log" 2>&1 || { grep -E "error|fatal" "$object.log"; rm -f "$object"; exit 255; }
}
export -f compile
export out
printf '%s\n' $sources | xargs -P "$jobs" -I{} bash -c 'compile "$@"' _ {} "$newest" "$flags"
g++ -std=c++20 -O2 -I. ${EXPECTED_INCLUDE:-} -c kernels/device/device.cpp -o "$out/device.o"
objects=$(for s in $sources; do echo "$out/$(basename "$s").o"; done)
# shellcheck disable=SC2086
nvcc -gencode=arch=compute_$arch,code=sm_$arch -cudart static -Xcompiler -static-libstdc++,-static-libgcc $objects "$out/device.o" -o "$out/flash_bench"
strip "$out/flash_bench"
cat "$out"/*.o.log | c++filt | sed 's/attnbench::kernels::flash_cuda:://g' | awk '/Compiling/{name=$0; sub(/.*function ./,"",name); sub(/>\(.*/,"",name)} /spill/{spill=$0; sub(/^ */,"",spill)} /Used/{print $5, "registers,", spill, "|", name}' > "$out/registers.txt"
