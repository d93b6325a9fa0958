// The instruction sets that kernels are written in, and the one this process uses.
//
// Files named *_avx2.cc and *_avx512.cc are compiled for that set alone. What they define must have
// internal linkage, but for the tables and functions they export: an inline function they share
// with other files could be the copy that the linker keeps.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "quire/result.hpp"

namespace quire {

// In the order of preference; avx2 includes FMA and F16C, avx512 includes F, BW, VL, DQ, VNNI, BF16
// and VBMI.
enum class Isa { scalar, avx2, avx512 };
inline constexpr std::size_t kIsas = 3;

const char* name_of(Isa isa) noexcept;

// Those this machine and this build have, in order; scalar is always there.
std::vector<Isa> isas_found();

// The best one, or the one that the environment variable QUIRE_ISA names. An error when it names
// none, or one that is not found here. Decided once, by the first call.
const Result<Isa>& asked_isa();

// asked_isa, or the best one where it is an error.
Isa chosen_isa() noexcept;

}  // namespace quire
