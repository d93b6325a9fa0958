// The loop of all kernels, for one instruction set: include after base/lanes_<set>.h.
//
// Keys and values differ only in what lies along the lanes. A vector of codes holds, for each of
// kLanes lanes, `pack` neighbours that one instruction multiplies: lanes are tokens and neighbours
// channels for keys, lanes are channels and neighbours tokens for values. Vectors that follow each
// other along the sum are `step_bytes` apart, those of the next 16 lanes `tile_bytes`:
//
//     for each step: load N vectors; for each of R rows: spread its weights, add N products
//
// so that a vector is loaded and unpacked once for R rows, and a row's weights once for N vectors.
// `Ops` says how a codec does that:
//
//     kPack, kCodeBytes   of the tiles
//     kHeaderBytes        what stands before the weights of a prepared row (kQueryHeaderBytes: of a
//                         prepared query)
//     kStepBytes          weights of one step
//     kMaxRows, vectors(R)  R at most, and N of R rows: what fits the registers
//     kInTwos             whether steps are counted in twos
//     Sum, zero()         sums of one vector
//     Operand load(data)  one vector of codes, unpacked
//     Weight weight(at)   one row's weights of a step, in all lanes
//     add(sum, operand, weight)
//     Header header(row, part)           what stands before the weights of a row, for one part
//     score(sum, header, scales)         a sum of keys as logits; scales: of its lanes, or null
//     mixed(sum, header)                 a sum of values as floats
//     kQueryRest          whether a query has a rest, at query_rest_at(dim), that is multiplied too
//                         where the header of one of the rows begins with something but 0
//
// Everything here has internal linkage on purpose.
#pragma once

#include <cstddef>

#include "codec/kernel.h"
#include "codec/prefetcher.h"

// QUIRE_INLINE of a lambda, behind its parameters: sums that are handed to a call would lie in
// memory.
#define QUIRE_INLINED __attribute__((always_inline))

namespace quire {
namespace {

constexpr int kTile = 16;  // lanes of a tile
constexpr int kVectorsPerTile = kTile / kLanes;

// Where the vectors of a sum lie. kTileBytes: 0 where only the page knows it.
template <int kTileBytes = 0>
struct Lines {
  static constexpr bool kNearest = true;  // what comes is fetched into the nearest cache, if it can
  const std::byte* data;
  std::ptrdiff_t some_tile_bytes;
  std::ptrdiff_t step_bytes;
  int steps;

  // What a step reads for N vectors.
  template <class Ops, int N>
  static constexpr int kReadBytes = (N * kLanes) * (Ops::kPack * Ops::kCodeBytes);
  // How often a block asks for what comes next.
  template <class Ops, int N>
  QUIRE_INLINE int asks() const {
    return steps;
  }

  QUIRE_INLINE std::ptrdiff_t tile_bytes() const {
    return kTileBytes > 0 ? kTileBytes : some_tile_bytes;
  }
  QUIRE_INLINE void advance(int tiles) { data += tiles * tile_bytes(); }
};

// One step: N vectors, each load(n), times the weights of R rows. What there is less of is held, so
// that with the sums it fits the registers.
template <class Ops, int R, int N, class Load>
QUIRE_INLINE void add_step(const Load& load, const std::byte* weights, std::ptrdiff_t row_bytes,
                           typename Ops::Sum (&sums)[R][N]) {
  if constexpr (R < N) {
    typename Ops::Weight w[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) w[r] = Ops::weight(weights + r * row_bytes);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const typename Ops::Operand x = load(n);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) Ops::add(sums[r][n], x, w[r]);
    }
  } else {
    typename Ops::Operand x[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) x[n] = load(n);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename Ops::Weight w = Ops::weight(weights + r * row_bytes);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) Ops::add(sums[r][n], x[n], w);
    }
  }
}

