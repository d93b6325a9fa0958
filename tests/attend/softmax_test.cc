// Softmax on every instruction set: what is masked, what tops and sums become, how exact 2^x is.
#include "attend/softmax.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "attend/history.h"
#include "base/numbers.h"
#include "codec/codec.h"

namespace quire::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(Random& random, int slots) {
  std::vector<float> logits(size_of(slots));
  for (float& s : logits) s = random.normal(5.0f);
  return logits;
}

// One row that begins with nothing.
float largest(Isa isa, float* logits, int slots, int begin, int end, float scale) {
  float top = -kInf;
  softmax_of(isa).raise(logits, slots, 1, slots, begin, end, scale, &top);
  return top;
}

const Kernel& kernel_of(const char* codec, Isa isa) {
  return *find_codec(codec)->kernels[static_cast<std::size_t>(isa)];
}

// What the kernels of floats, or of bf16, make of one row; as floats in place of the logits.
float weights(Isa isa, float* logits, int slots, float top, bool bf16) {
  const Kernel& kernel = kernel_of(bf16 ? "bf16" : "f32", isa);
  std::vector<std::byte> prepared(kernel.weight_bytes ? kernel.weight_bytes(slots) : 0);
  float sum = 0.0f;
  float base = top;
  float keep = 0.0f;
  kernel.weigh({},
               {logits, slots, 1, 0, slots, 1.0f, &top, &sum, &base, &keep, prepared.data(), 0});
  for (int t = 0; t < slots && !prepared.empty(); ++t) {
    std::uint16_t bits;
    std::memcpy(&bits, prepared.data() + t * 2, sizeof bits);
    logits[t] = f32_from_bf16(bits);
  }
  return sum;
}

TEST(Softmax, LargestMasksAtEveryBeginAndEnd) {
  Random random(80);
  for (const Isa isa : isas_found()) {
    for (const int slots : {16, 32, 48}) {
      const std::vector<float> from = random_logits(random, slots);
      for (int begin = 0; begin <= slots; ++begin) {
        for (int end = 0; end <= slots; ++end) {
          SCOPED_TRACE(testing::Message() << name_of(isa) << ' ' << slots << " slots, [" << begin
                                          << ", " << end << ')');
          std::vector<float> logits = from;
          const float top = largest(isa, logits.data(), slots, begin, end, 0.7f);
          float expected = -kInf;
          for (int t = 0; t < slots; ++t) {
            const bool inside = t >= begin && t < end;
            const float logit = inside ? from[size_of(t)] : -kInf;
            ASSERT_EQ(logits[size_of(t)], logit) << t;
            expected = std::max(expected, logit * 0.7f);
          }
          ASSERT_EQ(top, expected);
        }
      }
    }
  }
}

TEST(Softmax, LargestIsNanWhereANanIsSeenAndNowhereElse) {
  Random random(81);
  for (const Isa isa : isas_found()) {
    for (int place = 0; place < 32; ++place) {
      for (int begin = 0; begin < 32; ++begin) {
        for (int end = begin + 1; end <= 32; ++end) {
          std::vector<float> logits = random_logits(random, 32);
          logits[size_of(place)] = kNan;
          const float top = largest(isa, logits.data(), 32, begin, end, 1.0f);
          const bool seen = place >= begin && place < end;
          ASSERT_EQ(std::isnan(top), seen)
              << name_of(isa) << ' ' << place << " of [" << begin << ", " << end << ')';
          ASSERT_EQ(std::isnan(logits[size_of(place)]), seen);
        }
      }
    }
  }
}

TEST(Softmax, LargestOfInfinities) {
  for (const Isa isa : isas_found()) {
    std::vector<float> logits(64, -kInf);
    EXPECT_EQ(largest(isa, logits.data(), 64, 0, 64, 2.0f), -kInf);
    EXPECT_EQ(largest(isa, logits.data(), 64, 7, 7, 2.0f), -kInf);
    EXPECT_EQ(logits, std::vector<float>(64, -kInf));
    logits[37] = kInf;
    EXPECT_EQ(largest(isa, logits.data(), 64, 0, 64, 2.0f), kInf);
    logits[38] = kNan;
    EXPECT_TRUE(std::isnan(largest(isa, logits.data(), 64, 0, 64, 2.0f)));
  }
}

