/// Journal::parse: no name leaves the directory, and what is parsed is written as it was read.
#include "fuzz_support.h"
#include "shardwright/base/text.h"
#include "shardwright/store/journal.h"
#include "shardwright/store/staging.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardwright;
  using namespace shardwright::detail;
  auto journal = Journal::parse(text_of(fuzz_view(data, size)));
  if (!journal.ok()) {
    FUZZ_CLAIM(journal.error().code == Code::kCorrupt || journal.error().code == Code::kUnsupported);
    return 0;
  }
  const Replacement& plan = journal->replacement;
  FUZZ_CLAIM(plan.staging.starts_with(kStagingPrefix) && is_staging_id(plan.staging.substr(kStagingPrefix.size())));
  for (const auto* names : {&plan.remove_before, &plan.remove_after})
    for (const auto& name : *names) FUZZ_CLAIM(is_safe_relative_path(name));
  for (const auto& object : plan.objects) FUZZ_CLAIM(is_safe_relative_path(object.key));
  auto again = Journal::parse(journal->to_json());
  FUZZ_CLAIM(again.ok() && again->to_json() == journal->to_json());
  return 0;
}
