#include "cli/map_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/terminal.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

constexpr double kWidth = 960, kMargin = 32, kPanelWidth = 420, kRight = kWidth - kMargin - kPanelWidth;
constexpr int64_t kMostAcross = 16, kMostDown = 16;
constexpr size_t kMostBars = 32, kFineBlocks = 64, kMostBlocks = 4096;

/// Text of names and numbers for XML; nothing in it can steer a viewer.
std::string escape(std::string_view text) {
  std::string out;
  for (char c : printable(text)) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

/// Light enough for black text; neighbours differ by the golden angle.
std::string colour(size_t number, size_t of) {
  double hue = of <= 12 ? 360.0 * static_cast<double>(number) / static_cast<double>(std::max<size_t>(of, 1)) + 205
                        : std::fmod(static_cast<double>(number) * 137.508 + 205, 360.0);
  double lightness = number % 2 == 0 ? 0.78 : 0.70, saturation = 0.62;
  auto channel = [&](double n) {
    double k = std::fmod(n + hue / 30, 12.0), a = saturation * std::min(lightness, 1 - lightness);
    return static_cast<int>(std::lround(255 * (lightness - a * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})))));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

/// "0-3, 8": runs of neighbours.
std::string runs_text(const std::vector<int64_t>& positions) {
  std::string out;
  for (size_t i = 0; i < positions.size();) {
    size_t j = i;
    while (j + 1 < positions.size() && positions[j + 1] == positions[j] + 1) ++j;
    out += out.empty() ? "" : ", ";
    out += j == i ? fmt::format("{}", positions[i]) : fmt::format("{}-{}", positions[i], positions[j]);
    i = j + 1;
  }
  return out;
}

class Picture {
 public:
  Picture(const LayoutMap& map, std::span<const TensorToLay> tensors, const LayoutReport& report, size_t tensor)
      : map_(map),
        mesh_(map.mesh()),
        tensor_(tensors[tensor]),
        tensors_(tensors.size()),
        report_(report),
        row_(report.rows[tensor]) {
    for (int64_t i = 0; i < mesh_.size(); ++i) holders_[row_.grid->box_of(i)].push_back(i);
    std::vector<const std::vector<int64_t>*> groups;
    for (const auto& [box, positions] : holders_) groups.push_back(&positions);
    std::sort(groups.begin(), groups.end(), [](const auto* a, const auto* b) { return a->front() < b->front(); });
    colour_of_.resize(static_cast<size_t>(mesh_.size()));
    for (size_t i = 0; i < groups.size(); ++i)
      for (int64_t position : *groups[i]) colour_of_[static_cast<size_t>(position)] = colour(i, groups.size());
  }

  std::string draw() {
    double y = draw_title();
    double mesh_bottom = draw_mesh(y), blocks_bottom = draw_blocks(y);
    double bottom = draw_bars(std::max(mesh_bottom, blocks_bottom) + 36);
    return fmt::format(
               R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13" fill="#1c2430">)"
               "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
               kWidth, bottom + kMargin) +
           body_ + "</svg>\n";
  }