TEST(Softmax, WeightsArePowersOfTwo) {
  for (const Isa isa : isas_found()) {
    double worst = 0;
    // All of [-130, 0] in steps that fill no power evenly.
    constexpr int kSteps = 260'000;
    for (int first = 0; first < kSteps; first += 16) {
      float logits[16];
      for (int i = 0; i < 16; ++i) {
        logits[i] = -130.0f * static_cast<float>(first + i) / static_cast<float>(kSteps);
      }
      float from[16];
      std::copy_n(logits, 16, from);
      weights(isa, logits, 16, 0.0f, false);
      for (int i = 0; i < 16; ++i) {
        if (from[i] < -125.0f) {  // 0, or what there is near it
          ASSERT_TRUE(logits[i] >= 0.0f && logits[i] <= 0x1p-125f)
              << name_of(isa) << ' ' << from[i];
          continue;
        }
        const double expected = std::exp2(double{from[i]});
        worst = std::max(worst, std::abs(double{logits[i]} - expected) / expected);
      }
    }
    EXPECT_LT(worst, 3e-7) << name_of(isa);
    RecordProperty(name_of(isa), testing::PrintToString(worst));
  }
}

TEST(Softmax, WholePowersAreExact) {
  for (const Isa isa : isas_found()) {
    for (int power = 0; power < 128; ++power) {
      std::vector<float> logits(16, 3.0f - static_cast<float>(power));
      weights(isa, logits.data(), 16, 3.0f, false);
      if (power > 125 && logits[9] == 0.0f) continue;
      ASSERT_EQ(logits[9], std::ldexp(1.0f, -power)) << name_of(isa);
    }
  }
}

TEST(Softmax, WeightsOfNothingAreZeroAndOfNanNan) {
  for (const Isa isa : isas_found()) {
    std::vector<float> logits(32, -kInf);
    EXPECT_EQ(weights(isa, logits.data(), 32, 1.0f, false), 0.0f);
    EXPECT_EQ(logits, std::vector<float>(32, 0.0f));
    for (const bool bf16 : {false, true}) {
      for (const float far : {-1e30f, -3.4e38f, -1000.0f}) {
        logits.assign(32, far);
        EXPECT_EQ(weights(isa, logits.data(), 32, 100.0f, bf16), 0.0f) << name_of(isa);
      }
      logits.assign(32, 0.0f);
      logits[20] = kNan;
      EXPECT_TRUE(std::isnan(weights(isa, logits.data(), 32, 1.0f, bf16)));
      EXPECT_TRUE(std::isnan(logits[20]));
      EXPECT_FALSE(std::isnan(logits[19]));
      // Whatever the bits of a NaN.
      for (const std::uint32_t bits : {0x7fffffffu, 0x7fc00001u, 0xffc00155u, 0xffffffffu}) {
        logits.assign(32, 0.0f);
        logits[20] = std::bit_cast<float>(bits);
        EXPECT_TRUE(std::isnan(weights(isa, logits.data(), 32, 1.0f, bf16))) << bits;
        EXPECT_TRUE(std::isnan(logits[20])) << bits;
      }
      logits.assign(32, 0.0f);
      logits[3] = -kInf;
      EXPECT_TRUE(std::isnan(weights(isa, logits.data(), 32, kNan, bf16)));
      for (const float w : logits) EXPECT_TRUE(std::isnan(w)) << name_of(isa);
      // The largest is infinite: no finite weights come of it.
      logits.assign(32, 0.0f);
      logits[7] = kInf;
      EXPECT_TRUE(std::isnan(weights(isa, logits.data(), 32, kInf, bf16)));
    }
  }
}

TEST(Softmax, SumsDoNotDependOnMaskedTiles) {
  Random random(82);
  for (const Isa isa : isas_found()) {
    for (int i = 0; i < 200; ++i) {
      const int seen = 16 * static_cast<int>(random.integer(1, 6));
      const int before = 16 * static_cast<int>(random.integer(0, 5));
      const int behind = 16 * static_cast<int>(random.integer(0, 5));
      std::vector<float> alone = random_logits(random, seen);
      for (int t = 0; t < random.integer(0, 15); ++t) alone[size_of(t)] = -kInf;
      std::vector<float> among(size_of(before + seen + behind), -kInf);
      std::copy(alone.begin(), alone.end(), among.begin() + before);
      for (const bool bf16 : {false, true}) {
        std::vector<float> a = alone;
        std::vector<float> b = among;
        const float sum = weights(isa, a.data(), seen, 20.0f, bf16);
        EXPECT_EQ(weights(isa, b.data(), before + seen + behind, 20.0f, bf16), sum);
        EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin() + before));
      }
    }
  }
}

