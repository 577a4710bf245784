//! An axis: the position of a value, and the values that get a label.

/// The range of the axis, which is never empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

/// The labels within a decade, in several densities. The lowest density that yields enough labels
/// is used.
const STEPS: [&[f64]; 4] = [
    &[1.0],
    &[1.0, 2.0, 5.0],
    &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
    &[
        1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0,
        7.0, 8.0, 9.0,
    ],
];
/// The smallest number of labels with which a reader can tell a point's value.
const ENOUGH: usize = 3;

impl Axis {
    /// Creates an axis over all positive `values`.
    pub fn logarithmic(values: impl Iterator<Item = f64>) -> Axis {
        let values = values.filter(|value| *value > 0.0).map(f64::ln);
        Axis::over(values, Scale::Logarithmic, 0.1)
    }

    /// Creates an axis over all `values`.
    pub fn linear(values: impl Iterator<Item = f64>) -> Axis {
        Axis::over(values, Scale::Linear, 0.5)
    }

    /// Creates an axis with a margin at either end. If all values are equal, the margin is `least`;
    /// otherwise it is at least a quarter of `least`.
    fn over(values: impl Iterator<Item = f64>, scale: Scale, least: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return Axis { low: 0.0, high: 1.0, scale };
        }
        let margin = ((high - low) * 0.08).max(if high > low { least / 4.0 } else { least });
        Axis { low: low - margin, high: high + margin, scale }
    }

    /// Returns the position of a value, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
        };
        (value - self.low) / (self.high - self.low)
    }

    /// Returns round values to label on a logarithmic axis.
    pub fn marks(&self) -> Vec<f64> {
        let mut marks = Vec::new();
        for steps in STEPS {
            marks = self.marks_of(steps);
            if marks.len() >= ENOUGH {
                break;
            }
        }
        if marks.len() < ENOUGH {
            marks = self.even_marks();
        }
        // If there are many marks, only every second mark gets a label, or every third, and so on.
        let each = marks.len().div_ceil(10).max(1);
        marks.into_iter().step_by(each).collect()
    }

    fn marks_of(&self, steps: &[f64]) -> Vec<f64> {
        let power = |value: f64| (value / 10f64.ln()).floor() as i32;
        let decades = power(self.low)..=power(self.high);
        let marks =
            decades.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        marks.filter(|mark| (0.0..=1.0).contains(&self.place(*mark))).collect()
    }
    /// Returns round values at equal distances. Used if the range is so narrow that the logarithm
    /// is almost linear within it.
    fn even_marks(&self) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let least = (high - low) / 5.0;
        let power = 10f64.powi(least.log10().floor() as i32);
        let step = [1.0, 2.0, 5.0].map(|step| step * power).into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(10.0 * power);
        let first = (low / step).ceil();
        (0..ENOUGH * 2).map(|n| (first + n as f64) * step).filter(|mark| *mark <= high).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_cover_all_values() {
        let axis = Axis::logarithmic([1.0, 64.0, f64::NAN, 0.0].into_iter());
        assert!(axis.place(1.0) > 0.0 && axis.place(64.0) < 1.0);
        let one = Axis::logarithmic([5.0].into_iter());
        assert!((one.place(5.0) - 0.5).abs() < 1e-9);
        assert!(Axis::logarithmic(std::iter::empty()).place(1.0).is_finite());
        let linear = Axis::linear([0.0, 3.0].into_iter());
        assert!((linear.place(1.5) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn some_round_values_are_named_however_wide_the_range() {
        for (low, high) in [
            (1.0, 64.0),
            (3.1e6, 4.6e6),
            (0.2, 0.25),
            (1.0, 1e9),
            (7e5, 7.1e5),
            (1e-3, 1e15),
            (6.24e5, 6.55e5),
        ] {
            let marks = Axis::logarithmic([low, high].into_iter()).marks();
            assert!((1..=10).contains(&marks.len()), "{low}..{high}: {marks:?}");
            assert!(marks.len() >= 2, "{low}..{high}: {marks:?}");
            assert!(high / low < 1.3 || marks.len() >= ENOUGH, "{low}..{high}: {marks:?}");
        }
        assert!(Axis::logarithmic([1.0, 64.0].into_iter()).marks().contains(&10.0));
    }
}
