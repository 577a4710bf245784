//! Plans a row write: the blocks that are read first, and the computation of parity.
//!
//! A *band* is a range of offsets within a row's chunks in which the same data chunks are written.
//! The plan of a band is a pure function of the written and the missing chunks, so tests compare
//! every case with all other correct plans.

use crate::slots::Slots;

/// The write of one band of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band {
    /// The number of data chunks in a row.
    pub data: usize,
    /// The data chunks that are written, by index.
    pub written: Slots,
    /// The written chunks whose blocks are written only in part: the rest must be kept.
    pub partial: Slots,
    /// The chunk that can be neither read nor written.
    pub missing: Missing,
    /// Whether the old parity is right.
    pub parity: Trust,
}

/// The missing member of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No member is missing.
    Nothing,
    /// The member with this data chunk.
    Data(usize),
    /// The member with the parity.
    Parity,
}

/// Whether a row's parity is known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The parity is right.
    Right,
    /// The parity may be wrong, as after a crash before resync: it must be computed from data
    /// without old parity.
    Unknown,
}

/// The computation of the new parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// No parity is computed: the member with the parity is missing.
    NoParity,
    /// All data of the band is written. Parity is the XOR of the written data.
    FullRow,
    /// Parity is the XOR of the written data and of the other data, which is read.
    Reconstruct,
    /// Parity is the XOR of the old parity, the old data and the new data.
    Modify,
}

/// The plan for a band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The computation of the parity.
    pub method: Method,
    /// Data chunks to read first.
    pub read: Slots,
    /// Whether the old parity is read first.
    pub read_parity: bool,
    /// Data chunks to write: the written chunks that are not missing.
    pub write: Slots,
    /// A missing data chunk of which a part must be kept: its old content is computed from all
    /// other chunks and the parity.
    pub rebuild: Option<usize>,
}

impl Plan {
    /// Returns the number of member reads and writes of the plan.
    pub fn cost(&self) -> usize {
        let parity_written = usize::from(self.method != Method::NoParity);
        self.read.count() + usize::from(self.read_parity) + self.write.count() + parity_written
    }
}