TEST(Softmax, SumIsThatOfTheWeights) {
  Random random(83);
  for (const Isa isa : isas_found()) {
    // Only a set that has a kernel of rounded weights rounds them.
    const bool rounds = kernel_of("bf16", isa).weight_bytes != nullptr;
    for (int i = 0; i < 100; ++i) {
      const std::vector<float> logits = random_logits(random, 256);
      std::vector<float> plain = logits;
      std::vector<float> rounded = logits;
      const float sum = weights(isa, plain.data(), 256, 25.0f, false);
      const float rounded_sum = weights(isa, rounded.data(), 256, 25.0f, true);
      double expected = 0;
      double rounded_expected = 0;
      for (std::size_t t = 0; t < 256; ++t) {
        expected += double{plain[t]};
        rounded_expected += double{rounded[t]};
        // Below the normal numbers the processor rounds to zero.
        ASSERT_EQ(rounded[t], rounds ? round_to(DType::bf16, plain[t]) : plain[t]);
      }
      EXPECT_NEAR(sum, expected, 1e-6 * expected);
      EXPECT_NEAR(rounded_sum, rounded_expected, 1e-6 * rounded_expected);
    }
  }
}

// Rows are apart by a stride, keep what they had, and have no part in each other.
TEST(Softmax, RowsAreTakenOneByOne) {
  Random random(84);
  constexpr int kRows = 5;
  constexpr int kSlots = 48;
  constexpr int kStride = 64;
  for (const Isa isa : isas_found()) {
    std::vector<float> logits = random_logits(random, kRows * kStride);
    logits[2 * kStride + 20] = kNan;
    std::vector<float> alone = logits;
    const std::vector<float> before = {-kInf, 100.0f, 3.0f, kNan, 0.0f};
    std::vector<float> top = before;
    softmax_of(isa).raise(logits.data(), kStride, kRows, kSlots, 5, 40, 2.0f, top.data());
    for (int row = 0; row < kRows; ++row) {
      float* from = alone.data() + row * kStride;
      const float found = largest(isa, from, kSlots, 5, 40, 2.0f);
      if (row == 2 || row == 3) {
        EXPECT_TRUE(std::isnan(top[size_of(row)])) << name_of(isa) << ' ' << row;
      } else {
        EXPECT_EQ(top[size_of(row)], std::max(found, before[size_of(row)])) << name_of(isa);
      }
    }
    EXPECT_EQ(std::memcmp(logits.data(), alone.data(), logits.size() * sizeof(float)), 0);
  }
}

// What softmax knows of rows.
struct Numbers {
  std::vector<float> top;
  std::vector<float> sum;
  std::vector<float> base;
  std::vector<float> keep;

  Numbers row(int r) const {
    return {{top[size_of(r)]}, {sum[size_of(r)]}, {base[size_of(r)]}, {keep[size_of(r)]}};
  }
  bool same_bits(const Numbers& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(top, other.top) && same(sum, other.sum) && same(base, other.base) &&
           same(keep, other.keep);
  }
};

// What tops, sums and factors must be after one more page.
TEST(Softmax, TopsSumsAndFactorsFollowTheLargestLogit) {
  Random random(86);
  for (const Isa isa : isas_found()) {
    const Kernel& kernel = kernel_of("f32", isa);
    for (int i = 0; i < 200; ++i) {
      const float scale = std::exp2(random.normal());
      float top = i % 4 == 0 ? -kInf : random.normal(9.0f);
      float sum = top == -kInf ? 0.0f : 1.5f;
      const float first_top = top;
      const float first_base = i % 3 == 0 ? -kInf : top - 0.5f;
      float base = first_base;
      float keep = -1.0f;
      std::vector<float> logits = random_logits(random, 32);
      double largest_logit = first_top;
      for (const float s : logits) largest_logit = std::max(largest_logit, double{s} * scale);
      double expected = std::exp2(first_top - largest_logit) * sum;
      for (const float s : logits) expected += std::exp2(double{s} * scale - largest_logit);
      kernel.weigh({}, {logits.data(), 32, 1, 0, 32, scale, &top, &sum, &base, &keep, nullptr, 0});
      EXPECT_NEAR(top, largest_logit, 1e-6 * std::abs(largest_logit)) << name_of(isa);
      EXPECT_EQ(base, top);
      EXPECT_NEAR(sum, expected, 2e-5 * expected);
      EXPECT_NEAR(keep, std::exp2(double{first_base} - top), 1e-6);
      EXPECT_TRUE(first_base > -kInf || keep == 0.0f);
    }
    // Nothing is seen: nothing is there, and what was stays.
    std::vector<float> nothing(16, -kInf);
    for (const float before : {-kInf, 3.0f}) {
      float top = before;
      float sum = before == -kInf ? 0.0f : 2.0f;
      float base = before;
      float keep = -1.0f;
      std::vector<float> logits = nothing;
      kernel.weigh({}, {logits.data(), 16, 1, 0, 16, 2.0f, &top, &sum, &base, &keep, nullptr, 0});
      EXPECT_EQ(top, before);
      EXPECT_EQ(base, before);
      EXPECT_EQ(sum, before == -kInf ? 0.0f : 2.0f);
      EXPECT_EQ(keep, before == -kInf ? 0.0f : 1.0f);
      EXPECT_EQ(logits, std::vector<float>(16, 0.0f));
    }
  }
}

