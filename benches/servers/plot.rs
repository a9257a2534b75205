//! Curves as SVG files, both axes logarithmic.

use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    pub fn new(name: impl Into<String>) -> Curve {
        Curve {
            name: name.into(),
            points: Vec::new(),
        }
    }
}

pub struct Plot {
    pub file: &'static str,
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub curves: Vec<Curve>,
}

/// SessionRecord apart also by those who see few colours: neighbours differ in lightness.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(148, 203, 102),
    RGBColor(204, 121, 167),
    RGBColor(110, 50, 100),
    RGBColor(230, 159, 0),
    RGBColor(130, 130, 130),
    RGBColor(150, 75, 30),
    RGBColor(60, 60, 180),
];

impl Plot {
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|curve| curve.points.is_empty())
    }

    pub fn draw(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        const SIZE: (u32, u32) = (900, 520);
        let path = folder.join(self.file);
        let canvas = SVGBackend::new(&path, SIZE).into_drawing_area();
        canvas.fill(&WHITE)?;
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let across = range(points().map(|point| point.0)).ok_or("nothing to draw")?;
        let up = range(points().map(|point| point.1)).ok_or("nothing to draw")?;
        let mut chart = ChartBuilder::on(&canvas)
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .margin_right(220)
            .x_label_area_size(45)
            .y_label_area_size(75)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
        chart
            .configure_mesh()
            .label_style(("sans-serif", 15))
            .x_desc(self.x)
            .y_desc(self.y)
            .light_line_style(WHITE.mix(0.0))
            .x_label_formatter(&|value| plain(*value))
            .y_label_formatter(&|value| plain(*value))
            .draw()?;
        let drawn = self.curves.iter().filter(|curve| !curve.points.is_empty());
        let (left, top) = (SIZE.0 as i32 - 205, 50);
        for (place, (curve, colour)) in drawn.zip(COLOURS.iter().cycle()).enumerate() {
            let line = ShapeStyle::from(colour).stroke_width(2);
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), line))?;
            let dots = curve.points.iter();
            chart.draw_series(dots.map(|point| Circle::new(*point, 3, colour.filled())))?;
            let y = top + 22 * place as i32;
            canvas.draw(&PathElement::new([(left, y), (left + 18, y)], line))?;
            let text = ("sans-serif", 14).into_font();
            canvas.draw(&Text::new(curve.name.as_str(), (left + 24, y - 7), text))?;
        }
        canvas.present()?;
        Ok(())
    }
}

/// From the least to the most, with some room.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let positive: Vec<_> = values.filter(|value| *value > 0.0).collect();
    let least = positive.iter().copied().reduce(f64::min)?;
    let most = positive.iter().copied().reduce(f64::max)?;
    Some(least * 0.7..most * 1.4)
}

fn plain(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}
