// One prompt, two answers: prefill once, fork, and decode a token of each in one step.
#include <cstdio>
#include <quire/cache.hpp>
#include <random>
#include <vector>

constexpr int kLayers = 4, kQueryHeads = 8, kKvHeads = 2, kDim = 64, kPrompt = 200;

// Stands for the projections of a model.
std::vector<float> project(std::int64_t tokens, int heads) {
  static std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<float> data(static_cast<std::size_t>(tokens * heads * kDim));
  for (float& x : data) x = normal(random);
  return data;
}

// One forward pass. A step is a transaction: nothing of it is seen elsewhere until commit.
void forward(quire::Cache& cache, const quire::Batch& batch) {
  using quire::DType, quire::TensorView, quire::OutputView;
  quire::Step step = cache.begin(batch).value();
  const std::int64_t tokens = step.tokens();
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto k = project(tokens, kKvHeads), v = project(tokens, kKvHeads);
    const auto q = project(tokens, kQueryHeads);
    std::vector<float> out(q.size());
    step.put(layer, TensorView::dense(k.data(), DType::f32, tokens, kKvHeads, kDim),
             TensorView::dense(v.data(), DType::f32, tokens, kKvHeads, kDim))
        .value();
    step.attend(layer, TensorView::dense(q.data(), DType::f32, tokens, kQueryHeads, kDim),
                OutputView::dense(out.data(), tokens, kQueryHeads, kDim))
        .value();  // sees the rows just put
  }
  step.commit().value();
}

int main() try {
  auto spec = quire::CacheSpec::gqa(kLayers, kQueryHeads, kKvHeads, kDim);
  spec.set_codec("int8", "int8");  // of full pages; the newest rows stay exact
  quire::Cache cache = quire::Cache::create(spec).value();

  const quire::Sequence first = cache.open().value();
  forward(cache, quire::Batch().add(first.id(), 0, kPrompt));

  const quire::Sequence second = first.fork().value();  // shares every page
  forward(cache, quire::Batch().add(first.id(), kPrompt, 1).add(second.id(), kPrompt, 1));

  const quire::Stats stats = cache.stats();
  std::printf("%d pages, %d shared\n", static_cast<int>(stats.pages_used),
              static_cast<int>(stats.pages_shared));
  return 0;
} catch (const quire::ResultError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
