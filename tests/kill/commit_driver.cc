// The program that is killed: replaces a set through the Store, as `copy` would.
//   commit_driver replace SCENARIO DIR     publishes the scenario's new files in DIR
//   commit_driver recover DIR              prints what was left there, if anything
//   commit_driver cat DIR KEY              prints an object, read in pieces
// Exit status 1 with one line on standard error when it fails.
#include <cstdio>
#include <string_view>

#include "scenarios.h"
#include "shardwright/store/store.h"

namespace shardwright::kill_test {
namespace {

Status write_one(Transaction& transaction, const std::string& key, std::string_view text, bool size_known) {
  SHARDWRIGHT_ASSIGN(auto writer, transaction.create(key, size_known ? text.size() : kUnknown));
  WriteOp halves[] = {{0, view_of(text.substr(0, text.size() / 2))},
                      {text.size() / 2, view_of(text.substr(text.size() / 2))}};
  SHARDWRIGHT_TRY(writer->write({&halves[1], 1}));
  SHARDWRIGHT_TRY(writer->write({&halves[0], 1}));
  return writer->finish(text.size());
}

Status replace(const Scenario& scenario, Store& store) {
  SHARDWRIGHT_ASSIGN(auto transaction, store.begin(""));
  Publication publication{{}, scenario.stale, scenario.entries};
  for (const auto& [key, text] : scenario.new_files) {
    SHARDWRIGHT_TRY(write_one(*transaction, key, text, key != scenario.new_files.back().first));
    publication.keys.push_back(key);
  }
  return transaction->commit(publication);
}

Status cat(Store& store, const std::string& key) {
  SHARDWRIGHT_ASSIGN(auto size, store.size(key));
  if (!size) return fail(Code::kNotFound, "no such file").at_path(key);
  Bytes bytes(*size);
  std::vector<ReadOp> ops;
  for (uint64_t at = 0; at < bytes.size(); at += 100) {
    ops.push_back({key, at, MutableView(bytes).subspan(at, std::min<uint64_t>(70, bytes.size() - at))});
  }
  SHARDWRIGHT_TRY(store.read(ops));
  SHARDWRIGHT_ASSIGN(bytes, read_object(store, key, GiB));
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  return {};
}

Status run(int argc, char** argv) {
  std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "replace" && argc == 4) {
    SHARDWRIGHT_ASSIGN(auto store, open_file_store(argv[3]));
    for (const Scenario& scenario : scenarios()) {
      if (scenario.name == argv[2]) return replace(scenario, *store);
    }
  } else if (verb == "recover" && argc == 3) {
    SHARDWRIGHT_ASSIGN(auto store, open_file_store(argv[2]));
    SHARDWRIGHT_ASSIGN(auto sentence, store->recover(""));
    if (sentence) std::puts(sentence->c_str());
    return {};
  } else if (verb == "cat" && argc == 4) {
    SHARDWRIGHT_ASSIGN(auto store, open_file_store(argv[2]));
    return cat(*store, argv[3]);
  }
  return fail(Code::kInvalidArgument, "usage: commit_driver replace SCENARIO DIR | recover DIR | cat DIR KEY");
}

}  // namespace
}  // namespace shardwright::kill_test

int main(int argc, char** argv) {
  auto status = shardwright::kill_test::run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().text().c_str());
  return 1;
}