// A unit of several pages is raised before its weights are made, and must come to the same bits.
TEST(Softmax, RescaledBeforeIsRescaledByTheKernel) {
  Random random(87);
  for (const Isa isa : isas_found()) {
    const Kernel& kernel = kernel_of("f32", isa);
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> logits = random_logits(random, 48);
      const float before = i % 5 == 0 ? -kInf : random.normal(12.0f);
      const float sum = before == -kInf ? 0.0f : 1.25f;
      std::vector<float> once = logits;
      Numbers direct{{before}, {sum}, {before}, {0.0f}};
      kernel.weigh({}, {once.data(), 48, 1, 0, 48, 0.3f, direct.top.data(), direct.sum.data(),
                        direct.base.data(), direct.keep.data(), nullptr, 0});
      std::vector<float> twice = logits;
      Numbers raised{{before}, {sum}, {before}, {0.0f}};
      const float top = largest(isa, twice.data(), 48, 0, 48, 0.3f);
      softmax_of(isa).rescale(&top, 1, raised.top.data(), raised.sum.data());
      kernel.weigh({}, {twice.data(), 48, 1, 0, 48, 0.3f, raised.top.data(), raised.sum.data(),
                        raised.base.data(), raised.keep.data(), nullptr, 0});
      EXPECT_TRUE(direct.same_bits(raised)) << name_of(isa) << ' ' << before;
      EXPECT_EQ(once, twice);
    }
    float m = 1.0f;
    float l = 1.0f;
    const float broken = kNan;
    softmax_of(isa).rescale(&broken, 1, &m, &l);
    EXPECT_TRUE(std::isnan(m) && std::isnan(l));
    // What is broken stays so.
    for (const float top : {-kInf, 3.0f, kInf}) {
      softmax_of(isa).rescale(&top, 1, &m, &l);
      EXPECT_TRUE(std::isnan(m) && std::isnan(l)) << top;
    }
  }
}

// Weights of codes are less exact than those of floats, as far as codes can show it.
TEST(Softmax, WeightsOfCodesAreAsExactAsTheyMustBe) {
  for (const Isa isa : isas_found()) {
    for (const auto& [codec, bound] : {std::pair{"tq4", 1.1e-4}, {"int8", 3.1e-6}}) {
      const Kernel& kernel = kernel_of(codec, isa);
      const std::vector<std::uint16_t> scales(16, f16_from_f32(1.0f));
      const PageSide values{nullptr, reinterpret_cast<const std::byte*>(scales.data()), 16, 64, 64};
      std::vector<std::byte> prepared(kernel.weight_bytes(16));
      for (int i = 0; i < 20'000; ++i) {
        const float logit = -0.00101f * static_cast<float>(i);
        std::vector<float> logits(16, logit);
        Numbers n{{0.0f}, {0.0f}, {0.0f}, {0.0f}};
        kernel.weigh(values, {logits.data(), 16, 1, 0, 16, 1.0f, n.top.data(), n.sum.data(),
                              n.base.data(), n.keep.data(), prepared.data(), 0});
        const double expected = 16 * std::exp2(double{logit});
        ASSERT_NEAR(n.sum[0], expected, bound * expected) << codec << ' ' << name_of(isa);
      }
    }
  }
}

