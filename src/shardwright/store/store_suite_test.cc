#include "shardwright/store/store_suite.h"

#include "shardwright/store/fault_store.h"

namespace shardwright::testing_support {
namespace {

StoreFixture file_fixture(FileStoreOptions options) {
  auto directory = std::make_shared<TemporaryDirectory>();
  std::shared_ptr<Store> store = std::move(*open_file_store(directory->path(), options));
  auto replace = [directory](const std::string& key, const std::string& text) { write_file(directory->at(key), text); };
  return {directory, store, replace, false};
}

StoreFixture memory_fixture() {
  std::shared_ptr<Store> store = open_memory_store();
  auto replace = [store](const std::string& key, const std::string& text) {
    size_t slash = key.rfind('/');
    std::string under = slash == std::string::npos ? "" : key.substr(0, slash);
    ASSERT_OK(put(*store, under, {{key.substr(slash + 1), text}}));
  };
  return {nullptr, store, replace, true};
}

StoreFixture fault_fixture(uint64_t at_once) {
  StoreFixture fixture = file_fixture({});
  auto faulty = std::make_shared<FaultStore>(fixture.store);
  faulty->faults().read_bytes_at_once = at_once;
  fixture.store = faulty;
  return fixture;
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite,
                         ::testing::Values(StoreCase{"file", [] { return file_fixture({}); }},
                                           StoreCase{"file_no_gaps", [] { return file_fixture({0, false}); }},
                                           StoreCase{"file_direct", [] { return file_fixture({64 * KiB, true}); }},
                                           StoreCase{"memory", memory_fixture},
                                           StoreCase{"fault_none", [] { return fault_fixture(0); }},
                                           StoreCase{"fault_short", [] { return fault_fixture(1000); }}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace shardwright::testing_support