 private:
  void text(double x, double y, std::string_view content, std::string_view style = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}>{}</text>\n", x, y, style.empty() ? "" : " ", style,
                         escape(content));
  }
  void rectangle(double x, double y, double width, double height, std::string_view fill,
                 std::string_view style = "stroke=\"#ffffff\"") {
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" {}/>\n", x, y,
                         width, height, fill, style);
  }
  /// Centred in a cell, in a size that fits it; nothing when it would be too small to read. Two letters at least have room, so that the
  /// single digits of narrow neighbours do not read as one number.
  void label(double x, double y, double width, double height, const std::string& content, double largest = 13) {
    double size = std::min({largest, height * 0.6,
                            width * 0.92 / (0.6 * static_cast<double>(std::max<size_t>(display_width(content), 2)))});
    if (size < 7) return;
    text(x + width / 2, y + height / 2 + size * 0.35, content,
         fmt::format("font-size=\"{:.1f}\" text-anchor=\"middle\"", size));
  }
  void heading(double x, double y, std::string_view content) {
    text(x, y, content, R"(font-size="15" font-weight="bold")");
  }

  double draw_title() {
    std::string name = cut_middle(printable(tensor_.name), 70, true);
    text(kMargin, 46, name, R"(font-size="20" font-weight="bold")");
    std::string layout = map_.layout_of(row_.rule).text(tensor_.shape.size());
    text(kMargin, 70,
         fmt::format("{} {} laid out {} over mesh {}: {}{} a device", dtype_row(tensor_.dtype).name,
                     shape_text(tensor_.shape), layout, mesh_.text(), row_.grid->even() ? "" : "at most ",
                     format_bytes(row_.shard_bytes)),
         "fill=\"#4a5568\"");
    return 108;
  }

  /// Rows are all axes but the last, columns the last; one axis alone is wrapped.
  double draw_mesh(double y) {
    heading(kMargin, y, "Mesh");
    int64_t across = mesh_.shape().back();
    if (mesh_.rank() == 1 && across > 8) across = across % 8 == 0 ? 8 : kMostAcross;
    int64_t down = (mesh_.size() + across - 1) / across;
    int64_t columns = std::min(across, kMostAcross), rows = std::min(down, kMostDown);
    double left = kMargin + (mesh_.rank() > 1 ? 84 : 0), top = y + 34;
    double width = std::min(72.0, (kMargin + kPanelWidth - left) / static_cast<double>(columns)),
           height = std::clamp(width * 0.62, 22.0, 40.0);
    text(left, top - 8, fmt::format("{} \u2192", mesh_.axis_names().back()), "fill=\"#4a5568\"");
    for (int64_t r = 0; r < rows; ++r) {
      double at = top + static_cast<double>(r) * height;
      if (mesh_.rank() > 1) draw_row_label(left, at, height, r * across);
      for (int64_t c = 0; c < columns && r * across + c < mesh_.size(); ++c) {
        auto position = static_cast<size_t>(r * across + c);
        double x = left + static_cast<double>(c) * width;
        rectangle(x, at, width, height, colour_of_[position], "stroke=\"#ffffff\" stroke-width=\"2\"");
        label(x, at, width, height, mesh_.devices()[position]);
      }
    }
    double bottom = top + static_cast<double>(rows) * height;
    if (columns < across || rows < down) {
      bottom += 20;
      text(left, bottom,
           fmt::format("the first {} of {} devices", rows * columns, format_count(static_cast<uint64_t>(mesh_.size()))),
           "fill=\"#4a5568\"");
    }
    return bottom;
  }

  /// "data 1": the coordinates of a row along all axes but the last.
  void draw_row_label(double left, double y, double height, int64_t position) {
    std::string coordinates;
    for (size_t axis = 0; axis + 1 < mesh_.rank(); ++axis)
      coordinates +=
          fmt::format("{}{} {}", axis == 0 ? "" : ", ", mesh_.axis_names()[axis], mesh_.coordinate(position, axis));
    double size = std::clamp(76 / (0.6 * static_cast<double>(std::max<size_t>(coordinates.size(), 1))), 6.0, 12.0);
    text(left - 8, y + height / 2 + 4, coordinates,
         fmt::format("font-size=\"{:.1f}\" text-anchor=\"end\" fill=\"#4a5568\"", size));
  }

  /// The two dimensions that are drawn: split ones first, then the last ones.
  std::vector<size_t> drawn_dimensions() const {
    std::vector<size_t> drawn;
    auto parts = row_.grid->parts();
    for (size_t d = 0; d < parts.size() && drawn.size() < 2; ++d)
      if (parts[d] > 1) drawn.push_back(d);
    for (size_t d = parts.size(); d-- > 0 && drawn.size() < 2;)
      if (std::find(drawn.begin(), drawn.end(), d) == drawn.end()) drawn.push_back(d);
    std::sort(drawn.begin(), drawn.end());
    return drawn;
  }

  double draw_blocks(double y) {
    heading(kRight, y,
            fmt::format("{} in {}", shape_text(tensor_.shape),
                        holders_.size() == 1 ? "one block" : fmt::format("{} blocks", holders_.size())));
    auto drawn = drawn_dimensions();
    double left = kRight + 64, top = y + 34, width = kWidth - kMargin - left;
    double height =
        drawn.size() < 2 ? 56 : std::clamp(width * size_of(drawn[0]) / size_of(drawn[1]), 120.0, width * 0.85);
    size_t across = drawn.empty() ? 0 : drawn.back();
    if (!drawn.empty())
      text(left, top - 8, fmt::format("dimension {}: {} \u2192", across, tensor_.shape[across]), "fill=\"#4a5568\"");
    if (drawn.size() == 2) {
      text(left - 8, top + 14, fmt::format("dim {}:", drawn[0]), R"(font-size="11" text-anchor="end" fill="#4a5568")");
      text(left - 8, top + 28, fmt::format("{} \u2193", tensor_.shape[drawn[0]]),
           R"(font-size="11" text-anchor="end" fill="#4a5568")");
    }
    size_t hidden = 0;
    if (holders_.size() > kMostBlocks) label(left, top, width, height, "too many blocks to draw");
    for (const auto& [box, positions] : holders_) {
      if (holders_.size() > kMostBlocks) break;
      if (!draw_block(box, positions, drawn, left, top, width, height)) ++hidden;
    }
    rectangle(left, top, width, height, "none", "stroke=\"#4a5568\"");
    double bottom = top + height;
    if (hidden > 0) {
      bottom += 20;
      text(left, bottom, fmt::format("{} more lie behind these, in other dimensions", hidden),
           R"(font-size="11" fill="#4a5568")");
    }
    bottom += 20;
    int64_t replicas = holders_.size() == 1 ? mesh_.size() : row_.grid->replicas();
    text(left, bottom,
         replicas == 1 ? "each block on one device, of its colour"
                       : fmt::format("each block on {} devices, of its colour", replicas),
         R"(font-size="11" fill="#4a5568")");
    return bottom;
  }

  double size_of(size_t dimension) const { return static_cast<double>(std::max<int64_t>(1, tensor_.shape[dimension])); }

  /// False when the block lies behind those drawn, in another dimension.
  bool draw_block(const Box& box, const std::vector<int64_t>& positions, const std::vector<size_t>& drawn, double left,
                  double top, double width, double height) {
    if (box.empty()) return true;
    for (size_t d = 0; d < box.rank(); ++d)
      if (std::find(drawn.begin(), drawn.end(), d) == drawn.end() && box.start[d] != 0) return false;
    auto span = [&](size_t dimension, double length) {
      double start = static_cast<double>(box.start[dimension]) / size_of(dimension) * length;
      return std::pair(start, static_cast<double>(box.extent[dimension]) / size_of(dimension) * length);
    };
    auto [x, w] = drawn.empty() ? std::pair(0.0, width) : span(drawn.back(), width);
    auto [y, h] = drawn.size() < 2 ? std::pair(0.0, height) : span(drawn.front(), height);
    rectangle(left + x, top + y, w, h, colour_of_[static_cast<size_t>(positions.front())],
              holders_.size() > kFineBlocks ? "stroke=\"#ffffff\" stroke-width=\"0.5\""
                                            : "stroke=\"#ffffff\" stroke-width=\"2\"");
    // Positions where they fit, and the range of elements below.
    std::string on = positions.size() == 1 ? printable(mesh_.devices()[static_cast<size_t>(positions.front())])
                                           : runs_text(positions);
    bool tall = h >= 44;
    label(left + x, top + y + (tall ? h / 2 - 22 : 0), w, tall ? 24 : h, on);
    if (tall) label(left + x, top + y + h / 2 + 2, w, 18, box.text(), 10.5);
    return true;
  }

  double draw_bars(double y) {
    const auto& bytes = report_.device_bytes;
    uint64_t largest = *std::max_element(bytes.begin(), bytes.end()),
             smallest = *std::min_element(bytes.begin(), bytes.end());
    heading(kMargin, y, fmt::format("Bytes per device, {} tensor{}", tensors_, tensors_ == 1 ? "" : "s"));
    text(kMargin + 300, y,
         largest == smallest
             ? fmt::format("{} on each of {}", format_bytes(largest), bytes.size())
             : fmt::format("{} to {} on {}", format_bytes(smallest), format_bytes(largest), bytes.size()),
         "fill=\"#4a5568\"");
    size_t shown = std::min(bytes.size(), kMostBars);
    double at = y + 16, height = shown > 16 ? 14 : 20, left = kMargin + 84, width = kWidth - kMargin - 110 - left;
    for (size_t i = 0; i < shown; ++i, at += height) {
      double length = largest == 0 ? 0 : width * static_cast<double>(bytes[i]) / static_cast<double>(largest);
      text(left - 8, at + height * 0.72, cut_middle(printable(mesh_.devices()[i]), 11, true),
           fmt::format("font-size=\"{:.0f}\" text-anchor=\"end\"", height * 0.62));
      rectangle(left, at + 1, std::max(length, 1.0), height - 3, colour_of_[i], "");
      text(left + length + 8, at + height * 0.72, format_bytes(bytes[i]),
           fmt::format("font-size=\"{:.0f}\"", height * 0.62));
    }
    if (shown == bytes.size()) return at;
    text(left, at + 14, fmt::format("and {} more devices", bytes.size() - shown), "fill=\"#4a5568\"");
    return at + 18;
  }

  const LayoutMap& map_;
  const DeviceMesh& mesh_;
  const TensorToLay& tensor_;
  size_t tensors_;
  const LayoutReport& report_;
  const LayoutReport::Row& row_;
  std::map<Box, std::vector<int64_t>> holders_;  ///< positions by what they hold
  std::vector<std::string> colour_of_;
  std::string body_;
};

}  // namespace

std::string layout_svg(const LayoutMap& map, std::span<const TensorToLay> tensors, const LayoutReport& report,
                       size_t tensor) {
  return Picture(map, tensors, report, tensor).draw();
}

}  // namespace shardwright::cli