// The same of the weights of every codec, whatever the number of rows; a row without logits has
// none, and a NaN stays in its row.
TEST(Softmax, WeightsOfRowsAreTakenOneByOne) {
  Random random(85);
  constexpr int kRows = 7;
  constexpr int kSlots = 64;
  constexpr int kStride = 80;
  for (const Isa isa : isas_found()) {
    for (const Codec* codec : all_codecs()) {
      const Kernel* kernel = codec->kernels[static_cast<std::size_t>(isa)];
      if (kernel == nullptr || kernel->weigh == nullptr) continue;
      SCOPED_TRACE(testing::Message() << codec->name << ' ' << name_of(isa));
      std::vector<float> logits = random_logits(random, kRows * kStride);
      std::fill_n(logits.begin(), kStride, -kInf);
      logits[2 * kStride + 20] = kNan;
      std::vector<std::uint16_t> scales(kSlots);
      for (std::uint16_t& scale : scales) scale = f16_from_f32(1.0f + std::fabs(random.normal()));
      const PageSide values{nullptr, reinterpret_cast<const std::byte*>(scales.data()), kSlots, 64,
                            64};
      // Some of which are raised.
      const std::vector<float> top = {-kInf, 100.0f, 3.0f, -kInf, 25.0f, -2.0f, 1000.0f};
      const std::vector<float> base = {-kInf, 98.0f, -kInf, -kInf, 25.0f, -7.0f, 1.0f};
      const std::size_t bytes = kernel->weight_bytes ? kernel->weight_bytes(kSlots) : 0;
      std::vector<std::byte> together(kRows * bytes);
      std::vector<std::byte> single(kRows * bytes);
      // All slots, of which kernels may keep more in registers, and some.
      for (int i = 2; i < 2 * kRows + 2; ++i) {
        const int count = i / 2;
        const int first = i % 2 == 0 ? 16 : 0;
        const int end = i % 2 == 0 ? 48 : kSlots;
        std::vector<float> all = logits;
        std::vector<float> alone = logits;
        // With one more, which must not change.
        Numbers of_all{top, std::vector<float>(kRows, 1.0f), base,
                       std::vector<float>(kRows, -1.0f)};
        const Numbers before = of_all;
        kernel->weigh(values, {all.data(), kStride, count, first, end, 0.5f, of_all.top.data(),
                               of_all.sum.data(), of_all.base.data(), of_all.keep.data(),
                               together.data(), static_cast<std::ptrdiff_t>(bytes)});
        for (int row = 0; row < kRows; ++row) {
          Numbers one = before.row(row);
          if (row < count) {
            kernel->weigh(
                values, {alone.data() + row * kStride, kStride, 1, first, end, 0.5f, one.top.data(),
                         one.sum.data(), one.base.data(), one.keep.data(),
                         single.data() + size_of(row) * bytes, static_cast<std::ptrdiff_t>(bytes)});
            EXPECT_EQ(std::isnan(one.sum[0]), row == 2);
            EXPECT_EQ(std::isnan(one.top[0]), row == 2);
            EXPECT_EQ(one.sum[0] == 1.0f, row == 1 || row == 6) << row;
          }
          EXPECT_TRUE(one.same_bits(of_all.row(row))) << row << " of " << count;
        }
        EXPECT_EQ(std::memcmp(all.data(), alone.data(), all.size() * sizeof(float)), 0);
        EXPECT_TRUE(together == single);
      }
    }
  }
}

TEST(Softmax, BlendsAreTheSameOnEverySet) {
  Random random(88);
  for (const std::int64_t count : {1, 7, 8, 15, 16, 17, 64, 80, 100, 128}) {
    std::vector<float> o(static_cast<std::size_t>(count));
    std::vector<float> more(o.size());
    for (float& x : o) x = random.normal(3.0f);
    for (float& x : more) x = random.normal(3.0f);
    const float keep = std::exp2(-std::fabs(random.normal(2.0f)));
    std::vector<float> expected = o;
    for (std::size_t i = 0; i < o.size(); ++i) {
      const volatile float kept = o[i] * keep;
      const volatile float taken = more[i] * 0.75f;
      expected[i] = kept + taken;
    }
    for (const Isa isa : isas_found()) {
      std::vector<float> blended = o;
      blended.push_back(5.0f);  // what is behind stays
      softmax_of(isa).blend(blended.data(), keep, more.data(), 0.75f, count);
      EXPECT_EQ(blended.back(), 5.0f);
      blended.pop_back();
      EXPECT_EQ(blended, expected) << name_of(isa) << ", " << count << " floats";
    }
  }
}

}  // namespace
}  // namespace quire::test
