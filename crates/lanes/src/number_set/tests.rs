use super::*;
use std::collections::BTreeSet;

#[test]
fn a_set_does_as_a_sorted_set_does() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for len in [1, 64, 65, 5000, 300_000] {
        let (set, mut model) = (NumberSet::new(len), BTreeSet::new());
        for round in 0..4000 {
            let number = rng.u32(0..len);
            if rng.usize(0..4000) > round {
                set.insert(number);
                model.insert(number);
            } else {
                set.remove(number);
                model.remove(&number);
            }
            let from = rng.u32(0..len);
            assert_eq!(set.next(from), model.range(from..).next().copied());
        }
        assert_eq!(set.next(len), None);
    }
}

#[test]
fn numbers_inserted_by_threads_are_found_afterwards() {
    for _ in 0..100 {
        let set = NumberSet::new(64 * 64 * 4);
        let word = 7000 / 64 * 64;
        std::thread::scope(|s| {
            for thread in 0..4 {
                let set = &set;
                s.spawn(move || {
                    // All numbers are in one word, so that the word often becomes empty.
                    for i in 0..200 {
                        set.insert(word + thread * 16 + i % 16);
                        set.remove(word + thread * 16 + i % 16);
                    }
                    set.insert(word + thread);
                });
            }
        });
        assert_eq!(set.next(0), Some(word));
    }
}

#[test]
fn a_set_that_grew_finds_what_one_of_that_size_finds() {
    let (grown, whole) = (NumberSet::new(70), NumberSet::new(10_000));
    for len in [100, 128, 129, 200, 5000, 10_000] {
        grown.grow(len);
        for number in [3, 64, 69, len - 1, len - len / 3] {
            grown.insert(number);
            whole.insert(number);
        }
        grown.remove(len - 1);
        whole.remove(len - 1);
        for from in 0..len + 100 {
            assert_eq!(grown.next(from), whole.next(from), "from {from} of {len}");
        }
    }
}
