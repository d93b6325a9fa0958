#include "plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire::tool {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 480;
constexpr double kLeft = 80;
constexpr double kRight = 90;  // room for names right of the last point
constexpr double kTop = 48;
constexpr double kBottom = 56;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

std::string line_from(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n", x1, y1,
      x2, y2);
}

// Whole numbers of bits to the right of every point, whole powers of ten around them.
struct Axes {
  double most_x = 1;
  int low = -1;
  int high = 0;

  explicit Axes(const std::vector<PlotPoint>& points) {
    if (points.empty()) return;
    const auto [least, most] = std::minmax_element(
        points.begin(), points.end(), [](const auto& a, const auto& b) { return a.y < b.y; });
    low = static_cast<int>(std::floor(std::log10(least->y)));
    high = std::max(low + 1, static_cast<int>(std::ceil(std::log10(most->y))));
    for (const PlotPoint& point : points) most_x = std::max(most_x, std::ceil(point.x));
  }
  double x(double value) const { return kLeft + value / most_x * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kTop + (high - std::log10(value)) / (high - low) * (kHeight - kTop - kBottom);
  }
};

}  // namespace

std::string svg_of(const Plot& plot) {
  std::vector<PlotPoint> points;
  for (const PlotPoint& point : plot.points) {
    if (point.y > 0 && std::isfinite(point.y)) points.push_back(point);
  }
  const Axes axes(points);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text_at(kWidth / 2, 24, "middle", plot.title, " font-size=\"16\"");
  const double bottom = kHeight - kBottom;
  for (int x = 0; x <= static_cast<int>(axes.most_x); x += axes.most_x > 10 ? 2 : 1) {
    svg += line_from(axes.x(x), kTop, axes.x(x), bottom);
    svg += text_at(axes.x(x), bottom + 18, "middle", fmt::format("{}", x));
  }
  for (int power = axes.low; power <= axes.high; ++power) {
    const double y = axes.y(std::pow(10.0, power));
    svg += line_from(kLeft, y, kWidth - kRight, y);
    svg += text_at(kLeft - 8, y + 4, "end", fmt::format("1e{}", power));
  }
  svg += text_at(kWidth / 2, kHeight - 14, "middle", plot.x_title);
  svg += text_at(0, 0, "middle", plot.y_title,
                 fmt::format(" transform=\"translate(20 {}) rotate(-90)\"", kHeight / 2).c_str());
  for (const PlotPoint& point : points) {
    const double x = axes.x(point.x);
    const double y = axes.y(point.y);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#1f6feb\"/>\n", x, y);
    svg += text_at(x + 8, y + 4, "start", point.name);
  }
  return svg + "</svg>\n";
}

}  // namespace quire::tool
