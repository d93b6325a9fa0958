// Operations on single sequences.
#include <vector>

#include "property/driver.h"

namespace quire::test {

void Driver::compare_cut(const Result<Cut>& found, const Result<Cut>& expected, const char* call) {
  if (!expected.ok()) return;
  require(found->removed == expected->removed && found->at == expected->at,
          "{}: removed {} at {}, expected {} at {}", call, found->removed, found->at,
          expected->removed, expected->at);
}

void Driver::open(Random&, World& world) {
  note("open");
  const Result<Sequence> opened = world.cache.open();
  if (!agreed(opened, world.model.check_open(), "open")) return;
  require(world.model.find(opened->id()) == nullptr, "open: id {} is taken",
          number_of(opened->id()));
  world.model.open(opened->id());
}

void Driver::close(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  note("close({})", number_of(id));
  const Result<Sequence> found = world.cache.find(id);
  const ErrorCode expected = world.model.check_idle(id);
  if (!found.ok()) {
    agreed(found, expected, "find");
    return;
  }
  if (agreed(found->close(), expected, "close")) world.model.sequences.erase(id);
}

void Driver::fork(Random& random, World& world, bool at_position) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const Sequence parent = must(world.cache.find(id), "find");
  const std::int64_t position = any_position(random, model);
  if (!at_position) {
    note("fork({})", number_of(id));
    const Result<Sequence> child = parent.fork();
    if (!agreed(child, world.model.check_open(), "fork")) return;
    world.model.sequences.emplace(child->id(), *model);
    return;
  }
  note("fork({}, position {})", number_of(id), position);
  const Result<Forked> child = parent.fork(position);
  const ErrorCode expected = position < 0 ? ErrorCode::out_of_range : world.model.check_open();
  if (!agreed(child, expected, "fork")) return;
  NaiveSequence copy = *model;
  const Cut cut = copy.truncate(position);
  require(child->at == std::min(cut.at, model->next_position), "fork fell on {}, expected {}",
          child->at, cut.at);
  world.model.sequences.emplace(child->sequence.id(), copy);
}

void Driver::copy_prefix(Random& random, World& world) {
  const SequenceId source = any_sequence(random, world);
  const SequenceId target = random.one_in(8) ? source : any_sequence(random, world);
  NaiveSequence* from = world.model.find(source);
  const std::int64_t position = any_position(random, from);
  note("copy_prefix({}, {}, position {})", number_of(source), number_of(target), position);
  const Result<Cut> found = world.cache.copy_prefix(source, target, position);
  ErrorCode expected =
      from == nullptr ? ErrorCode::unknown_sequence : world.model.check_idle(target);
  if (expected == ErrorCode::ok && position < 0) expected = ErrorCode::out_of_range;
  if (!agreed(found, expected, "copy_prefix")) return;
  NaiveSequence copy = *from;
  Cut cut = copy.truncate(position);
  NaiveSequence& into = world.model.sequences.at(target);
  if (source != target) cut.removed = into.length() > 0;
  compare_cut(found, cut, "copy_prefix");
  into = copy;
}

void Driver::truncate(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const std::int64_t position = any_position(random, model);
  note("truncate({}, position {})", number_of(id), position);
  const Result<Cut> found = must(world.cache.find(id), "find").truncate(position);
  ErrorCode expected = world.model.check_idle(id);
  if (expected == ErrorCode::ok && position < 0) expected = ErrorCode::out_of_range;
  if (agreed(found, expected, "truncate")) {
    compare_cut(found, model->truncate(position), "truncate");
  }
}

void Driver::keep_last(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const std::int64_t count = random.integer(random.one_in(20) ? -1 : 0, model->length() + 1);
  note("keep_last({}, {} tokens)", number_of(id), count);
  const Result<Cut> found = must(world.cache.find(id), "find").keep_last(count);
  ErrorCode expected = world.model.check_idle(id);
  if (expected == ErrorCode::ok && count < 0) expected = ErrorCode::out_of_range;
  if (agreed(found, expected, "keep_last")) {
    compare_cut(found, model->keep_last(count), "keep_last");
  }
}

