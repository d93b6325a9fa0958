// 2^x for x in [-0.5, 0.5] as 1 + x (a + x (b + x (...))), by degree; terms from the highest on.
#pragma once

namespace quire {

template <int kDegree>
struct Exp2Terms;

template <>
struct Exp2Terms<3> {  // off by 1.1e-4 of it at most, by 4e-5 on the average
  static constexpr float kTerms[] = {5.50089314e-2f, 2.42210962e-1f, 6.93282927e-1f};
};
template <>
struct Exp2Terms<4> {  // 3e-6
  static constexpr float kTerms[] = {9.58285317e-3f, 5.59064250e-2f, 2.40240986e-1f,
                                     6.93124193e-1f};
};
template <>
struct Exp2Terms<5> {  // 3e-7, with the rounding of f32
  static constexpr float kTerms[] = {1.327647197947940e-3f, 9.675541334216184e-3f,
                                     5.550713273542589e-2f, 2.402211972384848e-1f,
                                     6.931469670647331e-1f};
};

}  // namespace quire
