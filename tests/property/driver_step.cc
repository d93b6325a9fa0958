// Operations on steps.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/numbers.h"
#include "property/driver.h"

namespace quire::test {
namespace {

// A tensor in a random dtype and layout, with gaps between its rows, and the numbers that are in it
// once they are rounded to that dtype.
struct RandomTensor {
  std::vector<float> numbers;  // [token][head][dim]
  std::vector<std::byte> bytes;
  TensorView view;
};

RandomTensor random_tensor(Random& random, std::int64_t tokens, int heads, int dim) {
  RandomTensor tensor;
  const DType dtype = random.pick<DType>({DType::f32, DType::f32, DType::f16, DType::bf16});
  TensorView& view = tensor.view;
  view = {nullptr, dtype, tokens, heads, dim, 0, 0};
  const std::int64_t gap = random.one_in(3) ? random.integer(1, 3) : 0;
  const bool tokens_first = random.one_in(2);
  view.token_stride = (tokens_first ? heads * dim : dim) + gap;
  view.head_stride = tokens_first ? dim : tokens * (dim + gap);
  tensor.bytes.resize(at(tokens * heads * (dim + gap) + gap) * bytes_of(dtype) + 8);
  const float deviation = random.one_in(8) ? 40.0f : 2.0f;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int c = 0; c < dim; ++c) {
        float x = random.real(-deviation, deviation);
        if (random.one_in(32)) x = random.pick<float>({0.0f, -0.0f, 1e-3f, -3e-6f});
        x = round_to(format_of(dtype), double{x});
        tensor.numbers.push_back(x);
        store_element(dtype, tensor.bytes.data(),
                      at(t * view.token_stride + h * view.head_stride + c), x);
      }
    }
  }
  view.data = tensor.bytes.data();
  return tensor;
}

// Puts a number that no row can hold somewhere.
void spoil(Random& random, RandomTensor& tensor) {
  const TensorView& view = tensor.view;
  const std::int64_t t = random.integer(0, view.tokens - 1);
  const std::int64_t h = random.integer(0, view.heads - 1);
  const std::int64_t c = random.integer(0, view.dim - 1);
  const float bad = random.one_in(2) ? std::numeric_limits<float>::quiet_NaN()
                                     : -std::numeric_limits<float>::infinity();
  tensor.numbers[at((t * view.heads + h) * view.dim + c)] = bad;
  store_element(view.dtype, tensor.bytes.data(),
                at(t * view.token_stride + h * view.head_stride + c), bad);
}

std::vector<float> row_of(const RandomTensor& tensor, std::int64_t token) {
  const std::int64_t size = tensor.view.heads * tensor.view.dim;
  const auto first = tensor.numbers.begin() + token * size;
  return {first, first + size};
}

// An entry owned by neighbours among the tokens of its sequence, old or new, or by nobody.
CrossEntry random_entry(Random& random, SequenceId id, const NaiveSequence* model,
                        const std::vector<Token>& part) {
  std::vector<std::int64_t> positions;
  if (model != nullptr && random.one_in(2)) {
    for (const NaiveToken* token : model->longest()) positions.push_back(token->position);
  }
  for (const Token& token : part) positions.push_back(token.position);
  std::size_t i = random.index(positions.size());
  CrossEntry entry{id, random.integer(1, 12), positions[i], positions[i] + 1};
  while (++i < positions.size() && positions[i] <= entry.owner_end && !random.one_in(3)) {
    entry.owner_end = positions[i] + 1;
  }
  if (random.one_in(8)) entry.owner_end = entry.owner_begin;
  if (random.one_in(40)) entry.owner_end += 50;
  return entry;
}

int query_heads_of(Random& random, const LayerSpec& layer) {
  if (layer.query_heads > 0) return layer.query_heads;
  const std::size_t fixed = std::max(layer.slopes.size(), layer.sinks.size());
  return fixed > 0 ? static_cast<int>(fixed) : layer.kv_heads * random.number(1, 2);
}

