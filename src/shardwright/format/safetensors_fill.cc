#include "shardwright/format/safetensors_fill.h"

namespace shardwright {

void SafetensorsFill::expect_notes(const Json& metadata) {
  has_metadata_ = true;
  for (const auto& [key, value] : metadata.items()) {
    metadata_[key] = value;
    // "format": "pt" names no tensors, and would cost a search for every one.
    if (!value.is_string() || key == "format" || key == "total_size") continue;
    auto kept = value.get<std::string>();
    kept_.try_emplace(kept);
    notes_.emplace(key, std::move(kept));
  }
}

void SafetensorsFill::look_for_notes(const SafetensorsEntry& entry, TensorId id) {
  if (notes_.empty()) return;
  if (auto alias = notes_.find(entry.name); alias != notes_.end())
    notes_.erase(alias);  // is a tensor itself: the note is just metadata
  if (auto kept = kept_.find(entry.name); kept != kept_.end())
    kept->second = {id, entry.dtype, {entry.shape.begin(), entry.shape.end()}};
}

Status SafetensorsFill::add_files(std::span<const std::string> keys, const Seen& seen, const Done& done) {
  size_t at = 0;
  return read_safetensors_files(store_, keys, options_.max_metadata_bytes, [&](Result<SafetensorsFile> file) -> Status {
    size_t index = at++;
    if (!file.ok()) return done(index, std::move(file.error()));
    ObjectId object = builder.add_object({file->key, file->size});
    SHARDWRIGHT_TRY(add(*file, object, [&](std::string_view name, TensorId id) { seen(index, name, id); }));
    return done(index, {});
  });
}

Status SafetensorsFill::add(const SafetensorsFile& file, ObjectId object,
                            const std::function<void(std::string_view name, TensorId id)>& seen) {
  if (file.header.has_metadata()) has_metadata_ = true;
  for (const auto& [key, value] : file.header.metadata())
    if (!metadata_.contains(key)) metadata_[key] = value;
  auto tensor = [&](const SafetensorsEntry& entry) -> Status {
    auto id = builder.add_tensor(entry.name, entry.dtype, entry.shape);
    if (!id.ok()) {
      id.error().path = store_.describe(file.key);
      return options_.report(std::move(id.error()));
    }
    Place place{Place::kExtent, -1, object, file.data_begin() + entry.begin, entry.end - entry.begin};
    SHARDWRIGHT_TRY(builder.add_flat(place, entry.dtype));
    look_for_notes(entry, *id);
    if (seen) seen(entry.name, *id);
    return {};
  };
  return file.visit(store_, tensor, [&](Error error) { return options_.report(std::move(error)); });
}

Status SafetensorsFill::finish() {
  for (const auto& [alias, name] : notes_) {
    const auto& kept = kept_.find(name)->second;
    if (kept.id == kNoTensor) continue;
    SHARDWRIGHT_ASSIGN(TensorId id, builder.add_tensor(alias, kept.dtype, kept.shape));
    builder.tie(id, kept.id);
    metadata_.erase(alias);
  }
  if (has_metadata_) builder.set_value("metadata", {Value::kJson, metadata_.dump()});
  return {};
}

Result<Catalog> open_safetensors_file(Store& store, const std::string& key, bool directory,
                                      const OpenOptions& options) {
  SafetensorsFill fill(store, options);
  fill.builder.set_members({key}, 1);
  auto file = read_safetensors_file(store, key, options.max_metadata_bytes);
  if (file.ok()) {
    ObjectId object = fill.builder.add_object({key, file->size});
    fill.builder.reserve(file->header.size(), file->header.name_bytes());
    if (file->header.has_metadata()) {
      Json notes = Json::object();
      for (const auto& [name, value] : file->header.metadata()) notes[name] = value;
      fill.expect_notes(notes);
    }
    SHARDWRIGHT_TRY(fill.add(*file, object));
    SHARDWRIGHT_TRY(fill.finish());
  } else {
    if (file.error().code != Code::kCorrupt && file.error().code != Code::kUnsupported) return std::move(file.error());
    SHARDWRIGHT_TRY(options.report(std::move(file.error())));
  }
  return build_hub_file(fill, store, key, directory);
}

}  // namespace shardwright
