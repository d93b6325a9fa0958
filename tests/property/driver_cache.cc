// Operations on whole caches, limits, and calls that must be refused.
#include <map>
#include <utility>

#include "property/driver.h"

namespace quire::test {

void Driver::clear(Random& random, World& world) {
  if (!random.one_in(4)) return;  // too much is lost to do it often
  note("clear");
  const ErrorCode expected = world.steps.empty() ? ErrorCode::ok : ErrorCode::busy;
  if (agreed(world.cache.clear(), expected, "clear")) world.model.sequences.clear();
}

void Driver::clone(Random& random, World& world) {
  if (worlds_.size() > 1) {
    if (random.one_in(2)) close_world(1);
    return;
  }
  note("clone");
  Result<Cache> copy = world.cache.clone();
  if (!agreed(copy, ErrorCode::ok, "clone")) return;
  NaiveCache model = world.model;
  model.busy.clear();
  worlds_.emplace_back(std::move(copy).value(), std::move(model));
}

void Driver::assign(Random& random, World& world) {
  World& other = any_world(random);
  note("assign cache {} from {}", &world - worlds_.data(), &other - worlds_.data());
  const ErrorCode expected = world.steps.empty() ? ErrorCode::ok : ErrorCode::busy;
  if (!agreed(world.cache.assign(other.cache), expected, "assign")) return;
  if (&world == &other) return;
  world.model.sequences = other.model.sequences;
  world.model.busy.clear();
}

void Driver::close_world(std::size_t index) {
  note("close cache {}", index);
  World& world = worlds_[index];
  const std::vector<SequenceId> ids = world.cache.sequences();
  world.cache.close();
  for (OpenStep& open : world.steps) {
    require(!open.step.is_open(), "a step outlives its cache");
    require(open.step.commit().code() == ErrorCode::wrong_state, "commit after the cache closed");
  }
  require(world.cache.sequences().empty(), "a closed cache has sequences");
  require(world.cache.open().code() == ErrorCode::unknown_sequence, "open on a closed cache");
  for (const SequenceId id : ids) {
    require(world.cache.find(id).code() == ErrorCode::unknown_sequence, "find on a closed cache");
  }
  world.steps.clear();
  worlds_.erase(worlds_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Driver::compact(World& world) {
  note("compact");
  const Result<std::int64_t> pages = world.cache.compact();
  if (agreed(pages, ErrorCode::ok, "compact")) require(*pages >= 0, "compact: {} pages", *pages);
  for (auto& [id, model] : world.model.sequences) model.is_pure = false;
}

// How many cuts are made depends on true bytes; which they are does not: the longest idle sequence,
// the oldest of equal ones, to three quarters. So the model cuts until lengths agree.
void Driver::enforce(Random& random, World& world, bool resize) {
  const std::size_t held = world.cache.stats().bytes;
  std::size_t bytes = held * random.index(140) / 100;
  if (resize && random.one_in(2)) bytes = std::size_t{1} << 30;
  note("{}({} bytes), {} held", resize ? "resize" : "enforce_memory_limit", bytes, held);
  const Result<bool> result =
      resize ? world.cache.resize(bytes) : world.cache.enforce_memory_limit(bytes);
  const bool was_limited = memory_may_fail();
  if (resize && result.ok()) {
    limit_bytes_ = bytes;
    memory_.most_bytes = memory_.live_bytes;
  }
  std::int64_t cuts = 0;
  std::map<const NaiveSequence*, std::int64_t> lengths;
  for (const auto& [id, model] : world.model.sequences) {
    lengths[&model] = must(must(world.cache.find(id), "find").length(), "length");
  }
  const auto length_of = [&](const NaiveSequence& model) { return lengths.at(&model); };
  const auto agrees = [&] {
    for (const auto& [id, model] : world.model.sequences) {
      if (length_of(model) != model.length()) return false;
    }
    return true;
  };
  while (!agrees()) {
    NaiveSequence* longest = nullptr;
    for (auto& [id, model] : world.model.sequences) {
      if (world.model.is_busy(id) || model.length() == 0) continue;
      if (longest == nullptr || model.length() > longest->length()) longest = &model;
    }
    require(longest != nullptr, "a limit cut what it should not");
    // Where there is no room to cut a table that many share, the sequence goes whole.
    const bool gone = memory_may_fail() && length_of(*longest) == 0;
    longest->keep_last(gone ? 0 : longest->length() * 3 / 4);
    ++cuts;
  }
  if (result.ok()) {
    require(*result == (cuts > 0), "a limit says that it cut: {}, and made {} cuts", *result, cuts);
    require(world.cache.stats().bytes <= bytes, "{} bytes are held after a limit of {}",
            world.cache.stats().bytes, bytes);
    return;
  }
  const bool others = !world.steps.empty() || worlds_.size() > 1;
  require(result.code() == ErrorCode::over_limit || (others && result.code() == ErrorCode::busy) ||
              (was_limited && result.code() == ErrorCode::out_of_memory),
          "a limit: {}", result.error().text);
  // A cut may need a table of its own first, and the system may have none: what was cut stays cut.
  if (result.code() == ErrorCode::out_of_memory) return;
  require(cuts == 0, "a refused limit made {} cuts: {}", cuts, result.error().text);
}

void Driver::reserve(Random& random, World& world) {
  // A reservation for a batch that could begin now, which then must begin without memory.
  Batch batch = random_batch(random, world, 6);
  if (world.model.check_begin(batch) != ErrorCode::ok) return;
  BatchSize size;
  std::map<SequenceId, int> ids;
  for (const Token& token : batch.tokens) ids[token.sequence] = 1;
  size.sequences = static_cast<std::int64_t>(ids.size()) + random.integer(0, 1);
  size.tokens = static_cast<std::int64_t>(batch.tokens.size()) + random.integer(1, 3);
  size.cross_entries = static_cast<std::int64_t>(batch.cross.size());
  for (const CrossEntry& entry : batch.cross) size.cross_tokens += entry.length;
  note("reserve({} sequences, {} tokens, {} cross entries of {})", size.sequences, size.tokens,
       size.cross_entries, size.cross_tokens);
  if (!agreed(world.cache.reserve(size), ErrorCode::ok, "reserve")) return;
  if (world.steps.size() >= 2 || random.one_in(3)) return;
  note("begin with nothing left: {} tokens of {} sequences", batch.tokens.size(), ids.size());
  const bool fail_all = std::exchange(memory_.fail_all, true);
  Result<Step> step = world.cache.begin(batch);
  memory_.fail_all = fail_all;
  require(step.ok(), "begin after reserve: {}", step.ok() ? "" : step.error().text);
  world.steps.push_back({std::move(step).value(), world.model.begin(batch)});
}

void Driver::invalid(Random& random, World& world) {
  const SequenceId id = any_sequence(random, world);
  const Result<Sequence> found = world.cache.find(id);
  const NaiveSpec& spec = *world.model.spec;
  const int beyond = static_cast<int>(spec.spec.layers.size()) + random.number(0, 3);
  const int layer = random.one_in(2) ? beyond : -1;
  const auto refused = [&](const char* call, ErrorCode code, ErrorCode expected) {
    note("{} on sequence {}, refused", call, number_of(id));
    require(code == expected, "{}: {} found, {} expected", call, error_name(code),
            error_name(expected));
  };
  if (!found.ok()) {
    refused("find", found.code(), ErrorCode::unknown_sequence);
    Batch batch;
    batch.add(id, 0, 1);
    refused("plan", world.cache.plan(batch).code(), ErrorCode::unknown_sequence);
    return;
  }
  const Sequence& sequence = *found;
  float number = 0;
  switch (random.number(0, 9)) {
    case 0:
      refused("length(layer)", sequence.length(layer).code(), ErrorCode::out_of_range);
      refused("first_position(layer)", sequence.first_position(layer).code(),
              ErrorCode::out_of_range);
      refused("layer_info", world.cache.layer_info(layer).code(), ErrorCode::out_of_range);
      break;
    case 1:
      refused("read(layer)", sequence.read(layer, Side::key, {}, &number, 1).code(),
              ErrorCode::out_of_range);
      refused("runs(layer)", sequence.runs(layer).code(), ErrorCode::out_of_range);
      refused("gather(layer)", sequence.gather_size(layer, {}).code(), ErrorCode::out_of_range);
      break;
    case 2: {
      ReadRange range;
      range.head = spec.owner(0).kv_heads;
      refused("read(head)", sequence.read(0, Side::key, range, &number, 1).code(),
              ErrorCode::out_of_range);
      range = {5, 4, -1};
      refused("read(range)", sequence.read(0, Side::key, range, &number, 1).code(),
              ErrorCode::invalid_argument);
      if (world.model.find(id)->length(0) == 0) break;
      refused("read(buffer)", sequence.read(0, Side::key, {}, &number, 1).code(),
              ErrorCode::buffer_too_small);
      break;
    }
    case 3: {
      GatherFormat format;
      format.pad_tokens_to = 0;
      refused("gather(pad)", sequence.gather_size(0, format).code(), ErrorCode::invalid_argument);
      format.pad_tokens_to = 1;
      format.transpose_values = true;
      refused("gather(transpose)", sequence.gather_size(0, format).code(),
              ErrorCode::invalid_argument);
      break;
    }
    case 4:
      refused("begin(empty)", world.cache.begin({}).code(), ErrorCode::invalid_argument);
      refused("plan(empty)", world.cache.plan({}).code(), ErrorCode::invalid_argument);
      break;
    case 5:
      refused("reserve", world.cache.reserve({0, 1, 0, 0}).code(), ErrorCode::invalid_argument);
      refused("reserve", world.cache.reserve({1, -4, 0, 0}).code(), ErrorCode::invalid_argument);
      break;
    case 6:
      refused("a handle of nothing", Sequence().length().code(), ErrorCode::unknown_sequence);
      refused("a step of nothing", Step().commit().code(), ErrorCode::wrong_state);
      break;
    case 7:
      refused("for_each", sequence.for_each(0, Side::key, {}).code(), ErrorCode::invalid_argument);
      break;
    case 8: {
      const NaiveSequence& model = *world.model.find(id);
      Batch batch;
      batch.add(id, model.next_position, 1).add(id, model.next_position, 1);
      const ErrorCode expected = world.model.check_begin(batch);
      if (expected == ErrorCode::ok) break;
      refused("begin(twice the same)", world.cache.begin(batch).code(), expected);
      break;
    }
    default:
      refused("copy_prefix from nothing",
              world.cache.copy_prefix(static_cast<SequenceId>(4321), id, 3).code(),
              ErrorCode::unknown_sequence);
      break;
  }
}

void Driver::change_faults(Random& random) {
  if (!options_.faults) return;
  memory_.fail_all = random.one_in(4);
  memory_.fail_every = random.one_in(3) ? 0 : static_cast<std::uint64_t>(random.integer(1, 9));
  note("memory fails {}", memory_.fail_all         ? "always"
                          : memory_.fail_every > 0 ? fmt::format("every {}", memory_.fail_every)
                                                   : "never");
}

}  // namespace quire::test
