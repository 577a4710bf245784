//! A plot as SVG.

mod axis;

use crate::report::short;
use axis::Axis;
use std::fmt::Write;

/// Lines over a common axis. The vertical axis is always logarithmic. Otherwise one target that is
/// ten times faster than the others would flatten their lines.
#[derive(Debug)]
pub(super) struct Plot {
    pub title: String,
    pub across: Across,
    pub series: Vec<Series>,
}

/// The horizontal axis.
#[derive(Debug)]
pub(super) enum Across {
    /// Numbers on a logarithmic scale. `limit` is the number of processors, at which a vertical
    /// line is drawn.
    Counts { name: String, limit: f64 },
    /// Positions on a linear scale, each with its label.
    Named { name: String, marks: Vec<(f64, String)> },
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

/// The horizontal value, the vertical value, and the smallest and largest vertical value if there
/// is a spread.
pub(super) type Point = (f64, f64, Option<(f64, f64)>);

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
/// The height of a line of the legend.
const LEGEND: f64 = 16.0;
/// The minimum distance between labels.
const LABEL: f64 = 26.0;
/// The bars that show the spread are cut off above the highest value of all lines multiplied by
/// this factor, and below the lowest value divided by this factor.
const BEYOND: f64 = 2.5;
/// The distance by which overlapping points are moved apart.
const APART: f64 = 2.5;
/// Colours that people with colour blindness can distinguish (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933"];
/// The dash patterns. After all colours are used, the next line gets the first colour again and is
/// dashed.
const DASHES: [&str; 3] = ["", "6 3", "2 3"];

/// The style of a line.
#[derive(Clone, Copy)]
struct Ink {
    colour: &'static str,
    dashes: &'static str,
}

impl Ink {
    fn of(series: usize) -> Ink {
        let dashes = DASHES[series / COLOURS.len() % DASHES.len()];
        Ink { colour: COLOURS[series % COLOURS.len()], dashes }
    }
}

/// Converts values to positions in the picture.
struct Frame {
    across: Axis,
    up: Axis,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.across.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.up.place(value) * (HEIGHT - TOP - BOTTOM)
    }
}

impl Plot {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let medians = || points().map(|point| point.1).filter(|value| *value > 0.0);
        // Spreads are cut off, because a single outlier slice must not squeeze all lines together.
        let (low, high) = (
            medians().fold(f64::INFINITY, f64::min) / BEYOND,
            medians().fold(0.0, f64::max) * BEYOND,
        );
        let spread = |point: &Point| {
            let (least, most) = point.2.unwrap_or((point.1, point.1));
            [point.1, least.clamp(low.min(high), high), most.clamp(low.min(high), high)]
        };
        let frame = Frame {
            across: match &self.across {
                Across::Counts { .. } => Axis::logarithmic(points().map(|point| point.0)),
                Across::Named { marks, .. } => Axis::linear(marks.iter().map(|mark| mark.0)),
            },
            up: Axis::logarithmic(points().flat_map(spread)),
        };
        let height = HEIGHT + LEGEND * self.series.len() as f64 + 8.0;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title>{0}</title>\
             <text x=\"{LEFT}\" y=\"18\" class=\"t\">{0}</text>",
            escaped(&self.title)
        );
        if points().next().is_none() {
            let _ =
                write!(svg, "<text x=\"{LEFT}\" y=\"{}\">nothing was measured</text>", TOP + 20.0);
        } else {
            up_to(&mut svg, &frame);
            self.across_to(&mut svg, &frame);
        }
        for (n, series) in self.series.iter().enumerate() {
            // The points of each series are moved a little, so that points with equal values stay
            // visible.
            let moved = (n as f64 - (self.series.len() as f64 - 1.0) / 2.0) * APART;
            line_to(&mut svg, series, Ink::of(n), &frame, moved.clamp(-12.0, 12.0));
            legend_to(&mut svg, n, series);
        }
        svg += "</svg>\n";
        svg
    }

    /// Draws the horizontal axis below the plot: its name, and as many labels as fit.
    fn across_to(&self, svg: &mut String, frame: &Frame) {
        let (name, marks) = match &self.across {
            Across::Named { name, marks } => (name, marks.clone()),
            Across::Counts { name, limit } => {
                let points = self.series.iter().flat_map(|series| &series.points);
                let mut counts: Vec<f64> = points.map(|point| point.0).collect();
                counts.sort_by(f64::total_cmp);
                counts.dedup();
                if counts.last().is_some_and(|most| most > limit)
                    && counts.first().is_some_and(|least| least <= limit)
                {
                    let at = frame.x(*limit);
                    let _ = write!(
                        svg,
                        "<path d=\"M{at:.1} {TOP}V{}\" stroke=\"#888\" stroke-dasharray=\"3 3\"/>\
                         <text x=\"{:.1}\" y=\"{}\">{limit} processors</text>",
                        HEIGHT - BOTTOM,
                        at + 4.0,
                        HEIGHT - BOTTOM - 6.0,
                    );
                }
                (name, counts.into_iter().map(|count| (count, format!("{count}"))).collect())
            }
        };
        // Labels are chosen from the last one backwards, because the last label must not be left
        // out.
        let mut next = f64::INFINITY;
        for (value, label) in marks.iter().rev() {
            let at = frame.x(*value);
            if next - at < LABEL {
                continue;
            }
            next = at;
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {}v4\" stroke=\"#888\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 16.0,
                escaped(label)
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 8.0,
            escaped(name)
        );
    }
}

