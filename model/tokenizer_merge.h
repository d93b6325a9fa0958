// A merger turns a row of token ids into a shorter one by joining neighbours, best pair first.
//
// The pairs that may be joined have ranks; while any neighbours form such a pair, the one of lowest
// rank is joined, the leftmost of equals. This is byte-pair encoding. Pairs wait in a heap and the
// row is a linked list, so a piece of n ids costs n log n whatever is in it.
//
// Thread-safety: a merger is read-only once its pairs were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace quire::model {

class Merger {
 public:
  // Adds a pair that ranks after all before it. False: the pair was there already.
  bool add(int left, int right, int joined);

  // Appends what `ids` become to `out`. `ids` is used up.
  void merge(std::vector<int>& ids, std::vector<int>& out) const;

 private:
  struct Join {
    int rank;
    int joined;
  };
  static std::uint64_t key_of(int left, int right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::unordered_map<std::uint64_t, Join> joins_;
};

}  // namespace quire::model
