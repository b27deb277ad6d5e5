#include "isa.h"

#include <cstdlib>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace strata {

namespace {

bool built(Isa isa) {
  switch (isa) {
    case Isa::portable: return true;
#ifdef STRATA_BUILT_avx2
    case Isa::avx2: return true;
#endif
#ifdef STRATA_BUILT_avx512
    case Isa::avx512: return true;
#endif
#ifdef STRATA_BUILT_neon
    case Isa::neon: return true;
#endif
    default: return false;
  }
}

// The compiler's check covers the operating system's part (XCR0) as well.
bool supported(Isa isa) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return v3;
  if (isa == Isa::avx512) {
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
  }
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  if (isa == Isa::neon) return getauxval(AT_HWCAP) & kDotProducts;
#elif defined(__aarch64__) && defined(__APPLE__)
  if (isa == Isa::neon) return true;  // every processor since the M1
#endif
  return isa == Isa::portable;
}

Isa active = best_isa();

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::neon: return "neon";
    default: return "portable";
  }
}

bool isa_available(Isa isa) { return built(isa) && supported(isa); }

Isa best_isa() {
  for (Isa isa : kBestFirst) {
    if (isa_available(isa)) return isa;
  }
  return Isa::portable;
}

Isa active_isa() { return active; }

void set_active_isa(Isa isa) {
  if (!isa_available(isa)) std::abort();
  active = isa;
}

}  // namespace strata
