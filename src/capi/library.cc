// Error texts, names and build information.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "capi/convert.h"
#include "capi/guard.h"
#include "codec/codec.h"
#include "quire/cache.hpp"

namespace quire::capi {
namespace {

// `shown` is `text`, or a literal where keeping a text could itself fail.
struct LastError {
  std::string text;
  const char* shown = "";
};

LastError& last_error() noexcept {
  thread_local LastError last;
  return last;
}

constexpr bool same(int status, ErrorCode code) { return status == static_cast<int>(code); }
static_assert(same(QUIRE_OK, ErrorCode::ok));
static_assert(same(QUIRE_INVALID_SPEC, ErrorCode::invalid_spec));
static_assert(same(QUIRE_OUT_OF_RANGE, ErrorCode::out_of_range));
static_assert(same(QUIRE_MISMATCH, ErrorCode::mismatch));
static_assert(same(QUIRE_NON_FINITE, ErrorCode::non_finite));
static_assert(same(QUIRE_UNKNOWN_SEQUENCE, ErrorCode::unknown_sequence));
static_assert(same(QUIRE_DUPLICATE_POSITION, ErrorCode::duplicate_position));
static_assert(same(QUIRE_FULL, ErrorCode::full));
static_assert(same(QUIRE_OVER_LIMIT, ErrorCode::over_limit));
static_assert(same(QUIRE_NOT_SUPPORTED, ErrorCode::not_supported));
static_assert(same(QUIRE_NOT_RESUMABLE, ErrorCode::not_resumable));
static_assert(same(QUIRE_BUSY, ErrorCode::busy));
static_assert(same(QUIRE_INTERNAL, ErrorCode::internal));
static_assert(same(QUIRE_OUT_OF_MEMORY, ErrorCode::out_of_memory));
static_assert(same(QUIRE_WRONG_STATE, ErrorCode::wrong_state));
static_assert(same(QUIRE_BUFFER_TOO_SMALL, ErrorCode::buffer_too_small));
static_assert(same(QUIRE_INVALID_ARGUMENT, ErrorCode::invalid_argument));

}  // namespace

quire_status succeed() noexcept {
  last_error().shown = "";
  return QUIRE_OK;
}

quire_status fail_with(Error&& error) noexcept {
  LastError& last = last_error();
  last.text = std::move(error.text);
  last.shown = last.text.c_str();
  return static_cast<quire_status>(error.code);
}

quire_status fail_with(ErrorCode code, const char* text) noexcept {
  LastError& last = last_error();
  try {
    last.text = text;
    last.shown = last.text.c_str();
  } catch (...) {
    last.shown = "no memory to keep the text";
  }
  return static_cast<quire_status>(code);
}

}  // namespace quire::capi

using namespace quire;
using namespace quire::capi;

const char* quire_last_error(void) { return last_error().shown; }

const char* quire_error_name(quire_status status) {
  if (status < QUIRE_OK || status > QUIRE_INVALID_ARGUMENT) return "unknown";
  return error_name(static_cast<ErrorCode>(status));
}

const char* quire_version_string(void) {
  try {
    static const std::string version = build_info().version;
    return version.c_str();
  } catch (...) {
    return "";
  }
}

quire_status quire_build_info(char* buffer, size_t buffer_bytes, size_t* bytes) {
  return guard([&]() -> Result<void> {
    const BuildInfo info = build_info();
    const nlohmann::ordered_json json = {
        {"version", info.version},       {"commit", info.commit},
        {"compiler", info.compiler},     {"isas_found", info.isas_found},
        {"isa_chosen", info.isa_chosen}, {"codecs", info.codecs},
    };
    return fill_text("build_info", buffer, buffer_bytes, json.dump(), bytes);
  });
}

size_t quire_dtype_bytes(quire_dtype dtype) {
  return dtype < QUIRE_F32 || dtype > QUIRE_BF16 ? 0 : bytes_of(static_cast<DType>(dtype));
}

const char* quire_dtype_name(quire_dtype dtype) {
  return dtype < QUIRE_F32 || dtype > QUIRE_BF16 ? "unknown" : name_of(static_cast<DType>(dtype));
}

const char* quire_codec_name(int index) {
  const std::span<const Codec* const> codecs = all_codecs();
  if (index < 0 || static_cast<size_t>(index) >= codecs.size()) return nullptr;
  return codecs[static_cast<size_t>(index)]->name;
}

const char* quire_codec_preset(int index) {
  try {
    static const std::vector<CodecPreset> presets = codec_presets();
    if (index < 0 || static_cast<size_t>(index) >= presets.size()) return nullptr;
    return presets[static_cast<size_t>(index)].name.c_str();
  } catch (...) {
    return nullptr;
  }
}

quire_status quire_codec_parse(const char* text, const char** key_codec, const char** value_codec) {
  return guard([&]() -> Result<void> {
    QUIRE_CHECK(require("codec_parse", "text", text));
    QUIRE_CHECK(require("codec_parse", "key_codec", key_codec));
    QUIRE_CHECK(require("codec_parse", "value_codec", value_codec));
    QUIRE_TRY(const CodecPair codec, parse_codec(text));
    *key_codec = find_codec(codec.key)->name;  // the codec's own text
    *value_codec = find_codec(codec.value)->name;
    return {};
  });
}
