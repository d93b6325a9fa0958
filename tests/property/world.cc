#include "property/world.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/numbers.h"

namespace quire::test {
namespace {

double largest_of(const std::vector<double>& row) {
  double largest = 0;
  for (const double x : row) largest = std::max(largest, std::fabs(x));
  return largest;
}

std::vector<NaiveRead> read_layer(const NaiveSequence& model, std::size_t layer) {
  std::vector<NaiveRead> rows;
  if (model.spec->is_cross_layer(layer)) {
    for (std::int64_t i = 0; i < model.length(layer); ++i) {
      rows.push_back(read_entry(model, layer, at(i)));
    }
    return rows;
  }
  const std::int64_t sealed_below = model.spec->sealed_below(model.end_ordinal);
  for (const NaiveToken* token : model.shown(model.spec->group_of[layer])) {
    rows.push_back(read_token(model, layer, *token, sealed_below));
  }
  return rows;
}

std::vector<std::int64_t> positions_of(const NaiveSequence& model, std::size_t layer) {
  std::vector<std::int64_t> positions;
  if (model.spec->is_cross_layer(layer)) {
    for (std::int64_t i = 0; i < model.length(layer); ++i) positions.push_back(i);
    return positions;
  }
  for (const NaiveToken* token : model.shown(model.spec->group_of[layer])) {
    positions.push_back(token->position);
  }
  return positions;
}

const char* side_name(Side side) { return side == Side::key ? "key" : "value"; }

void compare_row(const float* found, const NaiveRead& expected, Side side, std::size_t layer,
                 std::int64_t position) {
  const std::vector<double>& row = side == Side::key ? expected.key : expected.value;
  const bool turned = expected.turned && side == Side::key;
  const double scale = turned ? largest_of(row) : 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    require(same_number(found[c], row[c], turned, scale),
            "layer {} {} at position {}, number {}: {} stored, {} expected{}", layer,
            side_name(side), position, c, found[c], row[c], turned ? " (turned)" : "");
  }
}

void check_stored(const Sequence& sequence, const NaiveSequence& model) {
  const NaiveSpec& spec = *model.spec;
  std::vector<float> buffer;
  for (std::size_t layer = 0; layer < spec.spec.layers.size(); ++layer) {
    const LayerSpec& shape = spec.owner(layer);
    const std::vector<NaiveRead> rows = read_layer(model, layer);
    const std::vector<std::int64_t> positions = positions_of(model, layer);
    for (const Side side : {Side::key, Side::value}) {
      const int dim = side == Side::key ? shape.key_dim : shape.value_dim;
      buffer.assign(rows.size() * at(shape.kv_heads * dim), 77.0f);
      const std::int64_t read = must(sequence.read(static_cast<int>(layer), side, {}, buffer.data(),
                                                   static_cast<std::int64_t>(buffer.size())),
                                     "read");
      require(read == static_cast<std::int64_t>(rows.size()), "read: {} tokens of layer {}, not {}",
              read, layer, rows.size());
      for (std::size_t t = 0; t < rows.size(); ++t) {
        compare_row(buffer.data() + t * at(shape.kv_heads * dim), rows[t], side, layer,
                    positions[t]);
      }
    }
  }
}

void check_lengths(const Sequence& sequence, const NaiveSequence& model) {
  const NaiveSpec& spec = *model.spec;
  const auto held = model.longest();
  const auto same = [](const char* what, std::int64_t found, std::int64_t expected) {
    require(found == expected, "{}: {} found, {} expected", what, found, expected);
  };
  same("length", must(sequence.length(), "length"), static_cast<std::int64_t>(held.size()));
  same("is_empty", must(sequence.is_empty(), "is_empty"), held.empty());
  same("next_position", must(sequence.next_position(), "next_position"), model.next_position);
  same("remaining", must(sequence.remaining(), "remaining"), model.remaining());
  same("is_full", must(sequence.is_full(), "is_full"), model.remaining() == 0);
  same("has_cross", must(sequence.has_cross(), "has_cross"), model.cross.has_value());
  const Result<std::int64_t> first = sequence.first_position();
  if (held.empty()) {
    require(first.code() == ErrorCode::out_of_range, "first_position of an empty sequence");
  } else {
    same("first_position", must(first, "first_position"), held.front()->position);
  }
  for (std::size_t layer = 0; layer < spec.spec.layers.size(); ++layer) {
    const int index = static_cast<int>(layer);
    same("length of a layer", must(sequence.length(index), "length"), model.length(layer));
    const std::vector<std::int64_t> positions = positions_of(model, layer);
    const Result<std::int64_t> begin = sequence.first_position(index);
    if (positions.empty()) {
      require(begin.code() == ErrorCode::out_of_range, "first_position of an empty layer");
    } else {
      same("first_position of a layer", must(begin, "first_position"), positions.front());
    }
  }
}

void check_tokens(const Sequence& sequence, const NaiveSequence& model) {
  const std::vector<Token> tokens = must(sequence.tokens(), "tokens");
  const auto held = model.longest();
  require(tokens.size() == held.size(), "tokens: {} found, {} expected", tokens.size(),
          held.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i].sequence == sequence.id() && tokens[i].position == held[i]->position &&
                tokens[i].key == held[i]->key,
            "tokens: number {} is at {} with key {}, expected {} with key {}", i,
            tokens[i].position, tokens[i].key, held[i]->position, held[i]->key);
  }
}

