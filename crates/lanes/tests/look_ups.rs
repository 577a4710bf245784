//! Measures the cost of finding a number or a name. To count the instructions of 1000 look-ups, run
//! `valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*find_numbers*'` (or with
//! `*hash_names*`) on this test program, built with `cargo test --profile stress -p lanefs-lanes
//! --test look_ups`.
#![cfg(not(any(loom, shuttle)))]

use lanefs_lanes::{Map, Pin, hash_of, pin};

#[inline(never)]
fn find_numbers(map: &Map<u32, u32>, pin: &Pin) -> u32 {
    (1..=1000).filter(|n| map.find(pin, n) == Some(n)).count() as u32
}

#[inline(never)]
fn hash_names(names: &[String]) -> u64 {
    names.iter().fold(0, |all, name| all ^ hash_of(name.as_bytes()))
}

#[test]
fn numbers_are_found_and_names_have_one_hash_each() {
    let map = Map::with_capacity(1 << 14);
    (1..=1000).for_each(|n| assert_eq!(map.insert(n, n), None));
    assert_eq!(find_numbers(&map, &pin()), 1000);
    let names: Vec<String> = (0..1000).map(|n| format!("a file of number {n}")).collect();
    assert_eq!(hash_names(&names), hash_names(&names));
}
