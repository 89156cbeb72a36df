/// Files that become visible together.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "shardwright/store/replacement.h"
#include "shardwright/store/staging.h"
#include "shardwright/store/store.h"
#include "shardwright/store/target_directory.h"

namespace shardwright::detail {

/// Where `target` is absent: a staging beside it, whose files/ is renamed to the directory. Where present: a staging inside it, and
/// a journal. A journal is not needed for one file that replaces one name: a rename is atomic by itself.
/// The token is the absolute path of the directory in which the objects are staged.
class FileTransaction : public Transaction {
 public:
  /// published: called when names have changed. Errors: kUnavailable when another process writes to this directory.
  static Result<std::unique_ptr<Transaction>> begin(TargetDirectory target, std::function<void()> published);
  static Result<std::unique_ptr<Transaction>> join(std::string_view token);
  ~FileTransaction() override;

  std::string token() const override { return objects_; }
  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override;
  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override;
  Status commit(const Publication& publication) override;

 private:
  FileTransaction() = default;
  Result<std::string> place_for(const std::string& key);
  Status check_publication(const Publication& publication) const;
  Result<Replacement> plan_replacement(const Publication& publication) const;
  Status publish_directory();
  Status publish_files(const Publication& publication);

  TargetDirectory target_;          // joined: path and present only
  std::optional<Staging> staging_;  // the owner's; none when joined, or handed over to whoever finishes the journal
  std::string objects_;             // where keys are staged
  std::string id_;                  // of the staging
  std::function<void()> published_;
  bool committed_ = false;
  /// Keys whose writer has not finished, and those whose has. Shared with the writers, which may outlive this.
  struct Open {
    std::mutex mutex;
    std::set<std::string> keys, finished;
  };
  std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace shardwright::detail