void check_resuming(const Sequence& sequence, const NaiveSequence& model) {
  const std::int64_t end = model.next_position + 1;
  const std::int64_t stride = end / 24 + 1;
  for (std::int64_t position = -1; position <= end; position += stride) {
    const Resume found = must(sequence.can_resume(position), "can_resume");
    const bool can = model.can_resume(position);
    require((found != Resume::no) == can, "can_resume({}): {} found", position,
            static_cast<int>(found));
    if (!can || !model.is_pure) continue;
    const bool exact = found == Resume::exact;
    require(exact ? model.is_exact_point(position, false) : !model.is_exact_point(position, true),
            "can_resume({}): {} found", position, exact ? "exact" : "coded");
  }
}

}  // namespace

bool same_number(float found, double expected, bool turned, double scale) {
  if (turned) return std::fabs(double{found} - expected) <= 1e-5 * scale + 1e-7;
  return std::bit_cast<std::uint32_t>(found) ==
         std::bit_cast<std::uint32_t>(static_cast<float>(expected));
}

void check_sequence(const Cache& cache, SequenceId id, const NaiveSequence& model) {
  try {
    const Sequence sequence = must(cache.find(id), "find");
    check_lengths(sequence, model);
    check_tokens(sequence, model);
    check_resuming(sequence, model);
    check_stored(sequence, model);
  } catch (const Disagreement& problem) {
    throw Disagreement(fmt::format("sequence {}: {}", number_of(id), problem.what()));
  }
}

void check_world(const World& world, const TestMemory& memory) {
  const Stats stats = world.cache.stats();
  require(stats.bytes <= stats.bytes_limit, "{} bytes are held, the limit is {}", stats.bytes,
          stats.bytes_limit);
  require(stats.bytes == memory.live_bytes, "stats say {} bytes, the source gave {}", stats.bytes,
          memory.live_bytes);
  require(
      stats.bytes == stats.bytes_sealed + stats.bytes_rows + stats.bytes_tables + stats.bytes_free,
      "{} bytes are not {} sealed + {} rows + {} tables + {} free", stats.bytes, stats.bytes_sealed,
      stats.bytes_rows, stats.bytes_tables, stats.bytes_free);
  require(stats.pages_total == stats.pages_used + stats.pages_free, "pages do not add up");
  require(stats.open_steps == static_cast<std::int64_t>(world.steps.size()), "{} open steps",
          stats.open_steps);
  const std::vector<SequenceId> ids = world.cache.sequences();
  require(ids.size() == world.model.sequences.size() &&
              stats.sequences == static_cast<std::int64_t>(ids.size()),
          "{} sequences, {} in stats, {} expected", ids.size(), stats.sequences,
          world.model.sequences.size());
  std::int64_t tokens = 0;
  std::size_t i = 0;
  for (const auto& [id, model] : world.model.sequences) {
    require(ids[i] == id, "sequence {} is {}, not {}", i, number_of(ids[i]), number_of(id));
    ++i;
    check_sequence(world.cache, id, model);
    tokens += model.length();
  }
  require(stats.tokens == tokens, "stats say {} tokens, not {}", stats.tokens, tokens);
}