// How far attention may be off: f32 sums over a short history, a few units in the last place of the
// largest term; and what kernels round queries and weights to, 8 bits for bf16 and 15 for int8.
struct Tolerance {
  double logit;
  double out;
};

Tolerance tolerance(const NaiveAnswer& answer, const NaiveSpec& spec, std::size_t layer) {
  const LayerSpec& shape = spec.spec.layers[spec.owner_of[layer]];
  const auto uses = [&](const char* codec) {
    return shape.codec.key == codec || shape.codec.value == codec;
  };
  double query = 0;
  double weight = 0;
  if (uses("int8")) {
    query = std::sqrt(static_cast<double>(shape.key_dim)) / 65534;
    weight = 64.0 / 65534;
  }
  if (uses("bf16") || spec.row_type[layer] == DType::bf16) query = weight = 1.0 / 256;
  const double sums = (1e-5 + 4e-6 * answer.magnitude) * (1 + answer.largest_value);
  const double logit = query * answer.reach;
  return {sums + logit,
          sums + 2 * (weight + std::expm1(2 * std::min(logit, 20.0))) * answer.largest_value};
}

}  // namespace

Batch Driver::random_batch(Random& random, World& world, int size) {
  Batch batch;
  std::vector<SequenceId> ids;
  for (const auto& [id, model] : world.model.sequences) ids.push_back(id);
  random.shuffle(ids);
  ids.resize(std::min<std::size_t>(ids.size(), random.index(3) + 1));
  if (random.one_in(60)) ids.push_back(static_cast<SequenceId>(1234));
  std::vector<std::vector<Token>> parts;
  for (const SequenceId id : ids) {
    const NaiveSequence* model = world.model.find(id);
    const bool same_place = world.model.spec->spec.equal_positions;
    std::int64_t position = model != nullptr ? model->next_position : 0;
    if (random.one_in(8)) position += random.integer(1, 12);
    if (random.one_in(60)) position -= random.integer(1, 3);
    std::vector<Token>& part = parts.emplace_back();
    const std::int64_t count = random.integer(1, random.one_in(6) ? 3 * size : size);
    for (std::int64_t i = 0; i < count; ++i) {
      part.push_back({id, position, random.integer(0, 1) > 0 ? random.bits() : 0});
      position += random.one_in(24) ? random.integer(2, 5) : 1;
      if (same_place && random.one_in(5)) --position;
    }
    if (random.one_in(5)) {
      const std::int64_t first = part.front().position;
      const std::int64_t last = part.back().position;
      const std::int64_t begin = random.integer(first, last);
      batch.spans.push_back({id, begin,
                             random.integer(begin + (random.one_in(30) ? 0 : 1),
                                            last + (random.one_in(30) ? 2 : 1))});
      if (random.one_in(3) && batch.spans.back().end < last) {
        batch.spans.push_back({id, batch.spans.back().end, last + 1});
      }
    }
    const bool cross = world.model.spec->has_cross_layers();
    if (cross ? random.one_in(3) : random.one_in(100)) {
      batch.cross.push_back(random_entry(random, id, model, part));
    }
  }
  // Sequences alternate at random, each in its own order.
  std::vector<std::size_t> next(parts.size(), 0);
  while (!parts.empty()) {
    const std::size_t p = random.index(parts.size());
    if (next[p] == parts[p].size()) {
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(p));
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(p));
      continue;
    }
    batch.tokens.push_back(parts[p][next[p]++]);
  }
  return batch;
}