template <class Ops, int R, int N, int kFirst, int kTileBytes, class Fetch>
QUIRE_INLINE void add_products(const Lines<kTileBytes>& lines, const std::byte* weights,
                               std::ptrdiff_t row_bytes, Fetch& ahead,
                               typename Ops::Sum (&sums)[R][N]) {
  const std::byte* data = lines.data;
  const auto take_step = [&]() QUIRE_INLINED {
    const auto load = [&](int n) QUIRE_INLINED {
      return Ops::load(data + (kFirst + n) / kVectorsPerTile * lines.tile_bytes() +
                       (kFirst + n) % kVectorsPerTile * (kLanes * Ops::kPack * Ops::kCodeBytes));
    };
    add_step<Ops>(load, weights, row_bytes, sums);
    ahead.step();
    data += lines.step_bytes;
    weights += Ops::kStepBytes;
  };
  if constexpr (Ops::kInTwos) {
#pragma GCC unroll 2
    for (int step = 0; step < lines.steps; ++step) take_step();
  } else {
    for (int step = 0; step < lines.steps; ++step) take_step();
  }
}

// Adds up N vectors, from kFirst of a tile on, for R rows and hands the sums of each row to
// finish(row, sums). `Where` is Lines, or something else for which there is an add_products.
template <class Ops, int R, int N, int kFirst, class Where, class Fetch, class Finish>
QUIRE_INLINE void run_block(const Where& lines, const std::byte* weights, std::ptrdiff_t row_bytes,
                            Fetch& ahead, const Finish& finish) {
  ahead.block();
  typename Ops::Sum sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[r][n] = Ops::zero();
  }
  add_products<Ops, R, N, kFirst>(lines, weights, row_bytes, ahead, sums);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) finish(r, sums[r]);
}

// N vectors are whole tiles, or one and a half: three tiles are then two blocks.
template <int N>
constexpr int kBlocksOf = N % kVectorsPerTile == 0 ? 1 : 2;
template <int N>
constexpr int kTilesOf = kBlocksOf<N>* N / kVectorsPerTile;

// R rows over all tiles; finish(row, lane, sums) with the first lane of the first vector.
template <class Ops, int R, class Where, class Fetch, class Finish>
QUIRE_INLINE void run_tiles(Where lines, int tiles, const std::byte* weights,
                            std::ptrdiff_t row_bytes, Fetch& ahead, const Finish& finish) {
  constexpr int N = Ops::vectors(R);
  constexpr int kBlocks = kBlocksOf<N>;
  constexpr int kTilesAtOnce = kTilesOf<N>;
  int tile = 0;
  const auto run = [&]<int kVectors, int kFirst>() QUIRE_INLINED {
    run_block<Ops, R, kVectors, kFirst>(lines, weights, row_bytes, ahead,
                                        [&](int r, const auto& sums) QUIRE_INLINED {
                                          finish(r, tile * kTile + kFirst * kLanes, sums);
                                        });
    constexpr int kTiles = (kFirst + kVectors) / kVectorsPerTile;
    lines.advance(kTiles);
    tile += kTiles;
  };
  while (tile + kTilesAtOnce <= tiles) {
    run.template operator()<N, 0>();
    if constexpr (kBlocks == 2) run.template operator()<N, N % kVectorsPerTile>();
  }
  while (tile < tiles) run.template operator()<kVectorsPerTile, 0>();
}

// The same, and what comes next asked for.
template <class Ops, int R, class Where, class Finish>
QUIRE_INLINE void run_rows(const Where& lines, int tiles, const std::byte* weights,
                           std::ptrdiff_t row_bytes, const Ahead& ahead, const Finish& finish) {
  constexpr int N = Ops::vectors(R);
  constexpr int kLines = (Where::template kReadBytes<Ops, N> + 63) / 64;
  const int blocks = tiles / kTilesOf<N> * kBlocksOf<N>;
  const int rest = tiles % kTilesOf<N>;  // one tile at a time
  const int asks =
      blocks * lines.template asks<Ops, N>() + rest * lines.template asks<Ops, kVectorsPerTile>();
  with_prefetcher<kLines, Where::kNearest>(
      ahead, blocks + rest, asks, [&](auto& fetch) QUIRE_INLINED {
        run_tiles<Ops, R>(lines, tiles, weights, row_bytes, fetch, finish);
      });
}

