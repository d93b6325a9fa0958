// The levels of tq: for b bits the 2^b numbers that stand for a normal variable with the least mean
// square error (Lloyd-Max), and where one level ends and the next begins.
//
// Both are symmetric, so only the positive halves are here. A level is the mean of the normal
// variable between its two borders, a border is the middle between two levels; both hold to the
// last digit of f32 but for 6 bits, and tests/codec/tq_test.cc checks them against integrals. Mean
// square errors:
//
//     bits     2         3         4          5          6
//     error    0.117482  0.034548  0.0095010  0.0025047  0.00066251
//
// The same levels serve all head sizes: levels made for a sphere of 64 dimensions instead of a
// normal variable would gain 0.3 %.
//
// Everything here has internal linkage: files compiled for an instruction set use it too.
#pragma once

namespace quire {
namespace {

template <int kBits>
struct Codebook;

template <>
struct Codebook<2> {
  static constexpr float kLevels[2] = {0.452780035f, 1.51041761f};
  static constexpr float kBorders[1] = {0.981598822f};
};

template <>
struct Codebook<3> {
  static constexpr float kLevels[4] = {0.245094179f, 0.756005281f, 1.34390928f, 2.15194570f};
  static constexpr float kBorders[3] = {0.500549730f, 1.04995728f, 1.74792749f};
};

template <>
struct Codebook<4> {
  static constexpr float kLevels[8] = {0.128395030f, 0.388048299f, 0.656759119f, 0.942340456f,
                                       1.25623120f,  1.61804639f,  2.06901723f,  2.73258957f};
  static constexpr float kBorders[7] = {0.258221665f, 0.522403709f, 0.799549788f, 1.09928583f,
                                        1.43713879f,  1.84353181f,  2.40080340f};
};

template <>
struct Codebook<5> {
  static constexpr float kLevels[16] = {0.0658896598f, 0.198051830f, 0.331378306f, 0.466699523f,
                                        0.604933624f,  0.747135704f, 0.894565117f, 1.04878332f,
                                        1.21180438f,   1.38634034f,  1.57622808f,  1.78723322f,
                                        2.02872840f,   2.31773940f,  2.69111958f,  3.26073249f};
  static constexpr float kBorders[15] = {0.131970745f, 0.264715068f, 0.399038914f, 0.535816573f,
                                         0.676034664f, 0.820850411f, 0.971674219f, 1.13029385f,
                                         1.29907236f,  1.48128421f,  1.68173065f,  1.90798081f,
                                         2.17323390f,  2.50442949f,  2.97592604f};
};

// Multiples of one step, so that kernels multiply them as bytes without rounding: 2.8 % more error
// than the best levels.
template <>
struct Codebook<6> {
  static constexpr float kStep = 0.03478f;
  static constexpr float kLevels[32] = {
      1 * kStep,  3 * kStep,  5 * kStep,  7 * kStep,  9 * kStep,  11 * kStep, 13 * kStep,
      15 * kStep, 17 * kStep, 19 * kStep, 21 * kStep, 23 * kStep, 25 * kStep, 27 * kStep,
      29 * kStep, 32 * kStep, 34 * kStep, 37 * kStep, 39 * kStep, 42 * kStep, 45 * kStep,
      48 * kStep, 51 * kStep, 54 * kStep, 58 * kStep, 62 * kStep, 66 * kStep, 71 * kStep,
      77 * kStep, 84 * kStep, 93 * kStep, 108 * kStep};
  static constexpr float kBorders[31] = {
      2.0f * kStep,  4.0f * kStep,  6.0f * kStep,  8.0f * kStep,  10.0f * kStep, 12.0f * kStep,
      14.0f * kStep, 16.0f * kStep, 18.0f * kStep, 20.0f * kStep, 22.0f * kStep, 24.0f * kStep,
      26.0f * kStep, 28.0f * kStep, 30.5f * kStep, 33.0f * kStep, 35.5f * kStep, 38.0f * kStep,
      40.5f * kStep, 43.5f * kStep, 46.5f * kStep, 49.5f * kStep, 52.5f * kStep, 56.0f * kStep,
      60.0f * kStep, 64.0f * kStep, 68.5f * kStep, 74.0f * kStep, 80.5f * kStep, 88.5f * kStep,
      100.5f * kStep};
};

}  // namespace
}  // namespace quire
