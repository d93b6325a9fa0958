#include "codec/rotation/rotation.h"

#include <bit>
#include <cmath>

namespace quire {
namespace {

void apply_signs(const TileShape& shape, float* row) noexcept {
  for (int first = 0; first < shape.dim; first += 64) {
    const std::uint64_t signs = sign_word(shape.seed, first / 64);
    const int end = shape.dim - first < 64 ? shape.dim - first : 64;
    for (int i = 0; i < end; ++i) {
      const auto sign = static_cast<std::uint32_t>(signs >> i & 1u) << 31;
      float& x = row[first + i];
      x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign);
    }
  }
}

// Takes 2/p of their sum from `p` numbers `step` apart, for each of `step` neighbours.
void reflect(float* at, int p, int step) noexcept {
  const float part = 2.0f / static_cast<float>(p);
  for (int i = 0; i < step; ++i) {
    float sum = at[i];
    for (int a = 1; a < p; ++a) sum += at[a * step + i];
    const float taken = sum * part;
    for (int a = 0; a < p; ++a) at[a * step + i] -= taken;
  }
}

// Paley's matrix, of `p` numbers `step` apart, for each of `step` neighbours. `turn`: how far the
// next neighbour is, 1 or, to turn back, p - 1.
void apply_paley(float* at, const Paley& paley, int p, int step, int turn) noexcept {
  float x[kMaxRotatedDim / 2];
  for (int i = 0; i < step; ++i) {
    float sum = at[i];
    for (int a = 1; a < p; ++a) sum += at[a * step + i];
    const float of_all = sum * paley.all;
    for (int a = 0; a < p; ++a) x[a] = at[a * step + i];
    for (int a = 0; a < p; ++a) {
      float near = paley.own ? x[a] : 0.0f;
      for (int n = 1, place = a; n < p; ++n) {
        place += turn;
        if (place >= p) place -= p;
        near = paley.added[n / 64] >> (n % 64) & 1 ? near + x[place] : near - x[place];
      }
      at[a * step + i] = near * paley.near + of_all;
    }
  }
}

void transform(float* row, int dim, bool back) noexcept {
  const Transform t = transform_of(dim);
  for (int half = 1; half < t.block; half *= 2) {
    for (int first = 0; first < dim; first += 2 * half) {
      float* low = row + first;
      float* high = low + half;
      for (int i = 0; i < half; ++i) {
        const float u = low[i];
        const float v = high[i];
        low[i] = u + v;
        high[i] = u - v;
      }
    }
  }
  int step = t.block;
  for (const int p : t.factors) {
    if (p == 0) break;
    if (p < kFirstPaley) {
      for (int first = 0; first < dim; first += p * step) reflect(row + first, p, step);
    } else {
      const Paley paley = paley_of(p);
      for (int first = 0; first < dim; first += p * step) {
        apply_paley(row + first, paley, p, step, back ? p - 1 : 1);
      }
    }
    step *= p;
  }
  for (int ch = 0; ch < dim; ++ch) row[ch] *= t.last;
}

}  // namespace

bool rotates(const TileShape& shape) noexcept {
  return shape.dim >= 2 && shape.dim % 2 == 0 && shape.dim <= kMaxRotatedDim;
}

std::uint64_t sign_word(std::uint64_t seed, int index) noexcept {
  // splitmix64, at any place of its sequence.
  std::uint64_t x = seed + (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Transform transform_of(int dim) noexcept {
  Transform t;
  int powers = 0;
  int rest = dim;
  for (; rest % 2 == 0; rest /= 2) ++powers;
  t.block = 1 << powers;
  int found = 0;
  for (int p = 3; rest > 1; p += 2) {
    for (; rest % p == 0; rest /= p) t.factors[found++] = p;
  }
  constexpr float kRootHalf = 0x1.6a09e6p-1f;
  t.last = (powers % 2 == 0 ? 1.0f : kRootHalf) / static_cast<float>(1 << powers / 2);
  return t;
}

Paley paley_of(int p) noexcept {
  Paley paley;
  paley.own = p % 4 == 3;
  paley.near = 1.0f / std::sqrt(static_cast<float>(paley.own ? p + 1 : p));
  paley.all = (paley.own ? 1.0f - paley.near : 1.0f) / static_cast<float>(p);
  for (int root = 1; 2 * root < p; ++root) {
    const int square = root * root % p;
    paley.added[square / 64] |= std::uint64_t{1} << square % 64;
  }
  return paley;
}

void rotate(const TileShape& shape, float* row) noexcept {
  apply_signs(shape, row);
  transform(row, shape.dim, false);
}

void rotate_back(const TileShape& shape, float* row) noexcept {
  transform(row, shape.dim, true);
  apply_signs(shape, row);
}

void rotate_rows(const TileShape& shape, float* rows, std::size_t count,
                 std::size_t stride) noexcept {
  for (std::size_t i = 0; i < count; ++i) rotate(shape, rows + i * stride);
}

void rotate_rows_back(const TileShape& shape, float* rows, std::size_t count,
                      std::size_t stride) noexcept {
  for (std::size_t i = 0; i < count; ++i) rotate_back(shape, rows + i * stride);
}

}  // namespace quire
