// A tiny model with weights of a fixed seed, with a vocabulary for chats.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/generator.h"
#include "model_runner/tiny_model.h"
#include "model_runner/tokenizer_fixture.h"

namespace quire::model::test {

inline constexpr const char* kSmallTemplate =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nhello<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + "
    "'\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

// The model with all that runs it.
struct SmallModel {
  // Packed weights, with which the tokens of a step do not change each other's bits.
  explicit SmallModel(const std::function<void(CacheSpec&)>& change = {},
                      WeightForm form = WeightForm::packed)
      : weights(form) {
    CacheSpec spec = model.cache_spec();
    if (change) change(spec);
    cache.emplace(Cache::create(spec).value());
    generator.emplace(model, tokenizer, *cache);
  }
  // What a sequence holds.
  std::vector<int> ids_of(const Sequence& sequence) const {
    std::vector<int> ids;
    for (const Token& token : sequence.tokens().value()) {
      ids.push_back(static_cast<int>(token.key) - 1);
    }
    return ids;
  }

  WeightForm weights;
  std::vector<std::byte> bytes = file();
  Model model = Model::load(Gguf::parse(bytes, "small").value(), {.weights = weights}).value();
  Tokenizer tokenizer = Tokenizer::create(ChatVocabulary()).value();
  std::optional<Cache> cache;
  std::optional<Generator> generator;

 private:
  static std::vector<std::byte> file() {
    TinySpec spec;
    spec.vocabulary = static_cast<int>(ChatVocabulary().tokens.size());
    spec.has_own_output = true;
    return TinyModel(spec, 1).writer().bytes();
  }
};

inline Sampler sampler_of(const SamplerOptions& options = {}) {
  return Sampler::create(options).value();
}

}  // namespace quire::model::test