GatherFormat random_format(Random& random, bool several) {
  GatherFormat format;
  format.dtype = random.pick<DType>({DType::f32, DType::f16, DType::bf16});
  const bool head_major = several || random.one_in(2);
  format.layout = head_major ? Layout::head_major : Layout::token_major;
  format.transpose_values = head_major && random.one_in(2);
  format.pad_tokens_to = random.one_in(2) ? 1 : random.integer(1, 9);
  return format;
}

void check_gathered(const NaiveSpec& spec, std::size_t layer, const GatherFormat& format,
                    const Gathered& gathered, const std::vector<std::vector<NaiveRead>>& expected,
                    const std::vector<std::byte>& keys, const std::vector<std::byte>& values) {
  const LayerSpec& shape = spec.owner(layer);
  std::size_t widest = 0;
  for (const auto& rows : expected) widest = std::max(widest, rows.size());
  const auto pad = at(format.pad_tokens_to);
  const std::size_t columns = (widest + pad - 1) / pad * pad;
  require(at(gathered.columns) == columns, "gather: {} columns, not {}", gathered.columns, columns);
  for (std::size_t s = 0; s < expected.size(); ++s) {
    require(at(gathered.lengths[s]) == expected[s].size(),
            "gather: {} tokens of sequence {}, not {}", gathered.lengths[s], s, expected[s].size());
    for (const Side side : {Side::key, Side::value}) {
      const auto heads = at(shape.kv_heads);
      const auto dim = at(side == Side::key ? shape.key_dim : shape.value_dim);
      const std::vector<std::byte>& buffer = side == Side::key ? keys : values;
      for (std::size_t j = 0; j < columns; ++j) {
        const bool padding = j >= expected[s].size();
        const bool turned = !padding && side == Side::key && expected[s][j].turned;
        const std::vector<double> zeros(heads * dim, 0.0);
        const std::vector<double>& row = padding             ? zeros
                                         : side == Side::key ? expected[s][j].key
                                                             : expected[s][j].value;
        const double unit = format.dtype == DType::f32   ? 0
                            : format.dtype == DType::f16 ? 1e-3
                                                         : 1e-2;
        const double scale = turned ? largest_of(row) : 0;
        for (std::size_t h = 0; h < heads; ++h) {
          for (std::size_t c = 0; c < dim; ++c) {
            std::size_t index = ((s * heads + h) * columns + j) * dim + c;
            if (format.layout == Layout::token_major) index = (j * heads + h) * dim + c;
            if (format.transpose_values && side == Side::value) {
              index = ((s * heads + h) * dim + c) * columns + j;
            }
            const float found = load_element(format.dtype, buffer.data(), index);
            const double wanted = row[h * dim + c];
            const bool same =
                turned ? std::fabs(double{found} - wanted) <= (1e-5 + unit) * scale + 1e-7
                       : same_number(found, double{round_to(format_of(format.dtype), wanted)},
                                     false, 0);
            require(same, "gather: layer {} {} column {} head {} channel {}: {}, not {}", layer,
                    side_name(side), j, h, c, found, wanted);
          }
        }
      }
    }
  }
}