// All rows, in blocks that are as equal as they can be; finish(row, lane, sums).
template <class Ops, class Where, class Finish>
QUIRE_INLINE void run_all(const Where& lines, int tiles, const Operands& rows,
                          std::ptrdiff_t weights_at, Ahead ahead, const Finish& finish) {
  int row = 0;
  for (int blocks = (rows.count + Ops::kMaxRows - 1) / Ops::kMaxRows; blocks > 0; --blocks) {
    const int take = (rows.count - row + blocks - 1) / blocks;
    const std::byte* weights = rows.rows + row * rows.stride + weights_at;
    const auto finish_row = [&](int r, int lane, const auto& sums)
                                QUIRE_INLINED { finish(row + r, lane, sums); };
    const auto run = [&]<int R>() QUIRE_INLINED {
      if constexpr (R <= Ops::kMaxRows) {
        run_rows<Ops, R>(lines, tiles, weights, rows.stride, ahead, finish_row);
      }
    };
    switch (take) {
      case 1:
        run.template operator()<1>();
        break;
      case 2:
        run.template operator()<2>();
        break;
      case 3:
        run.template operator()<3>();
        break;
      case 4:
        run.template operator()<4>();
        break;
      case 5:
        run.template operator()<5>();
        break;
      default:
        run.template operator()<6>();
        break;
    }
    row += take;
    ahead = {};
  }
}

// Sums of keys as logits, which are stored or added to others. `scales`: f16 of their lanes, or
// null.
template <class Ops, int N>
QUIRE_INLINE void store_scores(const typename Ops::Sum (&sums)[N],
                               const typename Ops::Header& header, const std::byte* scales,
                               float* to) {
  Floats scores[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    scores[n] = Ops::score(sums[n], header, scales == nullptr ? scales : scales + n * kLanes * 2);
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) store_floats(to + n * kLanes, scores[n]);
}
template <class Ops, int N>
QUIRE_INLINE void add_scores(const typename Ops::Sum (&sums)[N], const typename Ops::Header& header,
                             const std::byte* scales, float* to) {
  Floats before[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) before[n] = load_floats(to + n * kLanes);
  store_scores<Ops>(sums, header, scales, to);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    store_floats(to + n * kLanes, add(before[n], load_floats(to + n * kLanes)));
  }
}

// Channels of keys are padded to a multiple of kPad: for expanded operands that of the codes they
// were made of.
template <class Ops, int kPad>
void scores(const PageSide& keys, int first, int end, const Operands& queries, float* out,
            std::ptrdiff_t out_stride, const Ahead& ahead) noexcept {
  constexpr std::ptrdiff_t kVectorBytes = kTile * Ops::kPack * Ops::kCodeBytes;
  const int steps = (keys.dim + kPad - 1) / kPad * (kPad / Ops::kPack);
  const int tiles = (end - first) / kTile;
  const std::ptrdiff_t tile_bytes = kVectorBytes * steps;
  const int first_steps = keys.split < keys.dim ? keys.split / Ops::kPack : steps;
  const std::byte* data = keys.data + first / kTile * tile_bytes;
  const auto scales = [&](int part, int lane) {  // f16
    return keys.scales == nullptr ? nullptr : keys.scales + (part * keys.slots + first + lane) * 2;
  };
  out += first;
  run_all<Ops>(Lines<>{data, tile_bytes, kVectorBytes, first_steps}, tiles, queries,
               Ops::kQueryHeaderBytes, ahead,
               [&](int row, int lane, const auto& sums) QUIRE_INLINED {
                 const auto header = Ops::header(queries.rows + row * queries.stride, 0);
                 store_scores<Ops>(sums, header, scales(0, lane), out + row * out_stride + lane);
               });
  if constexpr (Ops::kQueryRest) {
    bool some_left = false;
    for (int row = 0; row < queries.count; ++row) {
      some_left = some_left || *reinterpret_cast<const int*>(queries.rows + row * queries.stride);
    }
    if (!some_left) return;
    run_all<Ops>(Lines<>{data, tile_bytes, kVectorBytes, steps}, tiles, queries,
                 Ops::query_rest_at(keys.dim), {},
                 [&](int row, int lane, const auto& sums) QUIRE_INLINED {
                   const auto header = Ops::header(queries.rows + row * queries.stride, 0);
                   add_scores<Ops>(sums, header, nullptr, out + row * out_stride + lane);
                 });
    return;
  }
  if (first_steps == steps) return;
  run_all<Ops>(
      Lines<>{data + first_steps * kVectorBytes, tile_bytes, kVectorBytes, steps - first_steps},
      tiles, queries, Ops::kQueryHeaderBytes + first_steps * Ops::kStepBytes, {},
      [&](int row, int lane, const auto& sums) QUIRE_INLINED {
        const auto header = Ops::header(queries.rows + row * queries.stride, 1);
        add_scores<Ops>(sums, header, scales(1, lane), out + row * out_stride + lane);
      });
}

