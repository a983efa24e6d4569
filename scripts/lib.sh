# Set-up shared by scripts/attnbench, scripts/test and .ci/run: find what is missing, install it, configure, build.
# Sourced by bash with $root set to the top of the checkout. Everything printed here goes to stderr.

readonly build="$root/build"
readonly stamp="$build/.attnbench-ready"    # newer than every source when the program is up to date
readonly choice="$build/.attnbench-choice"  # the ATTNBENCH_CUDA and the CUDA compiler of the last build
readonly exit_usage=2 exit_absent=4

readonly program_packages=(
  ca-certificates cmake g++ git libbenchmark-dev libboost-math-dev libcli11-dev libdnnl-dev libexpected-dev libfmt-dev
  libhwy-dev libtomlplusplus-dev ninja-build nlohmann-json3-dev ocl-icd-opencl-dev)
readonly test_packages=(libgmock-dev libgtest-dev libopenmpi-dev openmpi-bin python3)

say() { printf 'attnbench: %s\n' "$*" >&2; }

die() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# What the build is asked for: ATTNBENCH_CUDA if it is set, else what the last build was given, else AUTO.
# Sets cuda (AUTO, ON or OFF) and nvcc (a path, or empty).
read_choice() {
  local last_cuda=AUTO
  if [[ -r $choice ]]; then read -r last_cuda _ <"$choice" || true; fi
  cuda=${ATTNBENCH_CUDA:-$last_cuda}
  cuda=${cuda^^}
  nvcc=
  if [[ $cuda != OFF ]]; then
    nvcc=${CUDACXX:-$(type -P nvcc || true)}
    if [[ -z $nvcc && -x /usr/local/cuda/bin/nvcc ]]; then nvcc=/usr/local/cuda/bin/nvcc; fi
  fi
}

# Whether build/attnbench is newer than everything it is made from. This runs before every start of the program, so it
# costs one find. A folder is newer when a file in it was added, renamed or removed; .git/logs/HEAD is newer after a
# commit, which the rows carry.
up_to_date() {
  local folder head="$root/.git" sources=("$root/CMakeLists.txt" "$root/scripts/lib.sh")
  [[ -x $build/attnbench ]] && same_choice || return 1
  for folder in kernels bench reports fsdp; do
    if [[ -d $root/$folder ]]; then sources+=("$root/$folder"); fi
  done
  if [[ -f $root/.git ]]; then read -r _ head <"$root/.git"; fi  # a work tree of git's says where its folder is
  if [[ -f $head/logs/HEAD ]]; then sources+=("$head/logs/HEAD"); fi
  [[ -f $stamp && -z $(find "${sources[@]}" -newer "$stamp" -print -quit 2>&1) ]]
}

