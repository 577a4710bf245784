//! Tests of `plan.rs`.

use super::*;

fn shapes(data: usize) -> impl Iterator<Item = StripShape> {
    let missing =
        (0..data).map(Missing::Data).chain([Missing::Nothing, Missing::Parity]).collect::<Vec<_>>();
    (1..1usize << data).flat_map(move |written| {
        let missing = missing.clone();
        (0..1usize << data).filter(move |partial| partial & !written == 0).flat_map(
            move |partial| {
                missing.clone().into_iter().flat_map(move |missing| {
                    [Trust::Right, Trust::Unknown].map(|parity| StripShape {
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

/// Returns the number of member reads and writes of the plan.
fn cost(plan: &Plan) -> usize {
    let parity_written = usize::from(plan.method != Method::NoParity);
    plan.read.count() + usize::from(plan.read_parity) + plan.write.count() + parity_written
}

fn bits(word: usize) -> Slots {
    (0..16).filter(|i| word >> i & 1 == 1).collect()
}

/// Applies a plan to a row of one-byte chunks. A write of only a part of a chunk replaces the
/// low four bits of the byte. Returns the row's data as a later read would return it, and the
/// row's parity.
fn carry_out(
    shape: StripShape,
    plan: Plan,
    old: &[u8],
    old_parity: u8,
    new: &[u8],
) -> (Vec<u8>, u8) {
    let lost = match shape.missing {
        Missing::Data(lost) => Some(lost),
        _ => None,
    };
    assert!(lost.is_none_or(|lost| !plan.read.contains(lost) && !plan.write.contains(lost)));
    assert!(shape.missing != Missing::Parity || !plan.read_parity);
    let seen: Vec<Option<u8>> =
        (0..shape.data).map(|i| plan.read.contains(i).then_some(old[i])).collect();
    let rebuilt = plan.rebuild.map(|_| {
        assert!(plan.read_parity && plan.read.count() == shape.data - 1);
        seen.iter().flatten().fold(old_parity, |sum, b| sum ^ b)
    });
    let fresh = |i: usize| {
        if !shape.partial.contains(i) {
            return new[i];
        }
        let old = if plan.rebuild == Some(i) { rebuilt } else { seen[i] };
        old.expect("what is kept was read") & 0xf0 | new[i] & 0x0f
    };
    let after: Vec<u8> = (0..shape.data)
        .map(|i| if shape.written.contains(i) { fresh(i) } else { old[i] })
        .collect();
    let parity = match plan.method {
        Method::NoParity => 0,
        Method::FullRow | Method::Reconstruct => (0..shape.data).fold(0, |sum, i| {
            let byte = if shape.written.contains(i) { fresh(i) } else { seen[i].expect("read") };
            sum ^ byte
        }),
        Method::Modify => shape
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
        for shape in shapes(data) {
            let Some(plan) = plan(shape) else {
                assert_eq!(shape.parity, Trust::Unknown);
                continue;
            };
            let old: Vec<u8> = (0..data).map(|_| rng.u8(..)).collect();
            let new: Vec<u8> = (0..data).map(|_| rng.u8(..)).collect();
            let right = old.iter().fold(0, |s, b| s ^ b);
            // In a complete row, the plan has to replace unknown parity by right parity, so the
            // test starts from random parity. In a degraded row, the parity is the only source
            // of the missing data, so the test starts from right parity.
            let unknown = shape.parity == Trust::Unknown && shape.missing == Missing::Nothing;
            let parity = if unknown { rng.u8(..) } else { right };
            let (after, parity) = carry_out(shape, plan, &old, parity, &new);
            for i in 0..data {
                let want = match (shape.written.contains(i), shape.partial.contains(i)) {
                    (false, _) => old[i],
                    (true, false) => new[i],
                    (true, true) => old[i] & 0xf0 | new[i] & 0x0f,
                };
                assert_eq!(after[i], want, "{shape:?} {plan:?}");
            }
            if plan.method != Method::NoParity {
                assert_eq!(parity, after.iter().fold(0, |s, b| s ^ b), "{shape:?} {plan:?}");
            }
        }
    }
}

/// Returns the size of the smallest set of reads from which parity and preserved data can be
/// computed. Tries every set.
fn fewest_reads(shape: StripShape) -> Option<usize> {
    let readable: Vec<usize> = (0..shape.data)
        .filter(|i| shape.missing != Missing::Data(*i))
        .chain((shape.missing != Missing::Parity).then_some(shape.data))
        .collect();
    (0..1usize << readable.len())
        .map(|choice| {
            let read = |i: usize| {
                readable.iter().position(|r| *r == i).is_some_and(|at| choice >> at & 1 == 1)
            };
            let parity = read(shape.data) && shape.parity == Trust::Right;
            let all_but = |i: usize| (0..shape.data).all(|j| j == i || read(j));
            let known = |i: usize| read(i) || (parity && all_but(i));
            let kept = shape.partial.iter().all(known);
            let rest = (0..shape.data).filter(|i| !shape.written.contains(*i));
            let whole = rest.clone().all(known);
            let modify = parity && shape.written.iter().all(known);
            // If a missing chunk is not written, only the old parity has its data. So the old
            // parity must be read, even if it may be wrong.
            let bound = read(shape.data) && shape.written.iter().all(known) && kept;
            let lost_rest = match shape.missing {
                Missing::Data(lost) => !shape.written.contains(lost),
                _ => false,
            };
            let right = match shape.missing {
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
        for shape in shapes(data) {
            let got = plan(shape).map(|p| p.read.count() + usize::from(p.read_parity));
            assert_eq!(got, fewest_reads(shape), "{shape:?} {:?}", plan(shape));
        }
    }
}

#[test]
fn a_full_row_reads_nothing_and_a_small_write_costs_four() {
    let shape = |written, data| StripShape {
        data,
        written,
        partial: Slots::NONE,
        missing: Missing::Nothing,
        parity: Trust::Right,
    };
    let full = plan(shape(Slots::below(4), 4)).unwrap();
    assert_eq!((full.method, cost(&full)), (Method::FullRow, 5));
    let small = plan(shape(Slots::one(2), 8)).unwrap();
    assert_eq!((small.method, cost(&small)), (Method::Modify, 4));
    let most = plan(shape(Slots::below(7), 8)).unwrap();
    assert_eq!((most.method, cost(&most)), (Method::Reconstruct, 9));
}
