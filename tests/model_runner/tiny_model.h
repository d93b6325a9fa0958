// A tiny random model as a GGUF file, and the same model computed in double precision by plain
// loops, over a whole text at once: what the runner must agree with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gguf_writer.h"

namespace quire::model::test {

// The shape of a tiny model and its architecture's features, stated independently of the runner's
// own tables.
struct TinySpec {
  std::string architecture = "llama";
  int layers = 3;
  int width = 32;
  int heads = 4;
  int kv_heads = 2;
  int dim = 8;
  int feed_forward = 48;
  int vocabulary = 40;
  double rope_base = 10000;
  double rope_scale = 1;                  // of positions
  std::vector<double> rope_factors = {};  // divisors per pair
  double rope_magnitude = 1;
  bool is_interleaved = true;
  bool has_bias = false;
  bool has_qk_norm = false;
  bool has_after_norm = false;
  bool is_gelu = false;
  bool has_own_output = false;
  bool stores_f16 = false;  // matrices as F16 instead of F32
  double embedding_scale = 1;
  double attention_cap = 0;
  double output_cap = 0;
  std::vector<int> windows = {};        // per layer, 0: all; empty: all 0
  std::vector<double> rope_bases = {};  // per layer, with no scale and no factors where it differs
};

class TinyModel {
 public:
  // Writes the tensors, the tokens and the common metadata; the test adds what is special.
  TinyModel(const TinySpec& spec, std::uint64_t seed);

  quire::test::GgufWriter& writer() { return writer_; }
  const quire::test::GgufWriter& writer() const { return writer_; }
  const TinySpec& spec() const { return spec_; }

  // Logits of every position: [tokens][vocabulary].
  std::vector<std::vector<double>> logits(const std::vector<int>& tokens) const;

 private:
  using Row = std::vector<double>;
  using Matrix = std::vector<Row>;

  void add_matrix(const std::string& name, int inputs, int outputs, double deviation);
  void add_vector(const std::string& name, int size, double mean, double deviation);
  Row apply(const std::string& name, const Row& x) const;
  Row norm(const std::string& name, const Row& x) const;
  void turn(Row& head, int layer, std::size_t position) const;
  void attend(int layer, Matrix& stream) const;
  void feed(int layer, Matrix& stream) const;
  std::string in_layer(int layer, const char* name) const;

  TinySpec spec_;
  std::uint64_t state_;
  quire::test::GgufWriter writer_;
  std::map<std::string, Matrix> matrices_;  // [outputs][inputs]; vectors have one row
};

}  // namespace quire::model::test
