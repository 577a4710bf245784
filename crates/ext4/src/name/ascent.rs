//! Follows the parents of a directory up to the root. Damage may have turned this path into a ring.

/// Detects that a path through parent directories never reaches the root. It remembers one
/// directory of the path, and replaces that directory by the current one after 1, 2, 4, … steps
/// (Brent's cycle detection). So a ring of n directories is detected within 3 n steps after the
/// path enters it, in constant memory.
#[derive(Debug, Clone)]
pub struct Ascent<D> {
    passed: D,
    steps: u64,
}

/// The error for a path that reaches the same directory twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsRing;

impl<D: PartialEq + Clone> Ascent<D> {
    /// Starts the path at `dir`.
    pub fn new(dir: D) -> Ascent<D> {
        Ascent { passed: dir, steps: 0 }
    }

    /// Takes the next step, to `dir`.
    ///
    /// # Errors
    /// [`IsRing`] if the path is found to be a ring.
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