bool Driver::begin(Random& random, World& world, int size) {
  const Batch batch = random_batch(random, world, size);
  std::string text;
  for (const Token& token : batch.tokens) {
    text += fmt::format(" {}@{}", number_of(token.sequence), token.position);
  }
  for (const Span& span : batch.spans) {
    text += fmt::format(", span {} [{}, {})", number_of(span.sequence), span.begin, span.end);
  }
  for (const CrossEntry& entry : batch.cross) {
    text += fmt::format(", cross entry {} of {} owned by [{}, {})", number_of(entry.sequence),
                        entry.length, entry.owner_begin, entry.owner_end);
  }
  note("begin:{}", text);
  const ErrorCode expected = world.model.check_begin(batch);
  if (random.one_in(4)) {
    const Stats before = world.cache.stats();
    const Result<Plan> plan = world.cache.plan(batch);
    require(plan.code() == expected, "plan: {} found, {} expected", error_name(plan.code()),
            error_name(expected));
    require(world.cache.stats().bytes == before.bytes, "plan took memory");
  }
  Result<Step> step = world.cache.begin(batch);
  if (!agreed(step, expected, "begin")) return false;
  require(step->tokens() == static_cast<std::int64_t>(batch.tokens.size()), "step of {} tokens",
          step->tokens());
  world.steps.push_back({std::move(step).value(), world.model.begin(batch)});
  return true;
}

// Puts a layer, now and then in a way that is refused. True when it is put.
bool Driver::put(Random& random, OpenStep& open, std::size_t layer) {
  const NaiveSpec& spec = *open.model.spec;
  const LayerSpec& shape = spec.spec.layers[layer];
  const int index = static_cast<int>(layer);
  const std::int64_t rows = open.model.rows_of(layer);
  RandomTensor keys =
      random_tensor(random, std::max<std::int64_t>(rows, 1), shape.kv_heads, shape.key_dim);
  RandomTensor values =
      random_tensor(random, std::max<std::int64_t>(rows, 1), shape.kv_heads, shape.value_dim);
  ErrorCode expected = ErrorCode::ok;
  if (!spec.stores(layer)) {
    expected = ErrorCode::not_supported;
  } else if (open.model.put[layer] || rows == 0) {
    expected = ErrorCode::wrong_state;
  } else if (random.one_in(16)) {
    spoil(random, shape.mla || random.one_in(2) ? keys : values);
    expected = ErrorCode::non_finite;
  } else if (random.one_in(24)) {
    ++keys.view.dim;
    expected = ErrorCode::mismatch;
  } else if (random.one_in(24)) {
    --keys.view.tokens;
    expected = ErrorCode::mismatch;
  }
  note("put(layer {}){}", layer, expected == ErrorCode::ok ? "" : ", refused");
  const Result<void> result =
      shape.mla ? open.step.put(index, keys.view) : open.step.put(index, keys.view, values.view);
  require(result.code() == expected, "put: {} found, {} expected", error_name(result.code()),
          error_name(expected));
  if (!result.ok()) return false;
  std::vector<NaiveStored> stored;
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int64_t position =
        spec.is_cross_layer(layer) ? t : open.model.batch.tokens[at(t)].position;
    stored.push_back(make_stored(spec, layer, position, row_of(keys, t), row_of(values, t)));
    require(stored.back() != nullptr, "the model refuses what put took");
  }
  open.model.store(layer, stored);
  return true;
}

