// What the opaque handles of the C ABI hold.
//
// A caller's executor and memory source become C++ objects (hosts), which a cache, its clones and
// its steps use as long as any of them lives: so each handle shares their ownership, and releases
// it after what it uses them for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "quire/cache.hpp"
#include "quire/executor.hpp"
#include "quire/memory.hpp"
#include "quire/quire.h"

namespace quire::capi {

class HostExecutor final : public Executor {
 public:
  explicit HostExecutor(const quire_executor& executor) noexcept : executor_(executor) {}
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  quire_executor executor_;
};

class HostMemory final : public MemorySource {
 public:
  explicit HostMemory(const quire_memory_source& memory) noexcept : memory_(memory) {}
  void* allocate(std::size_t bytes) noexcept override;
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  quire_memory_source memory_;
};

// The hosts of one quire_cache_create. The structs are kept for reading the spec back.
struct Host {
  quire_executor executor_struct = QUIRE_EXECUTOR_INIT;
  quire_memory_source memory_struct = QUIRE_MEMORY_SOURCE_INIT;
  std::unique_ptr<HostExecutor> executor;
  std::unique_ptr<HostMemory> memory;
};

using Hosts = std::vector<std::shared_ptr<const Host>>;

}  // namespace quire::capi

// The hosts are declared first in each handle, so that they go last.
struct quire_cache {
 public:
  quire_cache(quire::capi::Hosts hosts, quire::Cache&& made) noexcept
      : hosts_(std::move(hosts)), cache(std::move(made)) {}

  // Every host the cache may use: more than one after an assignment between caches of different
  // hosts. Taken after begin or clone, the list holds those of the new step or cache, because an
  // assignment adds before it assigns, and nothing is ever removed.
  quire::capi::Hosts hosts() const {
    const std::lock_guard lock(mutex_);
    return hosts_;
  }
  void add_hosts(const quire::capi::Hosts& others) {
    const std::lock_guard lock(mutex_);
    for (const auto& host : others) {
      if (std::find(hosts_.begin(), hosts_.end(), host) == hosts_.end()) hosts_.push_back(host);
    }
  }

 private:
  mutable std::mutex mutex_;  // guards hosts_
  quire::capi::Hosts hosts_;

 public:
  quire::Cache cache;
};

struct quire_step {
  quire::capi::Hosts hosts;
  quire::Step step;
  std::int64_t sequences = 0;  // distinct ones of the batch: what a commit reports
};
