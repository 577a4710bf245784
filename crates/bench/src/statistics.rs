//! The median and the spread of figures.

/// The median, the smallest and the largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median: half of the figures are below it, half above.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises `figures`; `None` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let half = figures.len() / 2;
        let upper = figures[half];
        let median =
            if figures.len().is_multiple_of(2) { (figures[half - 1] + upper) / 2.0 } else { upper };
        Some(Summary { median, min, max })
    }

    /// Summarises the ratios between two lists of figures. The ratios are computed slice by slice,
    /// because other load on the machine affects both figures of a slice alike. A slice that only
    /// one list has is ignored.
    pub fn of_ratios(figures: &[f64], to: &[f64]) -> Option<Summary> {
        Summary::of(figures.iter().zip(to).filter(|(_, to)| **to > 0.0).map(|(a, b)| a / b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_follow_outliers() {
        let odd = Summary::of([3.0, 1000.0, 1.0]).unwrap();
        assert_eq!(odd, Summary { median: 3.0, min: 1.0, max: 1000.0 });
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Summary::of([7.0]).unwrap().median, 7.0);
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn ratios_are_taken_slice_by_slice() {
        // In the second slice both targets run at half speed, so their ratio does not change.
        let ratio = Summary::of_ratios(&[200.0, 100.0, 220.0], &[100.0, 50.0, 100.0]).unwrap();
        assert_eq!(ratio, Summary { median: 2.0, min: 2.0, max: 2.2 });
        assert_eq!(Summary::of_ratios(&[1.0, 2.0], &[0.0]), None);
    }
}
