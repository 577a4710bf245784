//! Tests with damaged blocks, which must cause errors, but no panic and no endless loop.

use crate::dir::tests::*;

/// Edits a copy of the block that contains a found entry.
fn edit(cx: &DirContext, blocks: &[Arc<[u8]>], found: &Found) {
    let mut block = blocks[found.block.0 as usize].to_vec();
    let _ = dirent::replace(&cx.format, &mut block, found.offset, Ino(5), FileType::Regular);
    let _ = dirent::remove(&cx.format, &mut block, found.before as usize, found.offset);
}

/// Runs all functions on the blocks. If a function reads a block that does not exist, indexing
/// `blocks` panics.
fn run_all(cx: &DirContext, blocks: &Vec<Arc<[u8]>>, rng: &mut fastrand::Rng) {
    for (n, block) in (0..).zip(blocks) {
        let _ = verify(cx, FileBlock(n), block);
    }
    let _ = is_empty(cx, blocks);
    let mut delivered = 0;
    let cookie = if rng.bool() { 0 } else { rng.u64(..) };
    let _ = read_from(cx, blocks, cookie, &mut |_| {
        delivered += 1;
        ControlFlow::Continue(())
    });
    assert!(
        delivered <= blocks.len() * cx.format.block_size.bytes() / 12 + 2,
        "each record comes once"
    );
    for _ in 0..4 {
        let bytes = random_name(rng, 20);
        if let Ok(Some(found)) = find(cx, blocks, name(&bytes)) {
            edit(cx, blocks, &found);
        }
        let _ = locate_room(cx, blocks, name(&bytes));
        let _ = plan_room(cx, blocks, name(&bytes));
        if let Ok(plan) = plan_insert(cx, blocks, name(&bytes), Ino(5), FileType::Regular) {
            assert!(plan.updates.len() <= MOST_UPDATED && plan.appended.len() <= MOST_APPENDED);
        }
    }
    let wild = Found {
        ino: Ino(5),
        file_type: None,
        block: FileBlock(rng.u32(..blocks.len() as u32)),
        offset: rng.usize(..70_000),
        before: rng.u32(..70_000),
    };
    edit(cx, blocks, &wild);
    let mut block = blocks[0].to_vec();
    seal(cx, &mut block);
}

#[test]
fn arbitrary_bytes_give_errors() {
    let mut rng = rng("arbitrary bytes");
    for round in 0..3000 {
        let mut cx = context([1024, 4096, 65536][round % 3], HashVersion::HalfMd4);
        cx.format.has_checksums = rng.bool();
        cx.format.has_large_dirs = rng.bool();
        cx.indexing = if rng.bool() { Indexing::Indexed } else { Indexing::Possible };
        let size = cx.format.block_size.bytes();
        let blocks = (0..rng.usize(1..4)).map(|_| {
            let density = rng.u32(1..20);
            (0..size)
                .map(|_| if rng.u32(..density) == 0 { rng.u8(..) } else { 0 })
                .collect::<Vec<u8>>()
                .into()
        });
        let blocks: Vec<Arc<[u8]>> = blocks.collect();
        run_all(&cx, &blocks, &mut rng);
    }
}

#[test]
fn damaged_directories_give_errors() {
    let mut rng = rng("damaged directories");
    for large in [false, true] {
        for checksums in [false, true] {
            let mut cx = context(1024, HashVersion::Legacy);
            cx.format.has_large_dirs = large;
            cx.format.has_checksums = checksums;
            let mut directory = Directory::new(cx);
            for _ in 0..1500 {
                let new = random_name(&mut rng, 200);
                if !directory.model.contains_key(&new) {
                    directory.insert(&new, Ino(60)).expect("room");
                }
            }
            for _ in 0..400 {
                let mut blocks = directory.blocks.clone();
                for _ in 0..rng.usize(1..6) {
                    // About half of the changes are in the root, and about half of the changes in
                    // each block are in its first bytes. In these places damage does the most harm.
                    let n = if rng.bool() { 0 } else { rng.usize(..blocks.len()) };
                    let at = if rng.bool() { rng.usize(..64) } else { rng.usize(..1024) };
                    Arc::make_mut(&mut blocks[n])[at] = rng.u8(..);
                }
                run_all(&directory.cx, &blocks, &mut rng);
            }
        }
    }
}

