// The levels of tq: for b bits the 2^b numbers that stand for a normal variable with the least mean
// square error (Lloyd-Max), and where one level ends and the next begins.
//
// Both are symmetric, so only the positive halves are here. A level is the mean of the normal
// variable between its two borders, a border is the middle between two levels; both hold to the
// last digit of f32 but for 6 bits, and tests/codec/tq_test.cc checks them against integrals. Mean
// square errors:
//
//     bits     2         3         4          5          6
//     error    0.117482  0.034548  0.0095010  0.0025047  0.00068458
//
// Codes count the levels from level kFirst up, where 0 is the largest negative one, and behind the
// last from the first on.
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
  static constexpr int kFirst = 0;
  static constexpr float kLevels[2] = {0.452780035f, 1.51041761f};
  static constexpr float kBorders[1] = {0.981598822f};
};

template <>
struct Codebook<3> {
  static constexpr int kFirst = 0;
  static constexpr float kLevels[4] = {0.245094179f, 0.756005281f, 1.34390928f, 2.15194570f};
  static constexpr float kBorders[3] = {0.500549730f, 1.04995728f, 1.74792749f};
};

template <>
struct Codebook<4> {
  static constexpr int kFirst = 0;
  static constexpr float kLevels[8] = {0.128395030f, 0.388048299f, 0.656759119f, 0.942340456f,
                                       1.25623120f,  1.61804639f,  2.06901723f,  2.73258957f};
  static constexpr float kBorders[7] = {0.258221665f, 0.522403709f, 0.799549788f, 1.09928583f,
                                        1.43713879f,  1.84353181f,  2.40080340f};
};

template <>
struct Codebook<5> {
  static constexpr int kFirst = 0;
  static constexpr float kLevels[16] = {0.0658896598f, 0.198051830f, 0.331378306f, 0.466699523f,
                                        0.604933624f,  0.747135704f, 0.894565117f, 1.04878332f,
                                        1.21180438f,   1.38634034f,  1.57622808f,  1.78723322f,
                                        2.02872840f,   2.31773940f,  2.69111958f,  3.26073249f};
  static constexpr float kBorders[15] = {0.131970745f, 0.264715068f, 0.399038914f, 0.535816573f,
                                         0.676034664f, 0.820850411f, 0.971674219f, 1.13029385f,
                                         1.29907236f,  1.48128421f,  1.68173065f,  1.90798081f,
                                         2.17323390f,  2.50442949f,  2.97592604f};
};

// Halves of one step, and whole steps apart up to the 24th, so that kernels multiply them as bytes
// without rounding, and find most of them without a table: 6.3 % more error than the best levels.
template <>
struct Codebook<6> {
  static constexpr int kFirst = 8;
  static constexpr float kStep = 0.07667f;
  static constexpr float kLevels[32] = {
      0.5f * kStep,  1.5f * kStep,  2.5f * kStep,  3.5f * kStep,  4.5f * kStep,  5.5f * kStep,
      6.5f * kStep,  7.5f * kStep,  8.5f * kStep,  9.5f * kStep,  10.5f * kStep, 11.5f * kStep,
      12.5f * kStep, 13.5f * kStep, 14.5f * kStep, 15.5f * kStep, 16.5f * kStep, 17.5f * kStep,
      18.5f * kStep, 19.5f * kStep, 20.5f * kStep, 21.5f * kStep, 22.5f * kStep, 23.5f * kStep,
      25.5f * kStep, 27.5f * kStep, 29.5f * kStep, 31.5f * kStep, 34.5f * kStep, 37.5f * kStep,
      41.5f * kStep, 48.5f * kStep};
  static constexpr float kBorders[31] = {
      1.0f * kStep,  2.0f * kStep,  3.0f * kStep,  4.0f * kStep,  5.0f * kStep,  6.0f * kStep,
      7.0f * kStep,  8.0f * kStep,  9.0f * kStep,  10.0f * kStep, 11.0f * kStep, 12.0f * kStep,
      13.0f * kStep, 14.0f * kStep, 15.0f * kStep, 16.0f * kStep, 17.0f * kStep, 18.0f * kStep,
      19.0f * kStep, 20.0f * kStep, 21.0f * kStep, 22.0f * kStep, 23.0f * kStep, 24.5f * kStep,
      26.5f * kStep, 28.5f * kStep, 30.5f * kStep, 33.0f * kStep, 36.0f * kStep, 39.5f * kStep,
      45.0f * kStep};
};

}  // namespace
}  // namespace quire
