// Whether code runs 10 to 20 times slower than in a release build: tests then take fewer cases.
#pragma once

namespace quire::test {

#ifdef NDEBUG
inline constexpr bool kSlowBuild = false;
#else
inline constexpr bool kSlowBuild = true;  // debug, sanitizers, coverage
#endif

}  // namespace quire::test