void Driver::shift_left(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const std::int64_t count = random.integer(random.one_in(20) ? -1 : 0, model->length() + 1);
  note("shift_left({}, {} tokens)", number_of(id), count);
  const Result<Cut> found = must(world.cache.find(id), "find").shift_left(count);
  NaiveSequence shifted = *model;
  ErrorCode expected = world.model.check_idle(id);
  if (expected == ErrorCode::ok && count < 0) expected = ErrorCode::out_of_range;
  Result<Cut> cut = Cut{};
  if (expected == ErrorCode::ok) {
    cut = shifted.shift_left(count);
    expected = cut.code();
  }
  if (!agreed(found, expected, "shift_left")) return;
  compare_cut(found, cut, "shift_left");
  *model = shifted;
}

void Driver::remove(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const std::int64_t begin = any_position(random, model);
  const std::int64_t end = random.one_in(30) ? begin - 1 : begin + random.integer(0, 6);
  const bool leave_gap = random.one_in(3);
  note("remove({}, [{}, {}){})", number_of(id), begin, end, leave_gap ? ", leave_gap" : "");
  const Result<Cut> found = must(world.cache.find(id), "find").remove(begin, end, leave_gap);
  NaiveSequence shorter = *model;
  ErrorCode expected = world.model.check_idle(id);
  Result<Cut> cut = Cut{false, begin};
  if (expected == ErrorCode::ok && begin < 0) expected = ErrorCode::out_of_range;
  if (expected == ErrorCode::ok && begin > end) expected = ErrorCode::invalid_argument;
  if (expected == ErrorCode::ok && begin < end) {
    cut = shorter.remove(begin, end, leave_gap);
    expected = cut.code();
  }
  if (!agreed(found, expected, "remove")) return;
  compare_cut(found, cut, "remove");
  *model = shorter;
}

void Driver::overwrite(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  NaiveSequence* model = world.model.find(id);
  if (model == nullptr) return;
  const NaiveSpec& spec = *world.model.spec;
  const std::size_t layer = random.index(spec.spec.layers.size());
  const LayerSpec& shape = spec.spec.layers[layer];
  const bool is_cross = spec.is_cross_layer(layer);
  std::int64_t position = any_position(random, model);
  if (is_cross) position = random.integer(0, model->length(layer));

  NaiveToken* token = nullptr;
  int matches = 0;
  for (NaiveToken& each : model->tokens) {
    if (is_cross || each.position != position || !each.in[spec.group_of[layer]].shown) continue;
    token = &each;
    ++matches;
  }
  if (matches > 1) return;  // which one of equal positions is not said
  // A key that must be turned back first is stored rounded: only f32 is close enough to compare.
  const bool turned =
      token != nullptr && shape.rotation.kind == Rotation::Kind::rope && spec.stores(layer) &&
      (token->stored[layer]->approximate || token->position != token->stored[layer]->rotated_for);
  if (turned && shape.codec.key != "f32") return;

  std::vector<float> key(at(shape.kv_heads * shape.key_dim));
  std::vector<float> value(at(shape.kv_heads * shape.value_dim));
  for (float& x : key) x = random.real(-3.0f, 3.0f);
  for (float& x : value) x = random.real(-3.0f, 3.0f);
  if (random.one_in(20)) key[random.index(key.size())] = std::numeric_limits<float>::infinity();
  note("overwrite({}, layer {}, position {})", number_of(id), layer, position);
  const NaiveStored stored = make_stored(spec, layer, position, key, value);
  ErrorCode expected = world.model.check_idle(id);
  const bool held = is_cross ? position < model->length(layer) : token != nullptr;
  if (expected == ErrorCode::ok && !spec.stores(layer)) expected = ErrorCode::not_supported;
  if (expected == ErrorCode::ok && !held) expected = ErrorCode::out_of_range;
  if (expected == ErrorCode::ok && stored == nullptr) expected = ErrorCode::non_finite;
  const auto view = [&](const std::vector<float>& row, int dim) {
    return TensorView::dense(row.data(), DType::f32, 1, shape.kv_heads, dim);
  };
  const Result<void> found = must(world.cache.find(id), "find")
                                 .overwrite(static_cast<int>(layer), position,
                                            view(key, shape.key_dim), view(value, shape.value_dim));
  if (!agreed(found, expected, "overwrite")) return;
  if (is_cross) {
    model->cross->entries[layer][at(position)] = stored;
    return;
  }
  auto forms = std::make_shared<NaiveForms>(*stored);
  forms->approximate = turned;
  token->stored[layer] = forms;
  model->is_pure = false;
}

}  // namespace quire::test