#[test]
fn an_index_out_of_order_gets_no_further_leaf() {
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for i in 0..60 {
        directory.insert(format!("{i:0>100}").as_bytes(), Ino(60)).expect("room");
    }
    let format = directory.cx.format;
    let root = htree::root(&format, &directory.blocks[0]).expect("a root");
    let mut entries: Vec<_> = root.index.iter().collect();
    let last = entries.len() - 1;
    entries.swap(last - 1, last);
    let root = Arc::make_mut(&mut directory.blocks[0]);
    assert!(htree::write_entries(&format, htree::Kind::Root, root, &entries));
    let results = (100..200).map(|i| {
        let new = format!("{i:0>250}");
        plan_insert(
            &directory.cx,
            &directory.blocks,
            name(new.as_bytes()),
            Ino(5),
            FileType::Regular,
        )
    });
    let grown = results.filter(|plan| plan.as_ref().is_ok_and(|plan| !plan.appended.is_empty()));
    assert_eq!(grown.count(), 0);
    let new = format!("{:0>250}", "first");
    let plan = plan_room(&directory.cx, &directory.blocks, name(new.as_bytes()));
    let Err(Error::Corruption(corruption)) = plan else { panic!("{plan:?}") };
    let said = format!("index file block 0: entry {last} has a lower hash than the one before");
    assert!(corruption.to_string().ends_with(&said), "{corruption}");
}

#[test]
fn an_index_that_repeats_a_leaf_is_corruption_and_not_an_endless_walk() {
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for i in 0..100 {
        directory.insert(format!("name {i}").as_bytes(), Ino(60)).expect("room");
    }
    let empty = dirent::pack(&directory.cx.format, &[]).expect("empty").into();
    directory.blocks[1] = empty;
    let limit = htree::Kind::Root.limit(&directory.cx.format);
    let entries: Vec<_> =
        (0..limit).map(|i| htree::IndexEntry { hash: i as u32 * 2, block: FileBlock(1) }).collect();
    let root = Arc::make_mut(&mut directory.blocks[0]);
    assert!(htree::write_entries(&directory.cx.format, htree::Kind::Root, root, &entries));
    let result = read_from(&directory.cx, &directory.blocks, 0, &mut |_| ControlFlow::Continue(()));
    let Err(Error::Corruption(corruption)) = result else { panic!("{result:?}") };
    assert_eq!(
        corruption.to_string(),
        "directory inode 12, index file block 0: leads to more leaves than the directory has blocks"
    );
}

#[test]
fn a_changed_byte_does_not_verify() {
    let mut rng = rng("changed byte");
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for i in 0..1500 {
        directory.insert(format!("a longer name {i:0>100}").as_bytes(), Ino(60)).expect("room");
    }
    for n in 0..directory.blocks.len() {
        let mut block = directory.blocks[n].to_vec();
        seal(&directory.cx, &mut block);
        verify(&directory.cx, FileBlock(n as u32), &block).expect("sealed");
        let other = DirContext { generation: directory.cx.generation + 1, ..directory.cx };
        assert!(verify(&other, FileBlock(n as u32), &block).is_err(), "block {n} of another inode");
        // A byte near the start is changed, since the checksum of an index block does not cover the
        // bytes after the used entries.
        block[rng.usize(..48)] ^= 1 << rng.u32(..8);
        assert!(verify(&directory.cx, FileBlock(n as u32), &block).is_err(), "block {n}");
    }
}
