#include "model/linear.h"

#include <gtest/gtest.h>

#include <random>

#include "model/products.h"

namespace quire::model {
namespace {

using Rows = std::vector<float>;

Rows random_rows(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Rows rows(count);
  for (float& value : rows) value = normal(random);
  return rows;
}

GgufTensor tensor_of(const Rows& values, std::vector<std::int64_t> shape) {
  return {"t", BlockType::f32, std::move(shape), std::ssize(values),
          std::as_bytes(std::span(values))};
}

// a is [rows][a_stride], b(i, j) is row i of the inner dimension, column j.
template <typename B>
void expect_product(const Rows& y, std::size_t y_stride, const Rows& a, std::size_t a_stride,
                    std::size_t rows, std::size_t inner, std::size_t columns, B b) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < inner; ++i) sum += a[r * a_stride + i] * b(i, c);
      EXPECT_NEAR(y[r * y_stride + c], sum, 1e-4) << r << " " << c;
    }
    for (std::size_t c = columns; c < y_stride; ++c) EXPECT_EQ(y[r * y_stride + c], 7);
  }
}

TEST(Products, AgreeWithDoublesAndKeepToTheirStrides) {
  for (const int threads : {1, 2}) {
    set_product_threads(threads);
    const Rows a = random_rows(5 * 40, 1);
    const Rows b = random_rows(40 * 40, 2);
    Rows y(5 * 20, 7);
    multiply_transposed(a.data(), 40, 5, b.data(), 38, 19, 37, y.data(), 20);
    expect_product(y, 20, a, 40, 5, 37, 19, [&](auto i, auto c) { return b[c * 38 + i]; });
    y.assign(y.size(), 7);
    multiply(a.data(), 40, 5, b.data(), 21, 19, 37, y.data(), 20);
    expect_product(y, 20, a, 40, 5, 37, 19, [&](auto i, auto c) { return b[i * 21 + c]; });
    Rows x(5);
    multiply_vector(a.data(), 5, 40, b.data(), x.data());
    expect_product(x, 1, a, 40, 5, 40, 1, [&](auto i, auto) { return b[i]; });
  }
  set_product_threads(1);
}

TEST(Linear, AddsItsBiasToEveryRow) {
  const Rows weight = random_rows(6 * 8, 3);
  const Rows bias = random_rows(6, 4);
  const GgufTensor matrix = tensor_of(weight, {8, 6});
  const GgufTensor added = tensor_of(bias, {6});
  const std::unique_ptr<Executor> executor = make_executor(2).value();
  for (const WeightForm form : {WeightForm::f32, WeightForm::packed}) {
    for (const GgufTensor* given : {static_cast<const GgufTensor*>(nullptr), &added}) {
      const LinearPart part{&matrix, given};
      const std::unique_ptr<Linear> linear = make_linear(form, {&part, 1}, *executor);
      EXPECT_EQ(linear->inputs(), 8);
      EXPECT_EQ(linear->outputs(), 6);
      const Rows x = random_rows(3 * 8, 5);
      for (const std::size_t rows : {1u, 3u}) {
        Rows y(rows * 6);
        linear->apply(x.data(), static_cast<std::int64_t>(rows), y.data());
        for (std::size_t i = 0; i < y.size() && given != nullptr; ++i) y[i] -= bias[i % 6];
        expect_product(y, 6, x, 8, rows, 8, 6, [&](auto i, auto c) { return weight[c * 8 + i]; });
      }
    }
  }
}

TEST(Linear, StacksItsParts) {
  const Rows upper = random_rows(20 * 8, 6);
  const Rows lower = random_rows(3 * 8, 7);
  const Rows bias = random_rows(3, 8);
  const GgufTensor tensors[] = {tensor_of(upper, {8, 20}), tensor_of(lower, {8, 3}),
                                tensor_of(bias, {3})};
  const LinearPart parts[] = {{&tensors[0], nullptr}, {&tensors[1], &tensors[2]}};
  const std::unique_ptr<Executor> executor = make_executor(2).value();
  for (const WeightForm form : {WeightForm::f32, WeightForm::packed}) {
    const std::unique_ptr<Linear> linear = make_linear(form, parts, *executor);
    ASSERT_EQ(linear->outputs(), 23);
    const Rows x = random_rows(5 * 8, 9);
    Rows y(5 * 23);
    linear->apply(x.data(), 5, y.data());
    for (std::size_t row = 0; row < 5; ++row) {
      for (std::size_t i = 0; i < 3; ++i) y[row * 23 + 20 + i] -= bias[i];
    }
    expect_product(y, 23, x, 8, 5, 8, 23, [&](auto i, auto c) {
      return c < 20 ? upper[c * 8 + i] : lower[(c - 20) * 8 + i];
    });
  }
}

TEST(Linear, FormsHaveNames) {
  EXPECT_EQ(parse_weight_form("f32").value(), WeightForm::f32);
  EXPECT_EQ(parse_weight_form("packed").value(), WeightForm::packed);
  EXPECT_NE(parse_weight_form("f17").error().text.find("f17"), std::string::npos);
}

}  // namespace
}  // namespace quire::model