void Driver::attend(Random& random, OpenStep& open, std::size_t layer) {
  const NaiveStep& model = open.model;
  const LayerSpec& shape = model.spec->spec.layers[layer];
  const int heads = query_heads_of(random, shape);
  const int index = static_cast<int>(layer);
  const RandomTensor q = random_tensor(random, model.tokens(), heads, shape.key_dim);
  const std::int64_t dim = shape.value_dim;
  std::vector<float> out(at(model.tokens() * heads * dim), 55.0f);
  const bool by_state = random.one_in(4);
  note("attend(layer {})", layer);
  Result<void> result;
  if (by_state) {
    std::vector<float> o(out.size());
    std::vector<float> m(at(model.tokens() * heads));
    std::vector<float> l(m.size());
    result = open.step.attend_state(index, q.view,
                                    {o.data(), m.data(), l.data(), model.tokens(), heads, dim});
    for (std::size_t i = 0; result.ok() && i < m.size(); ++i) {
      const float sink = shape.sinks.empty() ? -std::numeric_limits<float>::infinity()
                                             : shape.sinks[i % at(heads)];
      state_finish(out.data() + i * at(dim), o.data() + i * at(dim), m[i], l[i], sink, dim);
    }
  } else {
    result =
        open.step.attend(index, q.view, OutputView::dense(out.data(), model.tokens(), heads, dim));
  }
  const ErrorCode expected = model.is_readable(layer) ? ErrorCode::ok : ErrorCode::wrong_state;
  require(result.code() == expected, "attend: {} found, {} expected", error_name(result.code()),
          error_name(expected));
  if (!result.ok()) return;

  const bool all = random.one_in(3);
  const std::int64_t columns = model.widest(layer);
  std::vector<float> scores(at(model.tokens() * heads * columns), 55.0f);
  std::vector<float> probabilities(scores);
  if (all) {
    const auto size = static_cast<std::int64_t>(scores.size());
    must(open.step.scores(index, q.view, scores.data(), size), "scores");
    must(open.step.probabilities(index, q.view, probabilities.data(), size), "probabilities");
  }
  for (const NaivePart& part : model.parts) {
    const auto answers =
        model.attend(part, layer, heads, [&](std::size_t i) { return row_of(q, part.rows[i]); });
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      const std::int64_t row = part.rows[i];
      for (int h = 0; h < heads; ++h) {
        const NaiveAnswer& answer = answers[i][at(h)];
        const Tolerance allowed = tolerance(answer, *model.spec, layer);
        const auto differs = [&](const char* what, std::int64_t j, float found, double wanted,
                                 double by) {
          throw Disagreement(fmt::format(
              "{}: layer {} token {} (position {}) head {} number {}: {}, expected {} +- {}", what,
              layer, row, model.batch.tokens[at(row)].position, h, j, found, wanted, by));
        };
        for (std::int64_t c = 0; c < dim; ++c) {
          const float found = out[at((row * heads + h) * dim + c)];
          const double wanted = answer.out[at(c)];
          if (!(std::fabs(double{found} - wanted) <= allowed.out)) {
            differs("attend", c, found, wanted, allowed.out);
          }
        }
        for (std::int64_t j = 0; all && j < columns; ++j) {
          const bool inside = at(j) < answer.logits.size();
          const double logit =
              inside ? answer.logits[at(j)] : -std::numeric_limits<double>::infinity();
          const double p = inside ? answer.probabilities[at(j)] : 0.0;
          const float score = scores[at((row * heads + h) * columns + j)];
          const float found = probabilities[at((row * heads + h) * columns + j)];
          const bool same = std::isinf(logit) ? double{score} == logit
                                              : std::fabs(double{score} - logit) <= allowed.logit;
          if (!same) differs("scores", j, score, logit, allowed.logit);
          const double off = std::expm1(2 * std::min(allowed.logit, 20.0));
          if (!(std::fabs(double{found} - p) <= off)) differs("probabilities", j, found, p, off);
        }
      }
    }
  }
}