// o = o keep + sums of values.
template <class Ops, int N>
QUIRE_INLINE void add_mixed(const typename Ops::Sum (&sums)[N], const typename Ops::Header& header,
                            const Floats& keep, float* o) {
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    const Floats before = load_floats(o + n * kLanes);
    store_floats(o + n * kLanes, fma(before, keep, Ops::mixed(sums[n], header)));
  }
}

// The same over steps from `first_step` on.
template <class Ops, class Where>
QUIRE_INLINE void mix_lines(const Where& lines, int dim, int first_step, const Operands& weights,
                            const float* keep, float* o, std::ptrdiff_t o_stride,
                            const Ahead& ahead) {
  run_all<Ops>(lines, dim / kTile, weights, Ops::kHeaderBytes + first_step * Ops::kStepBytes, ahead,
               [&](int row, int lane, const auto& sums) QUIRE_INLINED {
                 const auto header = Ops::header(weights.rows + row * weights.stride, 0);
                 add_mixed<Ops>(sums, header, spread(keep[row]), o + row * o_stride + lane);
               });
}

template <class Ops>
void mix(const PageSide& values, int first, int end, const Operands& weights, const float* keep,
         float* o, std::ptrdiff_t o_stride, const Ahead& ahead) noexcept {
  const std::ptrdiff_t step_bytes = std::ptrdiff_t{values.dim} * Ops::kPack * Ops::kCodeBytes;
  const int first_step = first / Ops::kPack;
  const int steps = (end + Ops::kPack - 1) / Ops::kPack - first_step;
  constexpr int kTileBytes = kTile * Ops::kPack * Ops::kCodeBytes;
  const Lines<kTileBytes> lines{values.data + first_step * step_bytes, kTileBytes, step_bytes,
                                steps};
  mix_lines<Ops>(lines, values.dim, first_step, weights, keep, o, o_stride, ahead);
}

template <class Ops, int kPad = Ops::kPack>
constexpr Products products_of() {
  return {scores<Ops, kPad>, mix<Ops>};
}

// --- what kernels share ----------------------------------------------------------------------

// A if kFirst, else B.
template <bool kFirst, class A, class B>
struct Selected {
  using Type = A;
};
template <class A, class B>
struct Selected<false, A, B> {
  using Type = B;
};
template <bool kFirst, class A, class B>
using Select = typename Selected<kFirst, A, B>::Type;

// R at most: `most` where there are 32 registers, `fewer` where there are 16.
constexpr int rows_for(int most, int fewer) {
  return kRegisters == 32 ? most : kRegisters == 16 ? fewer : 2;
}

// Vectors at once for R rows whose sums take `registers` each: enough sums to hide the latency of
// the multiply, as few as leave room for operands.
constexpr int vectors_for(int rows, int registers = 1) {
  if (kRegisters == 32) return 4 / registers;
  if (kRegisters == 16) return rows == 1 ? 8 / registers : rows == 2 && registers == 1 ? 4 : 2;
  return 1;
}

