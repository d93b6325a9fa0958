#include "model/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/error.h"
#include "model/ops.h"
#include "model/products.h"

namespace quire::model {
namespace {

// logits[j] -> weights that sum to 1; `mask` has 0 or -inf.
void soften(std::span<float> logits, const float* mask, float scale, float cap) {
  float largest = -INFINITY;
  for (std::size_t j = 0; j < logits.size(); ++j) {
    float logit = logits[j] * scale;
    if (cap > 0) logit = cap * std::tanh(logit / cap);
    logits[j] = logit + mask[j];
    largest = std::max(largest, logits[j]);
  }
  double sum = 0;
  for (float& logit : logits) {
    logit = fast_exp(logit - largest);
    sum += logit;
  }
  for (float& weight : logits) weight = static_cast<float>(weight / sum);
}

class Reference {
 public:
  explicit Reference(const Cache& cache) : cache_(cache) {}

  Result<void> operator()(Step& step, int layer, const TensorView& q, const OutputView& out) const {
    const std::vector<SequenceId> sequences = cache_.sequences();
    if (sequences.size() != 1) {
      return refuse("reference attention: {} sequences, it takes one", sequences.size());
    }
    const GatherFormat format{.dtype = DType::f32, .layout = Layout::head_major};
    MODEL_TRY(const Gathered size, step.gather_size(layer, sequences, format));
    std::vector<float> keys(static_cast<std::size_t>(size.key_elements));
    std::vector<float> values(static_cast<std::size_t>(size.value_elements));
    MODEL_CHECK(step.gather(layer, sequences, format, keys.data(), size.key_elements, values.data(),
                            size.value_elements));
    const std::int64_t columns = size.columns;
    std::vector<float> mask(static_cast<std::size_t>(q.tokens * columns));
    MODEL_CHECK(step.mask(layer, DType::f32, 1, mask.data(), q.tokens * columns));
    const LayerSpec& spec = cache_.spec().layers[static_cast<std::size_t>(layer)];
    MODEL_TRY(const LayerInfo info, cache_.layer_info(layer));
    std::vector<float> logits(mask.size());
    for (std::int64_t head = 0; head < q.heads; ++head) {
      const std::int64_t kv_head = head / (q.heads / spec.kv_heads);
      const auto* queries = static_cast<const float*>(q.data) + head * q.head_stride;
      multiply_transposed(queries, q.token_stride, q.tokens,
                          keys.data() + kv_head * columns * q.dim, q.dim, columns, q.dim,
                          logits.data(), columns);
      for (std::int64_t t = 0; t < q.tokens; ++t) {
        const std::int64_t row = t * columns;
        soften({logits.data() + row, static_cast<std::size_t>(columns)}, mask.data() + row,
               info.scale, spec.soft_cap);
      }
      multiply(logits.data(), columns, q.tokens, values.data() + kv_head * columns * out.dim,
               out.dim, out.dim, columns, out.data + head * out.head_stride, out.token_stride);
    }
    return {};
  }

 private:
  const Cache& cache_;
};

}  // namespace

Attention reference_attention(const Cache& cache) { return Reference(cache); }

std::int64_t reference_step_end(const CacheSpec& spec, std::int64_t begin) {
  const std::int64_t page = spec.page_tokens;
  const std::int64_t before = begin - spec.exact_tail;
  if (before < 0) return spec.exact_tail + page;  // nothing is coded yet
  return (before / page + 1) * page + spec.exact_tail;
}

}  // namespace quire::model
