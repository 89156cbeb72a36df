#include "cli/array_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "shardwright/base/bytes.h"
#include "shardwright/tensor/convert.h"

namespace shardwright::cli {
namespace {

/// The value that `text` becomes when it is read as an element of the type.
double through(DType dtype, const std::string& text) {
  const DTypeRow& row = dtype_row(dtype);
  std::vector<float> values(row.block_elems, std::strtof(text.c_str(), nullptr));
  Bytes encoded(row.block_bytes);
  Status done = convert(DType::kF32, std::as_bytes(std::span(values)), dtype, encoded);
  return done.ok() ? element_value(dtype, encoded, 0) : std::nan("");
}

/// d.ddde+xx with the fewest digits.
std::string scientific(DType dtype, double value) {
  if (dtype == DType::kF64 || dtype == DType::kF32 || !can_convert(DType::kF32, dtype)) {
    bool narrow = dtype == DType::kF32 || dtype == DType::kC64;
    for (int digits = 0; digits < 17; ++digits) {
      std::string text = fmt::format("{:.{}e}", value, digits);
      if (narrow ? std::strtof(text.c_str(), nullptr) == static_cast<float>(value)
                 : std::strtod(text.c_str(), nullptr) == value)
        return text;
    }
    return fmt::format("{:.17e}", value);
  }
  for (int digits = 0; digits < 9; ++digits) {
    std::string text = fmt::format("{:.{}e}", value, digits);
    if (through(dtype, text) == value) return text;
  }
  return fmt::format("{:.9e}", value);
}

/// "1.", "0.125", at most 8 digits after the point.
std::string positional(DType dtype, double value) {
  std::string shortest = scientific(dtype, value);
  size_t e = shortest.find('e');
  int fraction = static_cast<int>(e > 2 ? e - shortest.find('.') - 1 : 0);
  if (shortest.find('.') == shortest.npos) fraction = 0;
  int after_point = fraction - std::atoi(shortest.c_str() + e + 1);
  bool cut = after_point > 8;
  std::string text =
      fmt::format("{:.{}f}", cut ? value : std::strtod(shortest.c_str(), nullptr), std::clamp(after_point, 0, 8));
  if (text.find('.') == text.npos) return text + ".";
  if (cut) text.erase(text.find_last_not_of('0') + 1);
  return text;
}

/// NumPy's FloatingFormat: one width and one notation for all values.
class FloatFormat {
 public:
  FloatFormat(DType dtype, bool plus, const std::vector<double>& values) : dtype_(dtype), plus_(plus) {
    double largest = 0, smallest = INFINITY;
    for (double value : values) {
      if (!std::isfinite(value)) {
        special_ = std::max<size_t>(special_, std::isinf(value) && (plus_ || value < 0) ? 4 : 3);
        finite_only_ = false;
      } else if (value != 0) {
        largest = std::max(largest, std::fabs(value));
        smallest = std::min(smallest, std::fabs(value));
      }
    }
    double plain_below = dtype == DType::kF16 ? 1e3 : dtype == DType::kF32 ? 1e6 : 1e8;  // as NumPy 2.4
    exponent_ = largest != 0 && (largest >= plain_below || smallest < 1e-4 || largest / smallest > 1000);
    for (double value : values) {
      if (std::isfinite(value)) measure(value);
    }
    if (!finite_only_ && special_ > right_ + 1) left_ = std::max(left_, special_ - right_ - 1);
  }

  std::string text(double value) const {
    if (!std::isfinite(value)) {
      std::string word = std::isnan(value) ? "nan" : value < 0 ? "-inf" : plus_ ? "+inf" : "inf";
      return std::string(left_ + right_ + 1 - std::min(left_ + right_ + 1, word.size()), ' ') + word;
    }
    std::string number =
        signed_text(value, exponent_ ? fmt::format("{:.{}e}", value, digits_) : positional(dtype_, value));
    if (exponent_ && digits_ == 0) number.insert(number.find('e'), ".");
    size_t point = number.find('.');
    size_t after = number.size() - point - 1;
    return std::string(left_ - std::min(left_, point), ' ') + number +
           std::string(right_ - std::min(right_, after), ' ');
  }

 private:
  std::string signed_text(double value, const std::string& text) const {
    return plus_ && !std::signbit(value) ? "+" + text : text;
  }

  void measure(double value) {
    std::string text = signed_text(value, exponent_ ? scientific(dtype_, value) : positional(dtype_, value));
    size_t e = std::min(text.find('e'), text.size()), point = std::min(text.find('.'), e);
    size_t fraction = point < e ? e - point - 1 : 0;
    if (exponent_ && fraction > 8) {  // rounding may end in zeros, which do not count
      std::string cut = fmt::format("{:.8e}", value);
      fraction = cut.find_last_not_of('0', cut.find('e') - 1) - cut.find('.');
    }
    digits_ = std::max(digits_, fraction);
    left_ = std::max(left_, point);
    right_ = std::max({right_, digits_ + (text.size() - e), fraction});
  }

