// Which instruction sets this build and this processor have, and the one in use.
//
// Sources in simd/ are compiled once per instruction set, with STRATA_ISA naming
// the namespace they live in. Such a source must not use anything from the
// standard library that the compiler may emit out of line (containers,
// std::function, streams): the linker keeps one copy of an inline function, and
// the one it keeps may hold instructions that this processor lacks.
#pragma once

namespace strata {

enum class Isa { portable, avx2, avx512, neon };
inline constexpr Isa kBestFirst[] = {Isa::avx512, Isa::avx2, Isa::neon, Isa::portable};

const char* isa_name(Isa isa);
// Built in, and the processor and operating system support it.
bool isa_available(Isa isa);
Isa best_isa();

// The instruction set in use; the best one until told otherwise. Packed weights
// belong to the one they were packed under, so it is set before any packing.
Isa active_isa();
void set_active_isa(Isa isa);

}  // namespace strata
