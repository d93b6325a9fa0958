#include <iostream>
#include <quire/cache.hpp>

int main() {
  quire::Cache cache = quire::Cache::create(quire::CacheSpec::mha(2, 2, 16)).value();
  quire::Sequence sequence = cache.open().value();

  // A class thrown by the library's own inline code is caught by type on this side.
  try {
    cache.layer_info(2).value();
    return 1;
  } catch (const quire::ResultError& error) {
    std::cout << "C++: quire " << quire::build_info().version << ", " << error.what() << '\n';
  }
  return sequence.length().value() == 0 ? 0 : 1;
}
