use super::*;
use lanefs_ext4::{DirId, Named, Names};
use lanefs_lanes::pin;
use lanefs_ondisk::{FileType, Ino};
use std::collections::HashMap;

fn dir(ino: u32) -> DirId {
    DirId { ino: Ino(ino), generation: 7 }
}

fn named(ino: u32) -> Option<Named> {
    Some(Named { ino: Ino(ino), file_type: FileType::Regular })
}

#[test]
fn the_last_thing_published_is_found() {
    let names = NameCache::new(1000);
    assert_eq!(names.find(dir(2), b"a"), Known::Unknown);
    names.publish(dir(2), b"a", named(12));
    assert_eq!(names.find(dir(2), b"a"), named(12).into());
    names.publish(dir(2), b"a", None);
    assert_eq!(names.find(dir(2), b"a"), Known::Absent);
    names.publish(dir(2), b"a", named(13));
    assert_eq!(names.find(dir(2), b"a"), named(13).into());
}

#[test]
fn a_sighting_holds_until_the_name_changes() {
    let names = NameCache::new(1000);
    let pin = pin();
    names.publish(dir(2), b"a", named(12));
    let a = HashedName::from(&b"a"[..]);
    let first = names.sight(&pin, dir(2), a);
    names.publish(dir(2), b"b", named(13));
    assert!(first.still());
    names.publish(dir(2), b"a", None);
    assert!(!first.still());
    names.publish(dir(2), b"a", named(12));
    assert!(!first.still(), "it changed meanwhile");
}

#[test]
fn a_sighting_ends_with_its_entry() {
    let names = NameCache::new(8);
    let pin = pin();
    names.publish(dir(2), b"a", named(12));
    let a = HashedName::from(&b"a"[..]);
    let first = names.sight(&pin, dir(2), a);
    // Publishes enough other names to evict "a", even if its `used` mark spares it once.
    (0..64u32).for_each(|n| names.publish(dir(3), &n.to_le_bytes(), named(n)));
    assert_eq!(names.find(dir(2), b"a"), Known::Unknown);
    names.publish(dir(2), b"a", named(14));
    assert!(!first.still());
}

#[test]
fn names_of_another_directory_or_generation_are_not_found() {
    let names = NameCache::new(1000);
    names.publish(dir(2), b"a", named(12));
    assert_eq!(names.find(dir(3), b"a"), Known::Unknown);
    let later = DirId { generation: 8, ..dir(2) };
    assert_eq!(names.find(later, b"a"), Known::Unknown);
}

#[test]
fn memory_is_bounded_and_used_names_stay() {
    let names = NameCache::new(512);
    names.publish(dir(2), b"kept", named(12));
    for n in 0..20_000u32 {
        names.publish(dir(3), n.to_string().as_bytes(), named(n));
        assert_eq!(names.find(dir(2), b"kept"), named(12).into(), "after {n}");
    }
    let left = (0..20_000u32)
        .filter(|n| names.find(dir(3), n.to_string().as_bytes()) != Known::Unknown)
        .count();
    assert!((256..=1024).contains(&left), "{left} left");
}

#[test]
fn a_cache_never_contradicts_the_directory() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let names = NameCache::new(64);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut truth = HashMap::new();
    for step in 0..50_000 {
        let (d, n) = (random.u32(2..6), random.u32(0..60).to_string());
        match random.u8(..3) {
            0 => {
                let entry = if random.bool() { named(random.u32(12..99)) } else { None };
                truth.insert((d, n.clone()), entry);
                names.publish(dir(d), n.as_bytes(), entry);
            }
            _ => match names.find(dir(d), n.as_bytes()) {
                Known::Unknown => {}
                known => {
                    assert_eq!(Some(known), truth.get(&(d, n)).map(|&e| e.into()), "step {step}")
                }
            },
        }
    }
}

#[test]
fn threads_in_different_directories_see_their_own_names() {
    let names = NameCache::new(4096);
    std::thread::scope(|scope| {
        for d in 2..6 {
            let names = &names;
            scope.spawn(move || {
                for n in 0..2000u32 {
                    names.publish(dir(d), &n.to_le_bytes(), named(d * 10_000 + n));
                    let known = names.find(dir(d), &n.to_le_bytes());
                    assert!(known == named(d * 10_000 + n).into() || known == Known::Unknown);
                }
            });
        }
    });
}