/// Draws the labels of the vertical axis, each with a horizontal line.
fn up_to(svg: &mut String, frame: &Frame) {
    for mark in frame.up.marks() {
        let at = frame.y(mark);
        // Writing to a string does not fail.
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
}

fn legend_to(svg: &mut String, n: usize, series: &Series) {
    let Ink { colour, dashes } = Ink::of(n);
    let at = HEIGHT + LEGEND * n as f64 + 6.0;
    let nothing = if series.points.is_empty() { " (nothing was measured)" } else { "" };
    let _ = write!(
        svg,
        "<path d=\"M{LEFT} {}h22\" stroke=\"{colour}\" stroke-width=\"3\" stroke-dasharray=\"{dashes}\"/>\
         <text x=\"{}\" y=\"{at}\">{}{nothing}</text>",
        at - 4.0,
        LEFT + 28.0,
        escaped(&series.name)
    );
}

fn line_to(svg: &mut String, series: &Series, ink: Ink, frame: &Frame, moved: f64) {
    let Ink { colour, dashes } = ink;
    let mut path = String::new();
    for (n, (across, up, spread)) in series.points.iter().enumerate() {
        let (at, height) = (frame.x(*across) + moved, frame.y(*up));
        let _ = write!(path, "{}{at:.1} {height:.1}", if n == 0 { 'M' } else { 'L' });
        let label = match spread {
            Some((low, high)) => format!("{} ({}..{})", short(*up), short(*low), short(*high)),
            None => short(*up),
        };
        // A tooltip describes the point under the pointer.
        let _ = write!(
            svg,
            "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {label}</title>\
             </circle>",
            escaped(&series.name)
        );
        if let Some((low, high)) = spread {
            let _ = write!(
                svg,
                "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.45\"/>",
                frame.y(*low).min(HEIGHT - BOTTOM),
                frame.y(*high).max(TOP)
            );
        }
    }
    if !path.is_empty() {
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
             stroke-dasharray=\"{dashes}\"/>"
        );
    }
}

/// Escapes text for use between tags and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(series: Vec<Series>) -> Plot {
        let across = Across::Counts { name: "workers".into(), limit: 2.0 };
        Plot { title: "t".into(), across, series }
    }

    /// Returns the values of an attribute, in order.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let before = format!(" {attribute}=\"");
        let parts = svg.split(&before).skip(1);
        parts.map(|part| part.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn every_point_is_within_the_picture() {
        let series = (0..12).map(|n| Series {
            name: format!("s{n}"),
            points: vec![(1.0, 10.0, Some((1.0, 1e9))), (64.0, 1e6, None)],
        });
        let svg = workers(series.collect()).svg();
        assert!(numbers(&svg, "cy").iter().all(|at| (TOP..=HEIGHT - BOTTOM).contains(at)), "{svg}");
        assert!(numbers(&svg, "cx").iter().all(|at| (LEFT..=WIDTH - RIGHT).contains(at)), "{svg}");
        assert!(svg.contains(">2 processors<"));
    }

    #[test]
    fn one_odd_slice_does_not_press_the_lines_together() {
        let line = |up: f64, low| Series {
            name: "s".into(),
            points: vec![(1.0, up, Some((low, up))), (2.0, up, Some((up, up)))],
        };
        let svg = workers(vec![line(1e6, 1.0), line(2e6, 2e6)]).svg();
        let at = numbers(&svg, "cy");
        assert!(at[0] - at[2] > 60.0, "{at:?}");
        assert!(!svg.contains(">10.0<"), "{svg}");
    }

    #[test]
    fn more_lines_than_colours_can_be_distinguished() {
        let inks: std::collections::HashSet<_> =
            (0..24).map(|n| (Ink::of(n).colour, Ink::of(n).dashes)).collect();
        assert_eq!(inks.len(), 24);
    }

    #[test]
    fn names_across_do_not_lie_on_each_other() {
        let points = (1..=64).map(|n| (f64::from(n), 1e6, None)).collect();
        let svg = workers(vec![Series { name: "s".into(), points }]).svg();
        let mut at: Vec<f64> = svg
            .split("<text ")
            .filter(|text| text.contains("middle"))
            .map(|text| numbers(&format!(" {text}"), "x")[0])
            .collect();
        at.sort_by(f64::total_cmp);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= LABEL), "{at:?}");
        assert!(at.len() > 6 && svg.contains(">64<"), "{svg}");
    }

    #[test]
    fn a_missing_measurement_is_named() {
        let svg = workers(vec![Series { name: "gone".into(), points: Vec::new() }]).svg();
        assert!(svg.contains("nothing was measured") && !svg.contains("NaN"), "{svg}");
    }
}
