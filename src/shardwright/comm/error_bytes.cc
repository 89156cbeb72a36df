#include "shardwright/comm/error_bytes.h"

#include "shardwright/base/json.h"

namespace shardwright {

Bytes bytes_of_error(const Error& error) {
  Json json = {static_cast<int>(error.code),
               error.message,
               error.path,
               error.tensor,
               error.offset,
               error.found,
               error.expected,
               error.hint,
               error.context};
  return bytes_of(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Error error_from_bytes(View bytes) {
  auto json = parse_json(text_of(bytes));
  bool good = json.ok() && json->is_array() && json->size() == 9 && json->at(0).is_number_unsigned() &&
              json->at(0).get<uint64_t>() <= static_cast<uint64_t>(Code::kInternal) &&
              json->at(4).is_number_unsigned() && json->at(8).is_array();
  for (size_t i : {1, 2, 3, 5, 6, 7}) good = good && json->at(i).is_string();
  if (!good) return fail(Code::kInternal, "another rank failed, and what it said of it cannot be read");
  auto text = [&](size_t i) { return json->at(i).get<std::string>(); };
  Error error = fail(static_cast<Code>(json->at(0).get<int>()), text(1));
  error.path = text(2);
  error.tensor = text(3);
  error.offset = json->at(4).get<uint64_t>();
  error.found = text(5);
  error.expected = text(6);
  error.hint = text(7);
  for (const auto& line : json->at(8))
    if (line.is_string()) error.context.push_back(line.get<std::string>());
  return error;
}

}  // namespace shardwright
