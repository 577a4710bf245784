//! The way from a directory up to the root, which a damaged image may have bent into a ring.

/// Notices that a way up does not end. It remembers one directory of those that were passed, another
/// after twice as many steps each time (Brent's cycle detection): a ring of n directories is noticed
/// within 3 n steps after the way enters it, with no memory for those passed.
#[derive(Debug, Clone)]
pub struct Ascent<D> {
    passed: D,
    steps: u64,
}

/// The way came back to a directory that it had passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsRing;

impl<D: PartialEq + Clone> Ascent<D> {
    /// A way up that begins at `dir`.
    pub fn new(dir: D) -> Ascent<D> {
        Ascent { passed: dir, steps: 0 }
    }

    /// The next step leads to `dir`.
    ///
    /// # Errors
    /// [`IsRing`].
    pub fn step(&mut self, dir: &D) -> Result<(), IsRing> {
        if *dir == self.passed {
            return Err(IsRing);
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.passed = dir.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_noticed_wherever_the_way_enters_it() {
        for tail in [0, 1, 2, 5, 100] {
            for ring in [1, 2, 3, 7, 64, 1000] {
                let mut ascent = Ascent::new(0);
                let mut at = 0;
                let steps = (1..).find(|_| {
                    at = if at == tail + ring - 1 { tail } else { at + 1 };
                    ascent.step(&at).is_err()
                });
                assert!(steps.unwrap() <= 2 * tail + 3 * ring, "{tail} {ring}: {steps:?}");
            }
        }
        let mut straight = Ascent::new(0);
        assert!((1..10_000).all(|dir| straight.step(&dir).is_ok()));
    }
}