// gather, mask and runs of a layer.
void Driver::inspect(Random& random, OpenStep& open, std::size_t layer) {
  const NaiveStep& model = open.model;
  const int index = static_cast<int>(layer);
  std::vector<std::size_t> chosen(model.parts.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  random.shuffle(chosen);
  chosen.resize(random.index(chosen.size()) + 1);
  std::vector<SequenceId> ids;
  for (const std::size_t p : chosen) ids.push_back(model.parts[p].id);
  const GatherFormat format = random_format(random, ids.size() > 1);
  note("gather and mask(layer {})", layer);
  if (!model.is_readable(layer)) {
    require(open.step.gather_size(index, ids, format).code() == ErrorCode::wrong_state,
            "gather of a layer that was not put");
    require(open.step.mask_columns(index).code() == ErrorCode::wrong_state,
            "mask of a layer that was not put");
    return;
  }
  const Gathered size = must(open.step.gather_size(index, ids, format), "gather_size");
  const std::size_t bytes = bytes_of(format.dtype);
  std::vector<std::byte> keys(at(size.key_elements) * bytes + 1, std::byte{0x33});
  std::vector<std::byte> values(at(size.value_elements) * bytes + 1, std::byte{0x33});
  const Gathered gathered =
      must(open.step.gather(index, ids, format, keys.data(), size.key_elements, values.data(),
                            size.value_elements),
           "gather");
  std::vector<std::vector<NaiveRead>> expected;
  for (const std::size_t p : chosen) expected.push_back(model.gather(model.parts[p], layer));
  check_gathered(*model.spec, layer, format, gathered, expected, keys, values);

  const std::int64_t pad = random.integer(1, 5);
  const std::int64_t columns = must(open.step.mask_columns(index, pad), "mask_columns");
  require(columns == (model.widest(layer) + pad - 1) / pad * pad, "mask: {} columns", columns);
  const DType dtype = random.one_in(2) ? DType::f32 : DType::f16;
  std::vector<std::byte> mask(at(model.tokens() * columns) * bytes_of(dtype) + 1);
  must(open.step.mask(index, dtype, pad, mask.data(), model.tokens() * columns), "mask");
  for (const NaivePart& part : model.parts) {
    const auto shown = model.columns(part, layer);
    const bool cross = model.spec->is_cross_layer(layer);
    for (std::size_t i = 0; i < part.rows.size(); ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const bool inside = j < model.width(part, layer);
        const bool sees = inside && (cross || model.sees(part, layer, i, *shown[at(j)]));
        const float found = load_element(dtype, mask.data(), at(part.rows[i] * columns + j));
        require(sees ? found == 0.0f : std::isinf(found) && found < 0,
                "mask: layer {} token {} column {}: {}", layer, part.rows[i], j, found);
      }
    }
    std::int64_t lent = 0;
    for (const RunView& run : must(open.step.runs(index, part.id), "runs")) {
      if (run.side == Side::key && run.head == 0) lent += run.last_slot - run.first_slot;
    }
    require(lent == model.width(part, layer), "runs: {} tokens of layer {}", lent, layer);
  }
}

void Driver::set_exceptions(Random& random, OpenStep& open) {
  std::vector<std::int64_t> tokens;
  const std::int64_t count = open.model.tokens();
  for (std::int64_t i = 0; i < count; ++i) {
    if (random.one_in(4)) tokens.push_back(i);
  }
  note("set_exceptions of {} tokens", tokens.size());
  require(open.step.set_exceptions({count}).code() == ErrorCode::out_of_range,
          "an exception behind the batch");
  must(open.step.set_exceptions(tokens), "set_exceptions");
  open.model.exceptions.assign(at(count), false);
  for (const std::int64_t token : tokens) open.model.exceptions[at(token)] = true;
}

void Driver::advance(Random& random, World& world) {
  if (world.steps.empty()) return;
  OpenStep& open = world.steps[random.index(world.steps.size())];
  const std::size_t layer = random.index(open.model.spec->spec.layers.size());
  if (random.one_in(4)) set_exceptions(random, open);
  put(random, open, layer);
  if (random.one_in(2)) attend(random, open, random.index(open.model.spec->spec.layers.size()));
  if (random.one_in(3)) inspect(random, open, random.index(open.model.spec->spec.layers.size()));
}

