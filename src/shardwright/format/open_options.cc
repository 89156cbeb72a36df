#include "shardwright/format/format.h"

namespace shardwright {

Status OpenOptions::report(Error error) const {
  if (findings == nullptr) return error;
  findings->push_back(std::move(error));
  return {};
}

void OpenOptions::remark(Error error) const {
  if (remarked() != nullptr) remarked()->push_back(std::move(error));
}

}  // namespace shardwright