void check_reading(Random& random, const Cache& cache, SequenceId id, const NaiveSequence& model) {
  const NaiveSpec& spec = *model.spec;
  const Sequence sequence = must(cache.find(id), "find");
  const std::size_t layer = random.index(spec.spec.layers.size());
  const int index = static_cast<int>(layer);
  const LayerSpec& shape = spec.owner(layer);
  const std::vector<NaiveRead> rows = read_layer(model, layer);
  const std::vector<std::int64_t> positions = positions_of(model, layer);

  const Side side = random.one_in(2) ? Side::key : Side::value;
  std::size_t row = 0;
  must(sequence.for_each(index, side,
                         [&](std::int64_t position, const float* numbers) {
                           require(row < rows.size() && position == positions[row],
                                   "for_each: position {} as number {}", position, row);
                           compare_row(numbers, rows[row], side, layer, position);
                           ++row;
                         }),
       "for_each");
  require(row == rows.size(), "for_each: {} rows, not {}", row, rows.size());

  // One head of a range.
  const int head = random.number(0, shape.kv_heads - 1);
  const std::int64_t begin = random.integer(0, model.next_position + 1);
  const std::int64_t end = random.integer(begin, model.next_position + 3);
  const auto dim = at(side == Side::key ? shape.key_dim : shape.value_dim);
  std::vector<float> slice(rows.size() * dim + 1);
  const Result<std::int64_t> result = sequence.read(index, side, {begin, end, head}, slice.data(),
                                                    static_cast<std::int64_t>(slice.size()));
  const bool missing =
      end == begin + 1 && std::find(positions.begin(), positions.end(), begin) == positions.end();
  require(result.code() == (missing ? ErrorCode::out_of_range : ErrorCode::ok),
          "read of [{}, {}): {}", begin, end, error_name(result.code()));
  const auto read = at(result.ok() ? *result : 0);
  std::size_t t = 0;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    if (positions[j] < begin || positions[j] >= end) continue;
    const std::vector<double>& whole = side == Side::key ? rows[j].key : rows[j].value;
    for (std::size_t c = 0; c < dim && t < read; ++c) {
      const bool turned = rows[j].turned && side == Side::key;
      require(same_number(slice[t * dim + c], whole[at(head) * dim + c], turned, largest_of(whole)),
              "read: layer {} head {} of position {}", layer, head, positions[j]);
    }
    ++t;
  }
  require(t == read, "read: {} tokens in [{}, {}), not {}", read, begin, end, t);

  const GatherFormat format = random_format(random, false);
  const Gathered size = must(sequence.gather_size(index, format), "gather_size");
  const std::size_t bytes = bytes_of(format.dtype);
  std::vector<std::byte> keys(at(size.key_elements) * bytes + 1, std::byte{0x33});
  std::vector<std::byte> values(at(size.value_elements) * bytes + 1, std::byte{0x33});
  const Gathered gathered = must(sequence.gather(index, format, keys.data(), size.key_elements,
                                                 values.data(), size.value_elements),
                                 "gather");
  check_gathered(spec, layer, format, gathered, {rows}, keys, values);
  if (size.key_elements > 0) {
    require(sequence.gather(index, format, keys.data(), size.key_elements - 1, nullptr, 0).code() ==
                ErrorCode::buffer_too_small,
            "gather into a buffer that is too small");
  }
  std::int64_t lent = 0;
  for (const RunView& run : must(sequence.runs(index), "runs")) {
    require(run.data != nullptr && run.last_slot > run.first_slot &&
                static_cast<int>(run.positions.size()) == run.last_slot - run.first_slot,
            "runs: an empty view");
    if (run.side == Side::key && run.head == 0) lent += run.last_slot - run.first_slot;
  }
  require(lent == static_cast<std::int64_t>(rows.size()), "runs: {} tokens lent, not {}", lent,
          rows.size());
}

}  // namespace quire::test