void Driver::run_step(Random& random, World& world, int size) {
  if (!begin(random, world, size)) return;
  OpenStep& open = world.steps.back();
  std::vector<std::size_t> order(open.model.spec->spec.layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(order);
  for (const std::size_t layer : order) {
    if (random.one_in(6)) set_exceptions(random, open);
    const NaiveSpec& spec = *open.model.spec;
    const bool takes_put = spec.stores(layer) && open.model.rows_of(layer) > 0;
    if (takes_put || random.one_in(20)) put(random, open, layer);
    if (random.one_in(2)) attend(random, open, layer);
    if (random.one_in(4)) inspect(random, open, layer);
  }
  end_step(random, world, world.steps.size() - 1);
}

// Puts what is missing, then commits or drops.
void Driver::end_step(Random& random, World& world, std::size_t index) {
  OpenStep& open = world.steps[index];
  if (random.one_in(8)) {
    note("drop");
    open.step.drop();
    require(!open.step.is_open(), "a dropped step is open");
    world.model.drop(open.model);
    world.steps.erase(world.steps.begin() + static_cast<std::ptrdiff_t>(index));
    return;
  }
  for (std::size_t layer = 0; layer < open.model.put.size(); ++layer) {
    if (!open.model.spec->stores(layer) || open.model.rows_of(layer) == 0) continue;
    if (!open.model.put[layer] && random.one_in(8)) {
      require(open.step.commit().code() == ErrorCode::wrong_state, "commit without layer {}",
              layer);
    }
    while (!open.model.put[layer]) put(random, open, layer);
  }
  commit(random, world, index);
}

void Driver::commit(Random& random, World& world, std::size_t index) {
  OpenStep& open = world.steps[index];
  std::vector<std::int64_t> asked;
  std::vector<std::int64_t> taken;
  const bool partial = random.one_in(3);
  std::string text;
  for (const NaivePart& part : open.model.parts) {
    const auto all = static_cast<std::int64_t>(part.rows.size());
    asked.push_back(partial ? random.integer(0, all) : all);
    taken.push_back(world.model.committable(open.model, part, asked.back()));
    text += fmt::format(" {} of {}", asked.back(), all);
  }
  note("commit{}", text);
  if (random.one_in(16)) {
    std::vector<std::int64_t> wrong = asked;
    ++wrong.back();
    if (wrong.back() > static_cast<std::int64_t>(open.model.parts.back().rows.size())) {
      require(open.step.commit(wrong).code() == ErrorCode::out_of_range, "commit of too many");
    }
    wrong.push_back(0);
    require(open.step.commit(wrong).code() == ErrorCode::mismatch, "commit of too many sequences");
  }
  const std::vector<Committed> committed =
      must(partial ? open.step.commit(asked) : open.step.commit(), "commit");
  for (std::size_t i = 0; i < taken.size(); ++i) {
    require(committed[i].sequence == open.model.parts[i].id && committed[i].tokens == taken[i],
            "commit took {} tokens of part {}, expected {}", committed[i].tokens, i, taken[i]);
  }
  require(open.step.commit().code() == ErrorCode::wrong_state, "a second commit");
  world.model.commit(open.model, taken);
  trim_idle(world, open.model);
  world.steps.erase(world.steps.begin() + static_cast<std::ptrdiff_t>(index));
}

// Sequences that took no part in a step are trimmed when it commits. Where memory may fail, that
// may have to wait: then the model does what the cache did.
void Driver::trim_idle(World& world, const NaiveStep& step) {
  for (auto& [id, model] : world.model.sequences) {
    bool took_part = world.model.is_busy(id);
    for (const NaivePart& part : step.parts) took_part = took_part || part.id == id;
    if (took_part) continue;
    NaiveSequence trimmed = model;
    trimmed.evict(trimmed.next_position);
    bool done = true;
    const Sequence sequence = must(world.cache.find(id), "find");
    for (std::size_t layer = 0; layer < step.put.size(); ++layer) {
      const std::int64_t length = must(sequence.length(static_cast<int>(layer)), "length");
      done = done && length == trimmed.length(layer);
    }
    if (done || !memory_may_fail()) model = trimmed;
  }
}

}  // namespace quire::test
