/// Columns of text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output.h"

namespace shardwright::cli {

struct Column {
  std::string_view title;  ///< printed when any column has one
  bool right = false;      ///< numbers
  bool flexible = false;   ///< cut in the middle when the terminal is too narrow
  Style style = Style::kPlain;
};

/// Prints rows in aligned columns, two spaces apart; cells are made printable. On a terminal the flexible columns are cut until a row
/// fits. fill(row, cells) is called twice for every row, in order, with cells.size() == columns.size(); nothing else is kept in memory.
void print_table(Output& output, std::span<const Column> columns, size_t rows,
                 const std::function<void(size_t row, std::vector<std::string>& cells)>& fill);

}  // namespace shardwright::cli
