// The law, tried: a history is fed in many ways, and every query must get the bits it got when
// tokens came one by one.
//
// A history is a story: its rows and queries are functions of the story's number and the token.
// Story 1 is the one that is compared; others are there to be beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "property/random.h"
#include "quire/cache.hpp"

namespace quire::test {

inline std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// Tokens of a batch: which story they tell, and which token of it they are.
struct Told {
  SequenceId sequence{};
  std::int64_t token = 0;
  std::uint64_t story = 0;
  std::int64_t position = 0;
};

struct LawCase {
  CacheSpec spec;
  std::string name;
  std::int64_t tokens = 40;
  std::int64_t at_first = 0;  // so many come at once, before all others
  bool gaps = false;          // positions jump now and then
};

// What every query of story 1 gets, [layer][token]: set by the first feeding, compared after.
class Reference {
 public:
  void meet(std::size_t layer, std::int64_t token, const float* output, std::size_t count);
  // How many queries got what is known.
  std::int64_t met() const { return met_; }

 private:
  using Output = std::vector<float>;  // [query head][dim]

  std::map<std::pair<std::size_t, std::int64_t>, Output> outputs_;
  std::int64_t met_ = 0;
};

// How often each thing happened, so that a test that tests nothing is seen.
struct Walked {
  int rollbacks = 0;
  int exact_cuts = 0;
  int coded_points = 0;
};

// Tokens [first, first + count) of a story, at positions of the same numbers.
std::vector<Told> tell(const Sequence& sequence, std::int64_t first, std::int64_t count,
                       std::uint64_t story = 1);

// Puts and attends a batch in all layers; queries of story 1 must meet the reference.
Step run_told(Cache& cache, const std::vector<Told>& told, Reference& reference);

// Feeds story 1, `at_once` tokens a step (0: random counts).
void feed_in_steps(const LawCase& c, std::int64_t at_once, Reference& reference, Random& random);

// Feeds story 1 among tokens of other sequences, in any order.
void feed_mixed(const LawCase& c, Reference& reference, Random& random);

// Feeds story 1 as one of 64 sequences that all have tokens in every step. Where c.at_first is not
// 0, it and three others are the last of the batch and begin with tokens at once.
void feed_in_crowd(const LawCase& c, Reference& reference, Random& random);

// A life with everything the law allows: steps of any size, drafts that are rolled back, partly
// committed or dropped, forks and cuts at exact points.
void walk(const LawCase& c, Reference& reference, Random& random, Walked& walked);

// Feeds and walks in all these ways, on 1 and 2 threads.
void expect_law(LawCase c, std::uint64_t seed, Walked& walked);

}  // namespace quire::test
