#include "shardwright/manager/last_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardwright/manager/step_files.h"

namespace shardwright {
namespace {

enum Row : size_t { kTensor, kPiece, kOffset, kLength, kSum, kRowSize };

int64_t number_of(uint32_t piece) { return piece == kWholeTensor ? -1 : static_cast<int64_t>(piece); }

Json options_of(const StepContent& content) {
  Json out = Json::array();
  for (const auto& [name, value] : content.settings) out.push_back({name, value});
  return out;
}

bool is_row(const Json& row) {
  return row.is_array() && row.size() == kRowSize && row[kTensor].is_string() && row[kPiece].is_number_integer() &&
         row[kOffset].is_number_unsigned() && row[kLength].is_number_unsigned() && row[kSum].is_number_unsigned();
}

/// Known in every box, and the same.
bool unchanged(const std::string& tensor, const Json& before, const Json& now) {
  const Json &old = json_member(before, tensor), &fresh = json_member(now, tensor);
  if (old.is_null() || old != fresh) return false;
  return std::ranges::none_of(json_member(fresh, "boxes"), [](const Json& box) { return box[2] == ""; });
}

}  // namespace

Json describe_tensors(const Catalog& tensors, const std::vector<std::vector<HashedBox>>& boxes) {
  Json out = Json::object();
  for (TensorId id = 0; id < tensors.size(); ++id) {
    auto spec = tensors.spec(id);
    Json held = Json::array();
    for (const auto& one : boxes[id]) held.push_back({one.box.start, one.box.extent, one.hash});
    out[std::string(spec.name)] = {{"dtype", dtype_row(spec.dtype).name},
                                   {"shape", std::vector<int64_t>(spec.shape.begin(), spec.shape.end())},
                                   {"boxes", std::move(held)}};
  }
  return out;
}

Json describe_contents(const StepContent& content, Json tensors, const Draft& draft,
                       const std::vector<Receipt>& receipts) {
  Json files = Json::object();
  for (const Receipt& receipt : receipts) {
    if (receipt.tensor == kNoTensor || receipt.place.length == 0) continue;
    std::string name(draft.target().spec(receipt.tensor).name);
    files[draft.objects()[receipt.place.object].key].push_back(
        {name, number_of(receipt.piece), receipt.place.offset, receipt.place.length, receipt.crc32c});
  }
  return {{"item", content.item},
          {"format", content.format},
          {"options", options_of(content)},
          {"tensors", std::move(tensors)},
          {"files", std::move(files)}};
}

LastStep::LastStep(std::string directory, Json contents)
    : directory_(std::move(directory)), contents_(std::move(contents)) {
  for (const auto& [key, rows] : json_member(contents_, "files").items()) {
    bool good = rows.is_array() && !rows.empty() && std::ranges::all_of(rows, is_row);
    if (good) files_[{rows[0][kTensor].get<std::string>(), rows[0][kPiece].get<int64_t>()}] = key;
  }
}

std::optional<LastStep> LastStep::read(const std::string& root, const StepNames& names, const StepContent& content) {
  auto steps = list_step_names(root, names);
  if (!steps.ok()) return std::nullopt;
  for (size_t i = steps->size(); i-- > 0;) {
    std::string directory = root + "/" + (*steps)[i].second;
    if (!prove_step(directory).complete) continue;
    auto manifest = read_step_manifest(directory);
    if (!manifest.ok() || !*manifest) return std::nullopt;
    Json& contents = (*manifest)->contents;
    bool alike = json_member(contents, "item") == content.item && json_member(contents, "format") == content.format &&
                 json_member(contents, "options") == options_of(content) &&
                 json_member(contents, "files").is_object() && json_member(contents, "tensors").is_object();
    if (!alike) return std::nullopt;
    return LastStep(directory + "/" + content.item, std::move(contents));
  }
  return std::nullopt;
}

bool LastStep::holds(const Json& rows, const Draft& draft, const std::vector<Segment>& segments,
                     const Json& tensors) const {
  size_t next = 0;
  for (const Segment& segment : segments) {
    if (segment.type == Segment::kLate) return false;
    // Where things lie in an object that grows is known when it is there: then they follow one another, with nothing between.
    if (segment.offset == kUnknown && segment.type != Segment::kPayload) return false;
    if (segment.type != Segment::kPayload || segment.length == 0) continue;
    if (next == rows.size()) return false;
    const Json& row = rows[next++];
    std::string tensor(draft.target().spec(segment.tensor).name);
    if (row[kTensor] != tensor || row[kPiece] != number_of(segment.piece)) return false;
    if (segment.offset != kUnknown && (row[kOffset] != segment.offset || row[kLength] != segment.length)) return false;
    if (!unchanged(tensor, json_member(contents_, "tensors"), tensors)) return false;
  }
  return next == rows.size();
}

bool LastStep::has_literals(const std::string& key, uint64_t size, const std::vector<Segment>& segments) const {
  auto store = open_file_store(directory_);
  if (!store.ok()) return false;
  auto there = (*store)->size(key);
  if (!there.ok() || !*there || (size != kUnknown && **there != size)) return false;
  for (const Segment& segment : segments) {
    if (segment.type != Segment::kLiteral) continue;
    Bytes bytes(segment.literal.size());
    ReadOp op{key, segment.offset, bytes};
    if (!(*store)->read({&op, 1}).ok() || !std::ranges::equal(bytes, segment.literal)) return false;
  }
  return true;
}

std::optional<LastStep::File> LastStep::find(const Draft& draft, ObjectId object, const Json& tensors) const {
  auto segments = draft.segments(object);
  auto first =
      std::ranges::find_if(segments, [](const Segment& s) { return s.type == Segment::kPayload && s.length != 0; });
  if (first == segments.end() || draft.wants_crc32()) return std::nullopt;
  auto found = files_.find({std::string(draft.target().spec(first->tensor).name), number_of(first->piece)});
  if (found == files_.end()) return std::nullopt;
  const std::string& key = found->second;
  const Json& rows = json_member(json_member(contents_, "files"), key);
  if (!holds(rows, draft, segments, tensors) || !has_literals(key, draft.objects()[object].size, segments))
    return std::nullopt;
  File out{directory_ + "/" + key, {}};
  size_t next = 0;
  for (const Segment& segment : segments) {
    if (segment.type != Segment::kPayload) continue;
    Receipt receipt{segment.tensor, segment.piece, {Place::kExtent, -1, object, segment.offset, 0}, 0, 0};
    if (segment.length != 0) {
      const Json& row = rows[next++];
      receipt.place.offset = row[kOffset].get<uint64_t>();
      receipt.place.length = row[kLength].get<uint64_t>();
      receipt.crc32c = row[kSum].get<uint32_t>();
    }
    out.receipts.push_back(receipt);
  }
  return out;
}

}  // namespace shardwright
