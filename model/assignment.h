// Which codecs a model's layers take, and the small file that holds it: what `--codec` names.
//
//     {
//       "version": 1,
//       "model": "SmolLM2 135M Instruct",
//       "layers": ["dual4/tq3", "dual5/tq2", ...]
//     }
//
// `layers` has what parse_codec takes for every layer of the model, in order. Other members say
// where the file comes from and are not read back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quire/result.hpp"
#include "quire/spec.hpp"

namespace quire::model {

struct Assignment {
  CodecPair all = {};                  // of every layer, where `layers` is empty
  std::vector<CodecPair> layers = {};  // or one for each

  // Sets the codecs of `spec`. Refused, and nothing changed, when the number of layers differs.
  // Whether a layer's size suits its codec is for Cache::create to say.
  Result<void> apply_to(CacheSpec& spec) const;

  bool operator==(const Assignment&) const = default;
};

// "@path" is the assignment in a file; other texts are parse_codec's, for all layers.
Result<Assignment> find_assignment(const std::string& text);

// The content of a file. `name` is what errors call it.
Result<Assignment> parse_assignment(std::string_view json, const std::string& name);

}  // namespace quire::model
