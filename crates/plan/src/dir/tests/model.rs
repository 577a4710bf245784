//! Tests random insertions and removals.

use crate::dir::tests::*;

/// Makes a directory grow to `most` entries, shrink to zero, and grow again. Checks the directory's
/// structure every `every` steps.
fn run(cx: DirContext, most: usize, longest: usize, every: usize, test: &str) -> Directory {
    let mut rng = rng(test);
    let mut directory = Directory::new(cx);
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut step = 0;
    for (target, keep) in [(most, 80), (0, 15), (most / 2, 70)] {
        while names.len() != target {
            if rng.usize(0..100) < keep || names.is_empty() {
                let new = random_name(&mut rng, longest);
                let found = find(&directory.cx, &directory.blocks, name(&new)).expect("sound");
                assert_eq!(found.map(|found| found.ino), directory.model.get(&new).copied());
                if found.is_none() {
                    directory.insert(&new, Ino(rng.u32(1..=INODES))).expect("room");
                    names.push(new);
                }
            } else {
                let gone = names.swap_remove(rng.usize(..names.len()));
                directory.remove(&gone);
                assert!(
                    find(&directory.cx, &directory.blocks, name(&gone)).expect("sound").is_none()
                );
            }
            step += 1;
            if step % every == 0 {
                directory.check();
            }
        }
        directory.check();
        let read = directory.read_all(1000);
        assert_eq!(read.len(), directory.model.len() + 2);
        assert_eq!(read[0], (b".".to_vec(), INO));
        assert_eq!(read[1], (b"..".to_vec(), PARENT));
        let read: BTreeMap<_, _> = read.into_iter().skip(2).collect();
        assert_eq!(read, directory.model);
    }
    for (bytes, ino) in &directory.model {
        let found = find(&directory.cx, &directory.blocks, name(bytes)).expect("sound");
        assert_eq!(found.map(|found| found.ino), Some(*ino));
    }
    directory
}

fn levels(directory: &Directory) -> u8 {
    htree::root(&directory.cx.format, &directory.blocks[0]).expect("a root").levels
}

#[test]
fn a_small_directory_keeps_its_entries() {
    for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
        run(context(1024, version), 60, 40, 1, "small");
    }
}

#[test]
fn an_index_of_two_levels_keeps_its_entries() {
    let directory = run(context(1024, HashVersion::HalfMd4), 3000, 255, 300, "two levels");
    assert_eq!(levels(&directory), 1);
}

#[test]
fn a_directory_without_checksums_types_and_with_unsigned_names_keeps_its_entries() {
    let mut cx = context(1024, HashVersion::Tea);
    cx.format.has_checksums = false;
    cx.format.has_file_types = false;
    cx.hasher.bytes = NameBytes::Unsigned;
    let directory = run(cx, 2500, 255, 300, "old format");
    assert_eq!(levels(&directory), 1);
}

#[test]
fn a_linear_directory_of_many_blocks_keeps_its_entries() {
    let mut cx = context(1024, HashVersion::HalfMd4);
    cx.indexing = Indexing::Never;
    let directory = run(cx, 2000, 60, 300, "linear");
    assert_eq!(directory.cx.indexing, Indexing::Never);
}

#[test]
#[ignore = "long: 28,000 names in two directories"]
fn directories_of_larger_blocks_keep_their_entries() {
    run(context(4096, HashVersion::HalfMd4), 8000, 60, 1000, "4 KiB");
    run(context(65536, HashVersion::HalfMd4), 20_000, 40, 5000, "64 KiB");
}

#[test]
#[ignore = "long: fills directories of 1 KiB blocks"]
fn a_third_level_comes_with_large_dir_only() {
    let mut rng = rng("third level");
    let mut cx = context(1024, HashVersion::HalfMd4);
    for (large, expected) in [(false, 1), (true, 2)] {
        cx.format.has_large_dirs = large;
        let mut directory = Directory::new(cx);
        let full = loop {
            let mut new = random_name(&mut rng, 10);
            new.resize(250, b'x');
            if directory.model.contains_key(&new) {
                continue;
            }
            match directory.insert(&new, Ino(7)) {
                Ok(()) if directory.model.len() < 60_000 => {}
                Ok(()) => break false,
                Err(Error::NoSpace) => break true,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!((levels(&directory), full), (expected, !large));
        directory.check();
    }
}

#[test]
fn a_full_leaf_is_compacted_rather_than_split() {
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    let mut i = 0;
    while directory.cx.indexing == Indexing::Possible {
        directory.insert(format!("{i:0>30}").as_bytes(), Ino(20)).expect("room");
        i += 1;
    }
    let blocks = directory.blocks.len();
    // Each round removes a name and adds another of about the same length. If full leaves are
    // compacted, the room of the removed names is used, and only a few leaves are split.
    for round in 0..200 {
        let first = directory.model.keys().next().expect("names").clone();
        directory.remove(&first);
        directory.insert(format!("{round:x>29}").as_bytes(), Ino(21)).expect("room");
        directory.check();
    }
    assert!(directory.blocks.len() <= blocks * 3, "{} of {blocks}", directory.blocks.len());
}

#[test]
fn dot_dot_can_be_replaced_before_and_after_the_conversion() {
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for i in 0..200 {
        directory.reparent(Ino(100 + i));
        directory.reparent(PARENT);
        directory.insert(format!("name {i}").as_bytes(), Ino(50)).expect("room");
        directory.check();
    }
    assert_eq!(directory.cx.indexing, Indexing::Indexed);
}

#[test]
fn the_dots_cannot_be_inserted() {
    let directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for dot in [b".".as_slice(), b".."] {
        let plan =
            plan_insert(&directory.cx, &directory.blocks, name(dot), Ino(5), FileType::Directory);
        assert!(matches!(plan, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn room_is_made_without_a_change_of_the_names_and_then_it_is_found() {
    let mut rng = rng("room");
    for round in 0..20 {
        let mut cx = context(1024, HashVersion::HalfMd4);
        cx.indexing = if round % 4 == 0 { Indexing::Never } else { Indexing::Possible };
        let mut directory = Directory::new(cx);
        while directory.model.len() < 700 {
            let new = random_name(&mut rng, 250);
            if directory.model.contains_key(&new) {
                directory.remove(&new);
                continue;
            }
            let at = |directory: &Directory| {
                locate_room(&directory.cx, &directory.blocks, name(&new)).expect("sound")
            };
            if at(&directory).is_none() {
                let plan = plan_room(&directory.cx, &directory.blocks, name(&new)).expect("room");
                directory.apply(plan);
                directory.check();
            }
            let n = at(&directory).expect("room was made");
            let block = &mut directory.blocks[n.0 as usize];
            let look = look_for(&directory.cx, n, block, name(&new)).expect("sound");
            let Look::Room(room) = look else { panic!("{look:?}") };
            let ino = Ino(rng.u32(1..=INODES));
            let packed =
                dirent::Packed { ino, file_type: Some(FileType::Regular), name: name(&new) };
            dirent::insert_at(&directory.cx.format, Arc::make_mut(block), room, &packed);
            directory.model.insert(new, ino);
        }
        directory.check();
    }
}
