//! A plot with logarithmic axes, as SVG.

use super::escaped;
use crate::report::short;
use std::fmt::Write;

/// Lines over a common axis.
#[derive(Debug)]
pub(super) struct Plot {
    pub title: String,
    /// What goes across.
    pub across: String,
    pub series: Vec<Series>,
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub name: String,
    /// Across, up, and the spread if it has one.
    pub points: Vec<Point>,
}

type Point = (f64, f64, Option<(f64, f64)>);

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 15.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 36.0;
/// Told apart by people who do not see all colours (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];

/// A range that is not empty, in logarithms.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            (low, high) = (low.min(value.ln()), high.max(value.ln()));
        }
        if low > high {
            return Axis { low: 0.0, high: 1.0 };
        }
        let margin = ((high - low) * 0.08).max(0.1);
        Axis { low: low - margin, high: high + margin }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low)
    }

    /// Values to be named: 1, 2, 5 times powers of ten, or fewer of them where there would be many.
    fn marks(&self) -> Vec<f64> {
        let (first, last) = ((self.low / 10f64.ln()).floor(), (self.high / 10f64.ln()).ceil());
        let steps: &[f64] = if last - first > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut marks = Vec::new();
        let mut power = first;
        while power <= last {
            marks.extend(steps.iter().map(|step| step * 10f64.powf(power)));
            power += 1.0;
        }
        marks.retain(|mark| (0.0..=1.0).contains(&self.place(*mark)));
        marks
    }
}

impl Plot {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_axis = Axis::over(points().map(|point| point.0));
        let spread = |point: &Point| point.2.map_or([point.1; 2], |(low, high)| [low, high]);
        let y_axis = Axis::over(points().flat_map(spread));
        let x = |value: f64| LEFT + x_axis.place(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - y_axis.place(value) * (HEIGHT - TOP - BOTTOM);
        let legend = 16.0 * self.series.len() as f64 + 8.0;
        let height = HEIGHT + legend;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\
             <text x=\"{LEFT}\" y=\"16\">{}</text>",
            escaped(&self.title)
        );
        // Writing to a string does not fail.
        for mark in y_axis.marks() {
            let at = y(mark);
            let _ = write!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(mark)
            );
        }
        let mut across: Vec<f64> = points().map(|point| point.0).collect();
        across.sort_by(f64::total_cmp);
        across.dedup();
        for value in across {
            let name =
                if value == value.round() { format!("{value}") } else { format!("{value:.1}") };
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                x(value),
                HEIGHT - BOTTOM + 16.0
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 6.0,
            escaped(&self.across)
        );
        for (n, series) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            line_to(&mut svg, series, colour, &x, &y);
            let at = HEIGHT + 16.0 * n as f64 + 6.0;
            let _ = write!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                at - 4.0,
                LEFT + 18.0,
                at,
                escaped(&series.name)
            );
        }
        svg += "</svg>\n";
        svg
    }
}

fn line_to(
    svg: &mut String,
    series: &Series,
    colour: &str,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let mut path = String::new();
    for (n, (across, up, spread)) in series.points.iter().enumerate() {
        let (at, height) = (x(*across), y(*up));
        let _ = write!(path, "{}{at:.1} {height:.1}", if n == 0 { 'M' } else { 'L' });
        let _ =
            write!(svg, "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\" fill=\"{colour}\"/>");
        if let Some((low, high)) = spread {
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.4\"/>",
                y(*low),
                y(*high)
            );
        }
    }
    let _ =
        write!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_take_what_there_is_and_name_round_values() {
        let axis = Axis::over([1.0, 64.0, f64::NAN, 0.0].into_iter());
        assert!(axis.place(1.0) > 0.0 && axis.place(64.0) < 1.0);
        assert!(axis.marks().contains(&10.0), "{:?}", axis.marks());
        let one = Axis::over([5.0].into_iter());
        assert!((one.place(5.0) - 0.5).abs() < 1e-9);
        assert!(Axis::over(std::iter::empty()).place(1.0).is_finite());
    }

    #[test]
    fn every_point_is_within_the_picture() {
        let points = vec![(1.0, 10.0, Some((1.0, 1e9))), (64.0, 1e6, None)];
        let plot = Plot {
            title: "t".into(),
            across: "threads".into(),
            series: vec![Series { name: "s".into(), points }],
        };
        let svg = plot.svg();
        for part in svg.split("cy=\"").skip(1) {
            let at: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((TOP..=HEIGHT - BOTTOM).contains(&at), "{svg}");
        }
    }
}
