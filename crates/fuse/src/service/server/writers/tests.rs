use super::*;

#[test]
fn a_file_is_written_until_the_last_handle_is_gone() {
    let (writers, ino) = (Writers::new(), Ino(12));
    assert!(!writers.has(ino));
    writers.set_out_of_space(ino, true);
    assert!(!writers.is_out_of_space(ino));
    writers.add(ino).unwrap();
    writers.add(ino).unwrap();
    writers.set_out_of_space(ino, true);
    writers.remove(ino);
    assert!(writers.has(ino) && writers.is_out_of_space(ino));
    writers.remove(ino);
    writers.remove(ino);
    assert!(!writers.has(ino) && !writers.is_out_of_space(ino));
    assert!(!writers.has(Ino(12 + SHARDS as u32)));
}

#[test]
fn the_last_handle_tells_whether_a_sector_was_shown() {
    let (writers, ino) = (Writers::new(), Ino(12));
    assert!(!writers.show_sector(ino) && !writers.remove(ino));
    writers.add(ino).unwrap();
    writers.add(ino).unwrap();
    assert!(writers.show_sector(ino));
    assert!(!writers.remove(ino));
    assert!(writers.remove(ino));
    writers.add(ino).unwrap();
    assert!(!writers.remove(ino));
}

#[test]
fn writers_are_denied_until_the_denial_is_dropped() {
    let (writers, ino) = (Writers::new(), Ino(12));
    writers.add(ino).unwrap();
    assert!(matches!(writers.deny(ino), Err(Error::OpenForWriting)));
    writers.remove(ino);
    let denied = writers.deny(ino).unwrap();
    assert!(matches!(writers.add(ino), Err(Error::BecomesVerity)));
    assert!(matches!(writers.deny(ino), Err(Error::Busy)));
    // A peer may release a handle that it never got.
    assert!(!writers.remove(ino) && !writers.has(ino) && !writers.show_sector(ino));
    assert!(writers.add(ino).is_err());
    drop(denied);
    writers.add(ino).unwrap();
    assert!(writers.has(ino));
}
