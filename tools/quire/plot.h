// A plot as SVG: named points, x linear, y in powers of ten.
#pragma once

#include <string>
#include <vector>

namespace quire::tool {

struct PlotPoint {
  std::string name;
  double x = 0;
  double y = 0;  // points at or below 0 have no logarithm and are left out
};

struct Plot {
  std::string title;
  std::string x_title;
  std::string y_title;
  std::vector<PlotPoint> points;
};

std::string svg_of(const Plot& plot);

}  // namespace quire::tool