  DType dtype_;
  bool plus_, exponent_ = false, finite_only_ = true;
  size_t left_ = 0, right_ = 0, digits_ = 0, special_ = 0;
};

std::vector<std::string> float_texts(DType dtype, const std::vector<Element>& elements, bool imaginary) {
  std::vector<double> values;
  for (const Element& element : elements) values.push_back(imaginary ? element.imaginary : element.real);
  FloatFormat format(dtype, imaginary, values);
  std::vector<std::string> texts;
  for (double value : values) texts.push_back(format.text(value));
  return texts;
}

std::string integer_text(DType dtype, uint64_t bits) {
  if (dtype_row(dtype).kind == Kind::kBool) return bits ? "True" : "False";
  return dtype_row(dtype).kind == Kind::kSigned ? std::to_string(static_cast<int64_t>(bits)) : std::to_string(bits);
}

/// All of one width.
std::vector<std::string> element_texts(DType dtype, const std::vector<Element>& elements) {
  Kind kind = dtype_row(dtype).kind;
  if (kind == Kind::kFloat) return float_texts(dtype, elements, false);
  std::vector<std::string> texts;
  if (kind == Kind::kComplex) {
    texts = float_texts(dtype, elements, false);
    std::vector<std::string> imaginary = float_texts(dtype, elements, true);
    for (size_t i = 0; i < texts.size(); ++i)
      texts[i] += imaginary[i].insert(imaginary[i].find_last_not_of(' ') + 1, "j");
    return texts;
  }
  size_t width = kind == Kind::kBool ? 5 : 0;  // room for False, also where there is none
  for (const Element& element : elements) {
    texts.push_back(integer_text(dtype, element.integer));
    width = std::max(width, texts.back().size());
  }
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

/// NumPy's _formatArray: brackets, line breaks and the dots of the short form.
class Printer {
 public:
  Printer(std::span<const int64_t> shape, bool short_form, const std::vector<std::string>& words)
      : shape_(shape), short_form_(short_form), words_(words) {}

  std::string dimension(size_t axis, const std::string& indent, size_t width) {
    int64_t shown = shown_of(shape_[axis], short_form_);
    bool dots = shown < shape_[axis];
    if (axis + 1 == shape_.size()) return "[" + row(shown, dots, indent, width - 1).substr(indent.size()) + "]";
    std::string out, separator = std::string(shape_.size() - axis - 1, '\n') + indent;
    for (int64_t i = 0; i < shown; ++i) {
      if (i > 0) out += separator;
      if (dots && i == kEdge) out.append("...").append(separator);
      out += dimension(axis + 1, indent + " ", width - 1);
    }
    return "[" + out + "]";
  }

 private:
  std::string row(int64_t shown, bool dots, const std::string& indent, size_t width) {
    std::string done, line = indent;
    auto add = [&](const std::string& word) {
      if (line.size() + word.size() > width && line.size() > indent.size()) {
        line.erase(line.find_last_not_of(' ') + 1);
        done += line + "\n";
        line = indent;
      }
      line += word;
    };
    for (int64_t i = 0; i < shown; ++i) {
      if (dots && i == kEdge) {
        add("...");
        line += ' ';
      }
      add(words_[next_++]);
      if (i + 1 < shown) line += ' ';
    }
    return done + line;
  }

  std::span<const int64_t> shape_;
  bool short_form_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
};

}  // namespace

std::string shortest_text(DType dtype, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string digits = scientific(dtype, value);
  double magnitude = std::fabs(value);
  if (magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16)) return digits;
  return fmt::format("{}", std::strtod(digits.c_str(), nullptr)) +
         (value == std::trunc(value) && magnitude < 1e16 ? ".0" : "");
}

std::string array_text(DType dtype, std::span<const int64_t> shape, bool short_form, const std::vector<Element>& shown,
                       size_t width) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return "[]";
  Kind kind = dtype_row(dtype).kind;
  if (shape.empty() && kind == Kind::kFloat) {
    // NumPy 2.4 writes a scalar with an exponent from where its type no longer holds every integer's digits.
    double exponent_from = dtype == DType::kF16 ? 1e3 : dtype == DType::kF32 ? 1e6 : INFINITY;
    double value = shown[0].real;
    bool large = std::isfinite(value) && std::fabs(value) >= exponent_from;
    return large ? scientific(dtype, value) : shortest_text(dtype, value);
  }
  if (shape.empty() && kind != Kind::kComplex) return integer_text(dtype, shown[0].integer);
  std::vector<std::string> words = element_texts(dtype, shown);
  if (shape.empty()) return words[0];
  return Printer(shape, short_form, words).dimension(0, " ", width);
}

std::string element_json(DType dtype, const Element& element) {
  auto number = [&](double value) {
    if (std::isnan(value)) return std::string(R"("NaN")");
    if (std::isinf(value)) return std::string(value > 0 ? R"("Infinity")" : R"("-Infinity")");
    return shortest_text(dtype, value);
  };
  switch (dtype_row(dtype).kind) {
    case Kind::kBool: return element.integer ? "true" : "false";
    case Kind::kFloat: return number(element.real);
    case Kind::kComplex: return "[" + number(element.real) + ", " + number(element.imaginary) + "]";
    default: return integer_text(dtype, element.integer);
  }
}

}  // namespace shardwright::cli
