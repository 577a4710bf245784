//! Tests with readers that continue after the directory has changed.

use crate::dir::tests::*;
use std::collections::BTreeSet;

/// Runs a reader that takes a few entries at a time while names are added and removed.
fn read_among_changes(
    mut directory: Directory,
    stay: &[Vec<u8>],
    rng: &mut fastrand::Rng,
) -> Directory {
    for name in stay {
        directory.insert(name, Ino(40)).expect("room");
    }
    let mut guests: Vec<Vec<u8>> = Vec::new();
    let (mut seen, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let left = rng.usize(1..10);
        let mut batch = Vec::new();
        read_from(&directory.cx, &directory.blocks, cookie, &mut |entry| {
            batch.push(entry.name.to_vec());
            cookie = entry.next;
            if batch.len() == left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("sound");
        if batch.is_empty() {
            break;
        }
        for name in batch {
            let again = !seen.insert(name.clone());
            assert!(!again || !stay.contains(&name), "{} came twice", name.escape_ascii());
        }
        for _ in 0..rng.usize(0..12) {
            let guest = random_name(rng, 60);
            if !directory.model.contains_key(&guest) {
                directory.insert(&guest, Ino(41)).expect("room");
                guests.push(guest);
            }
        }
        for _ in 0..rng.usize(0..6) {
            if !guests.is_empty() {
                let guest = guests.swap_remove(rng.usize(..guests.len()));
                directory.remove(&guest);
            }
        }
    }
    for name in stay {
        assert!(seen.contains(name), "{} was lost", name.escape_ascii());
    }
    directory.check();
    directory
}

#[test]
fn a_reader_misses_and_repeats_nothing_while_the_directory_is_converted_and_split() {
    let mut rng = rng("conversion");
    let mut converted = 0;
    for version in [HashVersion::HalfMd4, HashVersion::Legacy, HashVersion::Tea] {
        for _ in 0..20 {
            let stay: BTreeSet<_> = (0..25).map(|_| random_name(&mut rng, 12)).collect();
            let stay: Vec<_> = stay.into_iter().collect();
            let directory = Directory::new(context(1024, version));
            let directory = read_among_changes(directory, &stay, &mut rng);
            converted += usize::from(directory.cx.indexing == Indexing::Indexed);
        }
    }
    assert!(converted > 0);
}

#[test]
fn a_reader_misses_and_repeats_nothing_among_names_of_one_hash() {
    let mut rng = rng("one hash");
    let directory = Directory::new(context(1024, HashVersion::Legacy));
    read_among_changes(directory, &collisions::legacy_collisions(120), &mut rng);
}

#[test]
fn a_reader_of_a_large_linear_directory_misses_and_repeats_nothing() {
    let mut rng = rng("linear");
    let mut cx = context(4096, HashVersion::HalfMd4);
    cx.indexing = Indexing::Never;
    let stay: BTreeSet<_> = (0..400).map(|_| random_name(&mut rng, 20)).collect();
    let stay: Vec<_> = stay.into_iter().collect();
    read_among_changes(Directory::new(cx), &stay, &mut rng);
    let mut directory = Directory::new(cx);
    for i in 0..5000 {
        directory.insert(format!("{i}").as_bytes(), Ino(9)).expect("room");
    }
    for batch in [300, 1399, 1400, 1401, 9000] {
        assert_eq!(directory.read_all(batch).len(), 5002);
    }
}

#[test]
fn removing_names_already_read_hides_no_other_name() {
    let mut directory = Directory::new(context(1024, HashVersion::Legacy));
    for name in collisions::legacy_collisions(100) {
        directory.insert(&name, Ino(9)).expect("room");
    }
    let mut cookie = 0;
    while !directory.model.is_empty() {
        let mut read = None;
        read_from(&directory.cx, &directory.blocks, cookie, &mut |entry| {
            cookie = entry.next;
            if entry.name.starts_with(b".") {
                return ControlFlow::Continue(());
            }
            read = Some(entry.name.to_vec());
            ControlFlow::Break(())
        })
        .expect("sound");
        directory.remove(&read.expect("names are left, so the reader is not at the end"));
    }
    directory.check();
}