# Installs the named Debian packages that are missing, or says what to type.
need_packages() {
  if ! type -P apt-get dpkg-query >/dev/null; then
    need_tools_without_apt "$@"
    return
  fi
  local missing=() package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
      missing+=("$package")
    fi
  done
  if ((${#missing[@]} == 0)); then return; fi
  local as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      say "some packages are missing, and this user may not install them. Type this, then run the same command again:"
      printf '\n  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n\n' "${missing[*]}" >&2
      exit $exit_absent
    fi
    as_root=(sudo -n)
  fi
  say "installing ${missing[*]}"
  local log
  log=$(mktemp)
  # A failed update is not the end: an unrelated source may be down while the packages are to be had.
  "${as_root[@]}" apt-get update >"$log" 2>&1 </dev/null || say "apt-get update failed; trying to install all the same"
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
    >>"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    die $exit_absent "apt-get could not install ${missing[*]} (its last lines are above)"
  fi
  rm -f "$log"
}

need_tools_without_apt() {
  local tool
  for tool in cmake ninja c++; do
    type -P "$tool" >/dev/null ||
      die $exit_absent "no $tool, and no apt-get to install it; install what these Debian packages hold, then run" \
        "the same command again: $*"
  done
}

# How many compilers to run at once: one per core, where each has the 4 GiB that the largest source needs (two at the
# least, which fit in less). CMAKE_BUILD_PARALLEL_LEVEL wins.
build_jobs() {
  if [[ -n ${CMAKE_BUILD_PARALLEL_LEVEL:-} ]]; then
    echo "$CMAKE_BUILD_PARALLEL_LEVEL"
    return
  fi
  local cores kib key rest fit
  cores=$(nproc)
  while read -r key kib rest; do
    if [[ $key == MemAvailable: ]]; then break; fi
  done </proc/meminfo
  fit=$((${kib:-0} / (4 * 1024 * 1024)))
  if ((fit < 2)); then fit=2; fi
  echo $((cores < fit ? cores : fit))
}

# Runs a command with its output in a log: a moving line on a terminal, silence elsewhere, the log's end on failure.
quietly() {
  local log=$1 status=0 line
  shift
  if [[ -t 2 ]]; then
    "$@" 2>&1 </dev/null | while IFS= read -r line; do
      printf '%s\n' "$line"
      if [[ $line == \[*/*\]\ * ]]; then printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$line" >&2; fi
    done >"$log" || status=$?
    printf '\r\033[K' >&2
  else
    "$@" >"$log" 2>&1 </dev/null || status=$?
  fi
  if ((status != 0)); then
    # The first failure and what follows it; a failed configuration has no such line and shows its end.
    if ! grep -q '^FAILED: ' "$log"; then tail -n 60 "$log" >&2; else
      awk '/^FAILED: / { on = 1 } on' "$log" | head -n 80 >&2
    fi
    die $exit_absent "set-up failed: $* (whole output: $log)"
  fi
}

check_choice() {
  case $cuda in
    AUTO | OFF) ;;
    ON)
      [[ -n $nvcc ]] || die $exit_absent "ATTNBENCH_CUDA=ON needs a CUDA compiler, and there is no nvcc on PATH or in" \
        "/usr/local/cuda/bin; set CUDACXX to its path, or ATTNBENCH_CUDA=OFF"
      ;;
    *) die $exit_usage "ATTNBENCH_CUDA=$cuda is none of AUTO, ON, OFF" ;;
  esac
}

same_choice() {
  local last=
  [[ -r $choice ]] && read -r last <"$choice" && [[ $last == "$cuda ${nvcc:-none}" ]]
}

# configure ARGS...: (re)writes the build files of build/. The choice is kept first, so that a failure does not lose it;
# build.ninja goes, so that the next run configures again after one.
configure() {
  local options=(-S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DATTNBENCH_CUDA=$cuda") extra=()
  if [[ -n $nvcc ]]; then options+=("-DCMAKE_CUDA_COMPILER=$nvcc"); fi
  read -r -a extra <<<"${ATTNBENCH_CMAKE_ARGS:-}"
  rm -f "$stamp" "$build/build.ninja"
  printf '%s %s\n' "$cuda" "${nvcc:-none}" >"$choice"
  # A plugin left by an earlier build would still be opened by a program built without CUDA.
  if [[ $cuda == OFF ]]; then rm -f "$build/libattnbench_cuda.so"; fi
  quietly "$build/configure.log" cmake "${options[@]}" "${extra[@]}" "$@"
}

announce_build() {
  if [[ -x $build/attnbench ]]; then
    if [[ $1 == all ]]; then say "building the program and the tests"; else say "sources changed: building"; fi
    return
  fi
  say "first run: building the program into $build (a few minutes; log in build/build.log)"
  if [[ -n $nvcc ]]; then
    say "found $nvcc: the CUDA kernels are built too, up to 25 minutes on two cores." \
      "To go without: ATTNBENCH_CUDA=OFF ./scripts/attnbench ..."
  fi
}

# set_up program|all: everything from a bare machine to an up-to-date build/. One process at a time does it; the others
# wait and find it done.
set_up() {
  local what=$1 packages=("${program_packages[@]}") options=()
  check_choice
  if [[ $what == all ]]; then packages+=("${test_packages[@]}") options+=(-DATTNBENCH_TESTS=ON); fi
  mkdir -p "$build"
  exec 9>"$build/.attnbench-lock"
  if ! flock -n 9; then
    say "another process is building; waiting for it"
    flock 9
  fi
  if [[ $what == all ]] || ! up_to_date; then
    need_packages "${packages[@]}"
    announce_build "$what"
    # The stamp is of before the build: a source that changes meanwhile is newer.
    local started="$build/.attnbench-started"
    : >"$started"
    # The tests need more packages: they stay off until scripts/test turns them on.
    if [[ ! -f $build/CMakeCache.txt && $what == program ]]; then options+=(-DATTNBENCH_TESTS=OFF); fi
    if [[ $what == all || ! -f $build/build.ninja ]] || ! same_choice; then configure "${options[@]}"; fi
    quietly "$build/build.log" cmake --build "$build" --target "$what" --parallel "$(build_jobs)"
    mv -f "$started" "$stamp"
  fi
  exec 9>&-
}

# run_tests TREE ARGS...: every test of a build tree (ARGS go to ctest), why each skipped one was, and the closing line.
run_tests() {
  local tree=$1 results status=0 summary=0
  shift
  results=$(mktemp)
  ctest --test-dir "$tree" --no-tests=error --output-on-failure --output-junit "$results" --timeout 600 \
    -j "$(nproc)" "$@" || status=$?
  "$root/scripts/ctest_summary" "$results" || summary=$?
  rm -f "$results"
  ((status == 0 && summary == 0)) || return 1
}