/// Returns the correct plan with the fewest member reads and writes. Of two plans with the same
/// cost it returns the plan that reconstructs parity, since this plan does not depend on old
/// parity.
///
/// `None` if a part of a missing chunk must be kept, but the parity from which to compute it may be
/// wrong.
pub fn plan(band: Band) -> Option<Plan> {
    let all = Slots::below(band.data);
    let (written, rest) = (band.written, all - band.written);
    let plan = |method, read, read_parity, write, rebuild| {
        Some(Plan { method, read, read_parity, write, rebuild })
    };
    let reconstruct = |read: Slots, write| {
        let method = if rest.is_empty() { Method::FullRow } else { Method::Reconstruct };
        plan(method, read, false, write, None)
    };
    match (band.missing, band.parity) {
        (Missing::Parity, _) => plan(Method::NoParity, band.partial, false, written, None),
        (Missing::Data(lost), _) if written.contains(lost) => {
            let write = written - Slots::one(lost);
            if !band.partial.contains(lost) {
                return reconstruct(rest | band.partial, write);
            }
            // All other chunks are read anyway, to compute the old contents of the missing chunk.
            let others = all - Slots::one(lost);
            let method = if rest.is_empty() { Method::FullRow } else { Method::Reconstruct };
            match band.parity {
                Trust::Right => plan(method, others, true, write, Some(lost)),
                Trust::Unknown => None,
            }
        }
        // Only the old parity has the missing data, so the new parity is computed from it, right or
        // wrong.
        (Missing::Data(_), _) => plan(Method::Modify, written, true, written, None),
        (Missing::Nothing, Trust::Unknown) => reconstruct(rest | band.partial, written),
        (Missing::Nothing, Trust::Right) => {
            let reads = (rest | band.partial).count();
            if written.count() + 1 < reads {
                plan(Method::Modify, written, true, written, None)
            } else {
                reconstruct(rest | band.partial, written)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bands(data: usize) -> impl Iterator<Item = Band> {
        let missing = (0..data)
            .map(Missing::Data)
            .chain([Missing::Nothing, Missing::Parity])
            .collect::<Vec<_>>();
        (1..1usize << data).flat_map(move |written| {
            let missing = missing.clone();
            (0..1usize << data).filter(move |partial| partial & !written == 0).flat_map(
                move |partial| {
                    missing.clone().into_iter().flat_map(move |missing| {
                        [Trust::Right, Trust::Unknown].map(|parity| Band {
                            data,
                            written: bits(written),
                            partial: bits(partial),
                            missing,
                            parity,
                        })
                    })
                },
            )
        })
    }

    fn bits(word: usize) -> Slots {
        (0..16).filter(|i| word >> i & 1 == 1).collect()
    }

    /// Applies a plan to a row of one-byte chunks, where a partial write replaces the low half.
    /// Returns the row's data as a later read would return it, and its parity.
    fn carry_out(band: Band, plan: Plan, old: &[u8], old_parity: u8, new: &[u8]) -> (Vec<u8>, u8) {
        let lost = match band.missing {
            Missing::Data(lost) => Some(lost),
            _ => None,
        };
        assert!(lost.is_none_or(|lost| !plan.read.contains(lost) && !plan.write.contains(lost)));
        assert!(band.missing != Missing::Parity || !plan.read_parity);
        let seen: Vec<Option<u8>> =
            (0..band.data).map(|i| plan.read.contains(i).then_some(old[i])).collect();
        let rebuilt = plan.rebuild.map(|_| {
            assert!(plan.read_parity && plan.read.count() == band.data - 1);
            seen.iter().flatten().fold(old_parity, |sum, b| sum ^ b)
        });
        let fresh = |i: usize| {
            if !band.partial.contains(i) {
                return new[i];
            }
            let old = if plan.rebuild == Some(i) { rebuilt } else { seen[i] };
            old.expect("what is kept was read") & 0xf0 | new[i] & 0x0f
        };
        let after: Vec<u8> = (0..band.data)
            .map(|i| if band.written.contains(i) { fresh(i) } else { old[i] })
            .collect();
        let parity = match plan.method {
            Method::NoParity => 0,
            Method::FullRow | Method::Reconstruct => (0..band.data).fold(0, |sum, i| {
                let byte = if band.written.contains(i) { fresh(i) } else { seen[i].expect("read") };
                sum ^ byte
            }),
            Method::Modify => band
                .written
                .iter()
                .fold(old_parity, |sum, i| sum ^ seen[i].expect("old data was read") ^ fresh(i)),
        };
        (after, parity)
    }

    #[test]
    fn every_plan_leaves_data_and_parity_right() {
        let seed = 31;
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for data in 2..=5 {
            for band in bands(data) {
                let Some(plan) = plan(band) else {
                    assert_eq!(band.parity, Trust::Unknown);
                    continue;
                };
                let old: Vec<u8> = (0..data).map(|_| rng.u8(..)).collect();
                let new: Vec<u8> = (0..data).map(|_| rng.u8(..)).collect();
                let right = old.iter().fold(0, |s, b| s ^ b);
                // Unknown parity of a complete row becomes right; in a degraded row it is the only
                // source of data.
                let unknown = band.parity == Trust::Unknown && band.missing == Missing::Nothing;
                let parity = if unknown { rng.u8(..) } else { right };
                let (after, parity) = carry_out(band, plan, &old, parity, &new);
                for i in 0..data {
                    let want = match (band.written.contains(i), band.partial.contains(i)) {
                        (false, _) => old[i],
                        (true, false) => new[i],
                        (true, true) => old[i] & 0xf0 | new[i] & 0x0f,
                    };
                    assert_eq!(after[i], want, "{band:?} {plan:?}");
                }
                if plan.method != Method::NoParity {
                    assert_eq!(parity, after.iter().fold(0, |s, b| s ^ b), "{band:?} {plan:?}");
                }
            }
        }
    }

    /// Tries every set of reads: checks that parity and preserved data can be computed from the
    /// set.
    fn fewest_reads(band: Band) -> Option<usize> {
        let readable: Vec<usize> = (0..band.data)
            .filter(|i| band.missing != Missing::Data(*i))
            .chain((band.missing != Missing::Parity).then_some(band.data))
            .collect();
        (0..1usize << readable.len())
            .map(|choice| {
                let read = |i: usize| {
                    readable.iter().position(|r| *r == i).is_some_and(|at| choice >> at & 1 == 1)
                };
                let parity = read(band.data) && band.parity == Trust::Right;
                let all_but = |i: usize| (0..band.data).all(|j| j == i || read(j));
                let known = |i: usize| read(i) || (parity && all_but(i));
                let kept = band.partial.iter().all(known);
                let rest = (0..band.data).filter(|i| !band.written.contains(*i));
                let whole = rest.clone().all(known);
                let modify = parity && band.written.iter().all(known);
                // Only the old parity has the data of a missing chunk that is not written.
                let bound = read(band.data) && band.written.iter().all(known) && kept;
                let lost_rest = match band.missing {
                    Missing::Data(lost) => !band.written.contains(lost),
                    _ => false,
                };
                let right = match band.missing {
                    Missing::Parity => kept,
                    _ if lost_rest => bound,
                    _ => kept && (whole || modify),
                };
                (right, choice.count_ones() as usize)
            })
            .filter_map(|(right, reads)| right.then_some(reads))
            .min()
    }

    #[test]
    fn no_right_plan_reads_less() {
        for data in 2..=5 {
            for band in bands(data) {
                let got = plan(band).map(|p| p.read.count() + usize::from(p.read_parity));
                assert_eq!(got, fewest_reads(band), "{band:?} {:?}", plan(band));
            }
        }
    }

    #[test]
    fn a_full_row_reads_nothing_and_a_small_write_costs_four() {
        let band = |written, data| Band {
            data,
            written,
            partial: Slots::NONE,
            missing: Missing::Nothing,
            parity: Trust::Right,
        };
        let full = plan(band(Slots::below(4), 4)).unwrap();
        assert_eq!((full.method, full.cost()), (Method::FullRow, 5));
        let small = plan(band(Slots::one(2), 8)).unwrap();
        assert_eq!((small.method, small.cost()), (Method::Modify, 4));
        let most = plan(band(Slots::below(7), 8)).unwrap();
        assert_eq!((most.method, most.cost()), (Method::Reconstruct, 9));
    }
}