// Sums of floats times floats: f32 as it is, and what other codes expand to.
struct F32Ops {
  static constexpr int kPack = 1;
  static constexpr int kCodeBytes = 4;
  static constexpr int kHeaderBytes = 0;
  static constexpr int kQueryHeaderBytes = 0;
  static constexpr bool kQueryRest = false;
  static constexpr int kStepBytes = 4;
  static constexpr int kMaxRows = rows_for(6, 6);
  static constexpr bool kInTwos = kRegisters == 16;
  // 12 sums of 16 registers: a multiplication takes as long as 8 begin, and fewer would wait.
  static constexpr int vectors(int rows) {
    return kRegisters == 16 && (rows == 3 || rows == 4) ? 12 / rows : vectors_for(rows);
  }
  using Sum = Floats;
  using Operand = Floats;
  using Weight = Floats;
  QUIRE_INLINE static Sum zero() { return zeros(); }
  QUIRE_INLINE static Operand load(const std::byte* data) { return load_floats(data); }
  QUIRE_INLINE static Weight weight(const std::byte* at) {
    return spread(*reinterpret_cast<const float*>(at));
  }
  QUIRE_INLINE static void add(Sum& sum, Operand x, Weight w) { sum = fma(x, w, sum); }
  struct Header {};
  QUIRE_INLINE static Header header(const std::byte*, int) { return {}; }
  QUIRE_INLINE static Floats score(const Sum& sum, const Header&, const std::byte*) { return sum; }
  QUIRE_INLINE static Floats mixed(const Sum& sum, const Header&) { return sum; }
};

QUIRE_INLINE std::size_t round_up_64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

inline bool takes_all_keys(int, int) noexcept { return true; }

// Queries as floats, channels padded with zeros to a multiple of 16.
inline std::size_t float_query_bytes(int dim) noexcept {
  return round_up_64(static_cast<std::size_t>(dim) * sizeof(float));
}
inline void prepare_floats(const float* query, int dim, int, std::byte* prepared) noexcept {
  auto* to = reinterpret_cast<float*>(prepared);
  for (int c = 0; c < dim; ++c) to[c] = query[c];
  for (int c = dim; c % kTile != 0; ++c) to[c] = 0.0f;
}

// Expanding: each vector of a step becomes kSteps vectors of 16 lanes x kUnitBytes, one for each
// step that the expanded operands take instead. `Unpack` has
//
//     kPack, kCodeBytes                of the tiles
//     kSteps, kUnitBytes
//     unpack(data, to, next)           kLanes lanes; the vector of step i goes to `to + i next`
template <class Unpack>
std::size_t expanded_bytes(Side side, int slots, int dim) noexcept {
  const int channels =
      side == Side::key ? (dim + Unpack::kPack - 1) / Unpack::kPack * Unpack::kPack : dim;
  return static_cast<std::size_t>(slots) * static_cast<std::size_t>(channels) *
         (Unpack::kSteps * Unpack::kUnitBytes) / Unpack::kPack;
}

template <class Unpack>
void expand(Side side, const PageSide& page, std::byte* out) noexcept {
  constexpr std::ptrdiff_t kFrom = kTile * Unpack::kPack * Unpack::kCodeBytes;
  constexpr std::ptrdiff_t kTo = kTile * Unpack::kUnitBytes;
  const std::byte* data = page.data;
  const bool keys = side == Side::key;
  // Inner: vectors that lie side by side. Keys: the steps of a tile; values: the tiles of a step.
  const int steps = (keys ? page.dim + Unpack::kPack - 1 : page.slots) / Unpack::kPack;
  const int tiles = (keys ? page.slots : page.dim) / kTile;
  const int outer = keys ? tiles : steps;
  const int inner = keys ? steps : tiles;
  const std::ptrdiff_t inner_to = keys ? Unpack::kSteps * kTo : kTo;
  const std::ptrdiff_t next = keys ? kTo : kTo * tiles;
  for (int i = 0; i < outer; ++i) {
    for (int j = 0; j < inner; ++j) {
      for (int v = 0; v < kVectorsPerTile; ++v) {
        Unpack::unpack(data + v * (kFrom / kVectorsPerTile),
                       out + j * inner_to + v * (kTo / kVectorsPerTile), next);
      }
      data += kFrom;
    }
    out += Unpack::kSteps * kTo * inner;
  }
}

QUIRE_INLINE void store_bytes(std::byte* to, Floats a) {
  store_floats(reinterpret_cast<float*>(to), a);
}

}  // namespace
}  // namespace quire
